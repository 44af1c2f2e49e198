//===- CombineCollectives.cpp - small all_reduces travel together -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_COMBINECOLLECTIVES
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct CombineCollectivesPass
    : public gridloom::impl::CombineCollectivesBase<CombineCollectivesPass> {
  using CombineCollectivesBase::CombineCollectivesBase;

  void runOnOperation() override {
    for (Block &block : getOperation().getBody()) {
      AllReduceOp pending;
      for (Operation &op : llvm::make_early_inc_range(block)) {
        // A use of the pending result ends its wait for company.
        if (pending && llvm::any_of(op.getOperands(),
                                    [&](Value value) { return value.getDefiningOp() == pending; }))
          pending = nullptr;
        auto next = dyn_cast<AllReduceOp>(op);
        if (!next)
          continue;
        pending = pending && canJoin(pending, next) ? join(pending, next) : next;
      }
    }
  }

private:
  static int64_t bytesOf(AllReduceOp op) {
    int64_t bytes = 0;
    for (Type type : op.getInputs().getTypes())
      bytes += loom::getByteSize(type);
    return bytes;
  }

  bool canJoin(AllReduceOp first, AllReduceOp second) {
    auto elementOf = [](AllReduceOp op) {
      return cast<RankedTensorType>(op.getInputs()[0].getType()).getElementType();
    };
    return first.getAxes() == second.getAxes() && first.getReduction() == second.getReduction() &&
           elementOf(first) == elementOf(second) && bytesOf(first) + bytesOf(second) <= threshold;
  }

  static AllReduceOp join(AllReduceOp first, AllReduceOp second) {
    OpBuilder builder(second);
    SmallVector<Value> inputs(first.getInputs());
    llvm::append_range(inputs, second.getInputs());
    SmallVector<StringAttr> axes(first.getAxes().getAsRange<StringAttr>());
    Location loc = builder.getFusedLoc({first.getLoc(), second.getLoc()});
    auto joined = AllReduceOp::create(builder, loc, inputs, axes, first.getReduction());
    joined->setDiscardableAttrs(second->getDiscardableAttrDictionary());
    for (StringRef name : {kShardings, kOrigins}) {
      auto left = first->getAttrOfType<ArrayAttr>(name),
           right = second->getAttrOfType<ArrayAttr>(name);
      if (!left || !right)
        continue;
      SmallVector<Attribute> both(left.getValue());
      llvm::append_range(both, right);
      joined->setAttr(name, builder.getArrayAttr(both));
    }
    SmallVector<Value> old(first.getOutputs());
    llvm::append_range(old, second.getOutputs());
    for (auto [from, to] : llvm::zip_equal(old, joined.getOutputs()))
      from.replaceAllUsesWith(to);
    first.erase();
    second.erase();
    return joined;
  }
};
} // namespace
