//===- LoomOps.cpp - folders and queries ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom::loom;

#define GET_OP_CLASSES
#include "dialects/loom/LoomOps.cpp.inc"

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    if (inner.getInput().getType() == getType())
      return inner.getInput();
    setOperand(inner.getInput());
    return getResult();
  }
  return {};
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (llvm::equal(getPermutation(), llvm::seq<int64_t>(0, getPermutation().size())))
    return getInput();
  return {};
}

static SmallVector<int64_t> getFreeDims(Type type, ArrayRef<int64_t> batch,
                                        ArrayRef<int64_t> contract) {
  SmallVector<int64_t> dims;
  for (int64_t i = 0, rank = cast<RankedTensorType>(type).getRank(); i < rank; ++i)
    if (!llvm::is_contained(batch, i) && !llvm::is_contained(contract, i))
      dims.push_back(i);
  return dims;
}

SmallVector<int64_t> DotGeneralOp::getLhsFreeDims() {
  return getFreeDims(getLhs().getType(), getLhsBatch(), getLhsContract());
}

SmallVector<int64_t> DotGeneralOp::getRhsFreeDims() {
  return getFreeDims(getRhs().getType(), getRhsBatch(), getRhsContract());
}
