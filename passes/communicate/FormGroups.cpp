//===- FormGroups.cpp - asynchronous groups ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Buckets.h"

#include "dialects/dist/Gathered.h"
#include "dialects/loom/Training.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_FORMGROUPS
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct FormGroupsPass : public gridloom::impl::FormGroupsBase<FormGroupsPass> {
  using FormGroupsBase::FormGroupsBase;

  void runOnOperation() override {
    SmallVector<Operation *> communication;
    getOperation().walk([&](Operation *op) {
      if (isCommunication(op) && !isa<StartOp>(op->getParentOp()))
        communication.push_back(op);
    });
    for (ArrayRef<Operation *> rest = communication; !rest.empty();) {
      size_t size = 1;
      while (size < rest.size() && areOneUnit(rest[size - 1], rest[size]))
        ++size;
      wrap(rest.take_front(size));
      rest = rest.drop_front(size);
    }
  }

private:
  /// Whether two all_gathers of parameters travel in one message: they stand side by side.
  static bool areOneUnit(Operation *op, Operation *next) {
    Attribute unit = op->getAttr(kGathered);
    return unit && unit == next->getAttr(kGathered) && op->getNextNode() == next;
  }
  /// What the results of all members have under a name; nothing where some have none.
  static ArrayAttr joinAttributes(ArrayRef<Operation *> members, StringRef name) {
    SmallVector<Attribute> all;
    for (Operation *member : members) {
      auto own = member->getAttrOfType<ArrayAttr>(name);
      if (!own)
        return {};
      llvm::append_range(all, own);
    }
    return ArrayAttr::get(members.front()->getContext(), all);
  }
  static void addCauses(StartOp start, ArrayRef<Operation *> members) {
    for (Operation *member : members)
      addCause(start, getCause(member));
    nameBucket(start, members.size());
  }

  static void wrap(ArrayRef<Operation *> members) {
    Operation *op = members.back();
    OpBuilder builder(op);
    SmallVector<Location> locations;
    SmallVector<Value> results;
    for (Operation *member : members) {
      locations.push_back(member->getLoc());
      llvm::append_range(results, member->getResults());
    }
    Location loc = builder.getFusedLoc(locations);
    SmallVector<Type> types(ValueRange(results).getTypes());
    auto start = StartOp::create(builder, loc, FutureType::get(op->getContext(), types));
    auto done = DoneOp::create(builder, loc, types, start.getFuture());
    for (StringRef name : {kShardings, kOrigins})
      if (Attribute attr = joinAttributes(members, name))
        done->setAttr(name, attr);
    if (members.size() > 1)
      addCauses(start, members);
    for (auto [from, to] : llvm::zip_equal(results, done.getOutputs()))
      from.replaceAllUsesWith(to);
    // Where stages send both ways, one that waits for its send would not receive what its peer
    // waits for: the step waits for all of them at its end.
    if (auto function = dyn_cast<func::FuncOp>(op->getBlock()->getParentOp());
        isa<SendOp>(op) && function && loom::isTrainStep(function))
      done->moveBefore(function.front().getTerminator());
    Block *body = builder.createBlock(&start.getBody());
    for (Operation *member : members)
      member->moveBefore(body, body->end());
    builder.setInsertionPointToEnd(body);
    YieldOp::create(builder, loc, results);
  }
};
} // namespace
