//===- FormReduceScatter.cpp - all_reduce then slice ------------------------===//
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
    // Collected first: the rewrite erases what the walk would visit next.
    SmallVector<AllReduceOp> reduces;
    getOperation().walk([&](AllReduceOp reduce) { reduces.push_back(reduce); });
    for (AllReduceOp reduce : reduces) {
      if (reduce.getInputs().size() != 1 || !reduce.getOutputs()[0].hasOneUse())
        continue;
      auto slice = dyn_cast<ShardSliceOp>(*reduce.getOutputs()[0].getUsers().begin());
      if (!slice || slice.getAxes() != reduce.getAxes())
        continue;
      OpBuilder builder(slice);
      auto scatter =
          ReduceScatterOp::create(builder, reduce.getLoc(), slice.getType(), reduce.getInputs()[0],
                                  reduce.getAxes(), slice.getDimAttr(), reduce.getReductionAttr());
      scatter->setDiscardableAttrs(reduce->getDiscardableAttrDictionary());
      slice.replaceAllUsesWith(scatter.getOutput());
      slice.erase();
      reduce.erase();
    }
  }
};
} // namespace
