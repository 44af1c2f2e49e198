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

static Value convertTo(OpBuilder &builder, Value value, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == element)
    return value;
  return loom::ConvertOp::create(builder, value.getLoc(), type.clone(element), value);
}

Value gridloom::transposeTo(OpBuilder &builder, Value value, ArrayRef<int64_t> order) {
  auto type = cast<RankedTensorType>(value.getType());
  if (llvm::equal(order, llvm::seq<int64_t>(0, type.getRank())))
    return value;
  auto shape = llvm::map_to_vector(order, [&](int64_t dim) { return type.getDimSize(dim); });
  return loom::TransposeOp::create(
      builder, value.getLoc(), RankedTensorType::get(shape, type.getElementType()), value, order);
}

void gridloom::expandContraction(loom::DotGeneralOp dot) {
  OpBuilder builder(dot);
  Location loc = dot.getLoc();
  int64_t numBatch = dot.getLhsBatch().size(), numContract = dot.getLhsContract().size();
  int64_t numLeft = dot.getLhsFreeDims().size(), numRight = dot.getRhsFreeDims().size();
  // All loops, the contracted innermost: a row of the product is summed by its reader.
  SmallVector<int64_t> shape(dot.getType().getShape());
  for (int64_t dim : dot.getLhsContract())
    shape.push_back(cast<RankedTensorType>(dot.getLhs().getType()).getDimSize(dim));
  // Sums of 16-bit floats are f32.
  Type element = dot.getType().getElementType(), sum = element;
  if (element.isF16() || element.isBF16())
    sum = builder.getF32Type();
  auto product = RankedTensorType::get(shape, sum);

  auto spread = [&](Value operand, ArrayRef<int64_t> batch, ArrayRef<int64_t> free,
                    ArrayRef<int64_t> contract, int64_t firstFree) -> Value {
    SmallVector<int64_t> order(batch), dims = llvm::to_vector(llvm::seq<int64_t>(0, numBatch));
    llvm::append_range(order, free);
    llvm::append_range(order, contract);
    llvm::append_range(dims, llvm::seq<int64_t>(firstFree, firstFree + free.size()));
    int64_t firstContract = numBatch + numLeft + numRight;
    llvm::append_range(dims, llvm::seq<int64_t>(firstContract, firstContract + numContract));
    operand = convertTo(builder, transposeTo(builder, operand, order), product.getElementType());
    return loom::BroadcastOp::create(builder, loc, product, operand, dims);
  };
  Value left =
      spread(dot.getLhs(), dot.getLhsBatch(), dot.getLhsFreeDims(), dot.getLhsContract(), numBatch);
  Value right = spread(dot.getRhs(), dot.getRhsBatch(), dot.getRhsFreeDims(), dot.getRhsContract(),
                       numBatch + numLeft);
  Value result = loom::MultiplyOp::create(builder, loc, left, right);
  if (numContract > 0)
    result = loom::ReduceOp::create(
        builder, loc, dot.getType().clone(sum), result, dist::ReductionKind::Sum,
        llvm::to_vector(llvm::seq<int64_t>(numBatch + numLeft + numRight, product.getRank())));
  dot.getOutput().replaceAllUsesWith(convertTo(builder, result, element));
  dot.erase();
}

bool gridloom::isInLibrary(loom::DotGeneralOp dot) {
  Type lhs = dot.getLhs().getType().getElementType(), rhs = dot.getRhs().getType().getElementType(),
       out = dot.getType().getElementType();
  return lhs == rhs && (lhs.isF32() || lhs.isF16() || lhs.isBF16()) && (out == lhs || out.isF32());
}

/// The same contraction in f32, of operands that differ in type.
static void widen(loom::DotGeneralOp dot) {
  OpBuilder builder(dot);
  Type f32 = builder.getF32Type();
  auto wide = loom::DotGeneralOp::create(
      builder, dot.getLoc(), dot.getType().clone(f32), convertTo(builder, dot.getLhs(), f32),
      convertTo(builder, dot.getRhs(), f32), dot.getLhsBatch(), dot.getRhsBatch(),
      dot.getLhsContract(), dot.getRhsContract());
  dot.getOutput().replaceAllUsesWith(
      convertTo(builder, wide.getOutput(), dot.getType().getElementType()));
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
      // The prologue has kernels only.
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
