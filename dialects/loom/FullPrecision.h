//===- FullPrecision.h - operations that stay in f32 ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_FULLPRECISION_H
#define GRIDLOOM_DIALECTS_LOOM_FULLPRECISION_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace gridloom::loom {

/// On an operation of a loss: loom-set-precision does not narrow its floats, nor those of its
/// derivative, which is marked, too. The pass removes the mark.
inline constexpr llvm::StringLiteral kFullPrecision = "loom.full_precision";

/// Marks the operations of `block` after `before`, except the terminator; all if `before` is null.
inline void markFullPrecision(mlir::Block &block, mlir::Operation *before) {
  auto mark = mlir::UnitAttr::get(block.getParentOp()->getContext());
  for (mlir::Operation *op = block.getTerminator()->getPrevNode(); op != before;
       op = op->getPrevNode())
    op->setAttr(kFullPrecision, mark);
}

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_FULLPRECISION_H
