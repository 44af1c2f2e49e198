//===- ExpandContractions.cpp - contractions without a library --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/ExpandContractions.h"

#include "passes/fuse/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_EXPANDCONTRACTIONS
#include "passes/fuse/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

bool gridloom::isInLibrary(loom::DotGeneralOp dot) {
  Type lhs = dot.getLhs().getType().getElementType(), rhs = dot.getRhs().getType().getElementType(),
       out = dot.getType().getElementType();
  return lhs == rhs && (lhs.isF32() || lhs.isF16() || lhs.isBF16()) && (out == lhs || out.isF32());
}

/// Replaces the contraction by one in f32, whose operands may have differed in type.
static void widen(loom::DotGeneralOp dot) {
  OpBuilder builder(dot);
  Type f32 = builder.getF32Type();
  auto wide = loom::DotGeneralOp::create(
      builder, dot.getLoc(), dot.getType().clone(f32), loom::convertTo(builder, dot.getLhs(), f32),
      loom::convertTo(builder, dot.getRhs(), f32), dot.getLhsBatch(), dot.getRhsBatch(),
      dot.getLhsContract(), dot.getRhsContract(), dot.getTf32());
  dot.getOutput().replaceAllUsesWith(
      loom::convertTo(builder, wide.getOutput(), dot.getType().getElementType()));
  dot.erase();
}

namespace {
struct ExpandContractions : gridloom::impl::ExpandContractionsBase<ExpandContractions> {
  void runOnOperation() override {
    SmallVector<loom::DotGeneralOp> dots;
    getOperation().walk([&](loom::DotGeneralOp dot) { dots.push_back(dot); });
    for (loom::DotGeneralOp dot : dots) {
      auto isNarrow = [](Value value) {
        Type element = cast<RankedTensorType>(value.getType()).getElementType();
        return isa<FloatType>(element) && element.getIntOrFloatBitWidth() <= 32;
      };
      // Prologues have kernels only.
      if (!dot->getParentOfType<func::FuncOp>())
        expandContraction(dot);
      else if (isInLibrary(dot))
        continue;
      else if (isNarrow(dot.getLhs()) && isNarrow(dot.getRhs()) && isNarrow(dot.getOutput()))
        widen(dot);
      else
        expandContraction(dot);
    }
  }
};
} // namespace
