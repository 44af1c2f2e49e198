//===- GatherWindow.cpp - room for gathered parameters --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/GatherWindow.h"

#include "dialects/dist/Dist.h"
#include "dialects/dist/Gathered.h"
#include "dialects/loom/Loom.h"
#include "dialects/plan/Plan.h"

using namespace mlir;

namespace gridloom {
namespace {

/// A parameter from its all_gather to its last use.
struct Stretch {
  dist::StartOp start;
  SmallVector<Operation *> names;              ///< what waits for it, and views
  Operation *first = nullptr, *last = nullptr; ///< uses
  int64_t bytes = 0;                           ///< with those of copies in another order or type
};

/// Whether an operation gives the elements of one value in another order or type.
bool isCopy(Operation *op) {
  auto call = dyn_cast<plan::CallOp>(op);
  auto count = [](Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); };
  return call && call.getInputs().size() == 1 && call.getOutputs().size() == 1 &&
         count(call.getInputs()[0]) == count(call.getOutputs()[0]);
}

void collect(Value value, Stretch &stretch) {
  for (Operation *user : value.getUsers()) {
    if (user->hasTrait<OpTrait::IsTerminator>())
      continue;
    if (isa<loom::ReshapeOp, loom::SliceOp>(user)) {
      stretch.names.push_back(user);
      collect(user->getResult(0), stretch);
      continue;
    }
    Operation *use = stretch.start->getBlock()->findAncestorOpInBlock(*user);
    if (!stretch.first || use->isBeforeInBlock(stretch.first))
      stretch.first = use;
    if (!stretch.last || stretch.last->isBeforeInBlock(use))
      stretch.last = use;
    if (!isCopy(user))
      continue;
    Value copy = user->getResult(0);
    stretch.bytes += loom::getByteSize(copy.getType());
    collect(copy, stretch);
  }
}

/// Those that are used, in the order of their first uses.
SmallVector<Stretch> findStretches(Block &block) {
  SmallVector<Stretch> stretches;
  for (auto start : block.getOps<dist::StartOp>()) {
    Operation &op = start.getBody().front().front();
    if (!op.hasAttr(dist::kGathered))
      continue;
    Stretch stretch{start, {}, nullptr, nullptr, 0};
    for (Operation *done : start.getFuture().getUsers()) {
      stretch.names.push_back(done);
      for (Value result : done->getResults()) {
        stretch.bytes += loom::getByteSize(result.getType());
        collect(result, stretch);
      }
    }
    if (stretch.first)
      stretches.push_back(std::move(stretch));
  }
  llvm::stable_sort(stretches, [](const Stretch &a, const Stretch &b) {
    return a.first != b.first && a.first->isBeforeInBlock(b.first);
  });
  return stretches;
}

} // namespace

void sinkGathers(Block &block) {
  for (Stretch &stretch : findStretches(block)) {
    stretch.start->moveBefore(stretch.first);
    llvm::sort(stretch.names, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    for (Operation *name : stretch.names)
      if (name->isBeforeInBlock(stretch.first))
        name->moveBefore(stretch.first);
  }
}

SmallVector<std::pair<Operation *, Operation *>> findGatherWaits(Block &block) {
  auto window = block.getParentOp()->getAttrOfType<IntegerAttr>(dist::kGatherWindow);
  if (!window)
    return {};
  SmallVector<std::pair<Operation *, Operation *>> waits;
  SmallVector<Stretch> stretches = findStretches(block);
  SmallVector<const Stretch *> byLast; // those that are over come first
  for (const Stretch &stretch : stretches)
    byLast.push_back(&stretch);
  llvm::stable_sort(byLast, [](const Stretch *a, const Stretch *b) {
    return a->last != b->last && a->last->isBeforeInBlock(b->last);
  });
  size_t over = 0;
  int64_t used = 0; // bytes of those that have begun and are not over
  for (const Stretch &stretch : stretches) {
    for (; byLast[over]->last->isBeforeInBlock(stretch.first); ++over)
      used -= byLast[over]->bytes;
    used += stretch.bytes;
    int64_t bytes = used;
    for (const Stretch *before : llvm::reverse(ArrayRef(byLast).take_front(over))) {
      bytes += before->bytes;
      if (bytes <= window.getInt())
        continue;
      waits.push_back({before->last, stretch.start});
      break;
    }
  }
  return waits;
}

} // namespace gridloom
