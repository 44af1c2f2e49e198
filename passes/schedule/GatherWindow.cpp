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

/// A parameter from the all_gather of its unit to its last use.
struct Parameter {
  Operation *last = nullptr;
  int64_t bytes = 0; ///< with those of copies in another order or type
};

/// Parameters that one all_gather brings.
struct Unit {
  dist::StartOp start;
  SmallVector<Operation *> names;    ///< what waits for it, and views
  Operation *first = nullptr;        ///< use of any of them
  SmallVector<Parameter> parameters; ///< those that are used
};

/// Whether an operation gives the elements of one value in another order or type.
bool isCopy(Operation *op) {
  auto call = dyn_cast<plan::CallOp>(op);
  auto count = [](Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); };
  return call && call.getInputs().size() == 1 && call.getOutputs().size() == 1 &&
         count(call.getInputs()[0]) == count(call.getOutputs()[0]);
}

void collect(Value value, Unit &unit, Parameter &parameter) {
  for (Operation *user : value.getUsers()) {
    if (user->hasTrait<OpTrait::IsTerminator>())
      continue;
    if (isa<loom::ReshapeOp, loom::SliceOp>(user)) {
      unit.names.push_back(user);
      collect(user->getResult(0), unit, parameter);
      continue;
    }
    Operation *use = unit.start->getBlock()->findAncestorOpInBlock(*user);
    if (!unit.first || use->isBeforeInBlock(unit.first))
      unit.first = use;
    if (!parameter.last || parameter.last->isBeforeInBlock(use))
      parameter.last = use;
    if (!isCopy(user))
      continue;
    Value copy = user->getResult(0);
    parameter.bytes += loom::getByteSize(copy.getType());
    collect(copy, unit, parameter);
  }
}

/// Those that are used, in the order of their first uses.
SmallVector<Unit> findUnits(Block &block) {
  SmallVector<Unit> units;
  for (auto start : block.getOps<dist::StartOp>()) {
    Operation &op = start.getBody().front().front();
    if (!op.hasAttr(dist::kGathered))
      continue;
    Unit unit{start, {}, nullptr, {}};
    for (Operation *done : start.getFuture().getUsers()) {
      unit.names.push_back(done);
      for (Value result : done->getResults()) {
        Parameter parameter{nullptr, loom::getByteSize(result.getType())};
        collect(result, unit, parameter);
        if (parameter.last)
          unit.parameters.push_back(parameter);
      }
    }
    if (unit.first)
      units.push_back(std::move(unit));
  }
  llvm::stable_sort(units, [](const Unit &a, const Unit &b) {
    return a.first != b.first && a.first->isBeforeInBlock(b.first);
  });
  return units;
}

} // namespace

void sinkGathers(Block &block) {
  for (Unit &unit : findUnits(block)) {
    unit.start->moveBefore(unit.first);
    llvm::sort(unit.names, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    for (Operation *name : unit.names)
      if (name->isBeforeInBlock(unit.first))
        name->moveBefore(unit.first);
  }
}

SmallVector<std::pair<Operation *, Operation *>> findGatherWaits(Block &block) {
  auto window = block.getParentOp()->getAttrOfType<IntegerAttr>(dist::kGatherWindow);
  if (!window)
    return {};
  SmallVector<std::pair<Operation *, Operation *>> waits;
  SmallVector<Unit> units = findUnits(block);
  SmallVector<const Parameter *> byLast; // those that are over come first
  for (const Unit &unit : units)
    for (const Parameter &parameter : unit.parameters)
      byLast.push_back(&parameter);
  llvm::stable_sort(byLast, [](const Parameter *a, const Parameter *b) {
    return a->last != b->last && a->last->isBeforeInBlock(b->last);
  });
  size_t over = 0;
  int64_t used = 0; // bytes of those that have begun and are not over
  for (const Unit &unit : units) {
    for (; byLast[over]->last->isBeforeInBlock(unit.first); ++over)
      used -= byLast[over]->bytes;
    for (const Parameter &parameter : unit.parameters)
      used += parameter.bytes;
    int64_t bytes = used;
    for (const Parameter *before : llvm::reverse(ArrayRef(byLast).take_front(over))) {
      bytes += before->bytes;
      if (bytes <= window.getInt())
        continue;
      waits.push_back({before->last, unit.start});
      break;
    }
  }
  return waits;
}

} // namespace gridloom
