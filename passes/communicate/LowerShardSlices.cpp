//===- LowerShardSlices.cpp - slices of a device's own part -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_LOWERSHARDSLICES
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct LowerShardSlicesPass : public gridloom::impl::LowerShardSlicesBase<LowerShardSlicesPass> {
  using LowerShardSlicesBase::LowerShardSlicesBase;

  void runOnOperation() override {
    getOperation().walk([](ShardSliceOp slice) {
      OpBuilder builder(slice);
      Location loc = slice.getLoc();
      auto input = cast<RankedTensorType>(slice.getInput().getType());
      auto output = cast<RankedTensorType>(slice.getOutput().getType());
      int64_t dim = slice.getDim(), part = output.getDimSize(dim);
      SmallVector<int64_t> shape(input.getShape());
      shape[dim] = part;
      shape.insert(shape.begin() + dim, input.getDimSize(dim) / part);
      auto index = AxisIndexOp::create(
          builder, loc, RankedTensorType::get({}, builder.getI64Type()), slice.getAxes());
      auto parts = loom::ReshapeOp::create(
          builder, loc, RankedTensorType::get(shape, input.getElementType()), slice.getInput());
      auto mine = loom::GatherOp::create(builder, loc, output, parts, index, dim);
      mine->setDiscardableAttrs(slice->getDiscardableAttrDictionary());
      slice.replaceAllUsesWith(mine.getOutput());
      slice.erase();
    });
  }
};
} // namespace
