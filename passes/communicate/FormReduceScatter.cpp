//===- FormReduceScatter.cpp - all_reduce, then slice -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_FORMREDUCESCATTER
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct FormReduceScatterPass : public gridloom::impl::FormReduceScatterBase<FormReduceScatterPass> {
  using FormReduceScatterBase::FormReduceScatterBase;

  void runOnOperation() override {
    // Collected first, because the rewrite erases what the walk would visit next.
    SmallVector<AllReduceOp> reduces;
    getOperation().walk([&](AllReduceOp reduce) { reduces.push_back(reduce); });
    for (AllReduceOp reduce : reduces)
      if (reduce.getInputs().size() == 1 && reduce.getOutputs()[0].hasOneUse())
        if (auto slice = dyn_cast<ShardSliceOp>(*reduce.getOutputs()[0].getUsers().begin()))
          rewrite(reduce, slice);
  }

private:
  static void rewrite(AllReduceOp reduce, ShardSliceOp slice) {
    // Axes that are reduced but not sliced are left to an all_reduce of the part.
    SmallVector<StringAttr> rest(reduce.getAxes().getAsRange<StringAttr>());
    for (auto axis : slice.getAxes().getAsRange<StringAttr>()) {
      auto *it = llvm::find(rest, axis);
      if (it == rest.end())
        return;
      rest.erase(it);
    }
    OpBuilder builder(slice);
    auto scatter =
        ReduceScatterOp::create(builder, reduce.getLoc(), slice.getType(), reduce.getInputs()[0],
                                slice.getAxes(), slice.getDimAttr(), reduce.getReductionAttr());
    Operation *last = scatter;
    if (!rest.empty())
      last = AllReduceOp::create(builder, reduce.getLoc(), ValueRange(scatter.getOutput()), rest,
                                 reduce.getReduction());
    for (Operation *op : {scatter.getOperation(), last}) {
      op->setDiscardableAttrs(slice->getDiscardableAttrDictionary());
      addCause(op, getCause(reduce));
    }
    if (last != scatter)
      scatter->removeAttr(kShardings); // still partial
    slice.replaceAllUsesWith(last->getResult(0));
    slice.erase();
    reduce.erase();
  }
};
} // namespace
