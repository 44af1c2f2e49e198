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

/// On an operation of a loss: its floats are not narrowed by loom-set-precision, nor are those of
/// its derivative, which is marked so, too. The pass takes the mark off.
inline constexpr llvm::StringLiteral kFullPrecision = "loom.full_precision";

/// Marks the operations of `block` behind `before`, its terminator excepted; all where that is
/// null.
inline void markFullPrecision(mlir::Block &block, mlir::Operation *before) {
  auto mark = mlir::UnitAttr::get(block.getParentOp()->getContext());
  for (mlir::Operation *op = block.getTerminator()->getPrevNode(); op != before;
       op = op->getPrevNode())
    op->setAttr(kFullPrecision, mark);
}

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_FULLPRECISION_H
