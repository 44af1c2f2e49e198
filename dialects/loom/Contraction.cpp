//===- Contraction.cpp - contractions as sums of products -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Contraction.h"

using namespace mlir;
using namespace gridloom;

Value loom::convertTo(OpBuilder &builder, Value value, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == element)
    return value;
  return ConvertOp::create(builder, value.getLoc(), type.clone(element), value);
}

Value loom::transposeTo(OpBuilder &builder, Value value, ArrayRef<int64_t> order) {
  auto type = cast<RankedTensorType>(value.getType());
  if (llvm::equal(order, llvm::seq<int64_t>(0, type.getRank())))
    return value;
  auto shape = llvm::map_to_vector(order, [&](int64_t dim) { return type.getDimSize(dim); });
  return TransposeOp::create(builder, value.getLoc(),
                             RankedTensorType::get(shape, type.getElementType()), value, order);
}

void loom::expandContraction(DotGeneralOp dot, Type sum) {
  OpBuilder builder(dot);
  Location loc = dot.getLoc();
  int64_t numBatch = dot.getLhsBatch().size(), numContract = dot.getLhsContract().size();
  int64_t numLeft = dot.getLhsFreeDims().size(), numRight = dot.getRhsFreeDims().size();
  // All loops, the contracted ones innermost, so that the reader sums rows of the product.
  SmallVector<int64_t> shape(dot.getType().getShape());
  for (int64_t dim : dot.getLhsContract())
    shape.push_back(cast<RankedTensorType>(dot.getLhs().getType()).getDimSize(dim));
  Type element = dot.getType().getElementType();
  if (!sum)
    sum = element.isF16() || element.isBF16() ? builder.getF32Type() : element;
  auto product = RankedTensorType::get(shape, sum);

  auto spread = [&](Value operand, ArrayRef<int64_t> batch, ArrayRef<int64_t> free,
                    ArrayRef<int64_t> contract, int64_t firstFree) -> Value {
    SmallVector<int64_t> order(batch), dims = llvm::to_vector(llvm::seq<int64_t>(0, numBatch));
    llvm::append_range(order, free);
    llvm::append_range(order, contract);
    llvm::append_range(dims, llvm::seq<int64_t>(firstFree, firstFree + free.size()));
    int64_t firstContract = numBatch + numLeft + numRight;
    llvm::append_range(dims, llvm::seq<int64_t>(firstContract, firstContract + numContract));
    operand = convertTo(builder, transposeTo(builder, operand, order), sum);
    return BroadcastOp::create(builder, loc, product, operand, dims);
  };
  Value left =
      spread(dot.getLhs(), dot.getLhsBatch(), dot.getLhsFreeDims(), dot.getLhsContract(), numBatch);
  Value right = spread(dot.getRhs(), dot.getRhsBatch(), dot.getRhsFreeDims(), dot.getRhsContract(),
                       numBatch + numLeft);
  Value result = MultiplyOp::create(builder, loc, left, right);
  if (numContract > 0)
    result = ReduceOp::create(
        builder, loc, dot.getType().clone(sum), result, dist::ReductionKind::Sum,
        llvm::to_vector(llvm::seq<int64_t>(numBatch + numLeft + numRight, product.getRank())));
  dot.getOutput().replaceAllUsesWith(convertTo(builder, result, element));
  dot.erase();
}
