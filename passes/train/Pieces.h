//===- Pieces.h - a batch in pieces, one after the other --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_PIECES_H
#define GRIDLOOM_PASSES_TRAIN_PIECES_H

#include "dialects/loom/Training.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace gridloom::train {

/// Makes a function of a part of a batch one of the whole batch, and copies its operations for each
/// part. Part i of n has rows i, i + n, i + 2n, ...: where devices have equal blocks of rows, of a
/// multiple of n, each has its share of every part at hand.
class Pieces {
public:
  /// The function's arguments have the rows of a part where their first dimension is called as
  /// attribute `loom.batch` says, {name, parts}, which is taken off. Without it there is one part.
  /// Random numbers of tensors that begin with the batch are those of the whole batch; others are
  /// the same in all parts.
  explicit Pieces(mlir::func::FuncOp function);

  int64_t getCount() const { return count; }
  /// Whether an argument has the rows of a part.
  bool isCut(mlir::BlockArgument argument);
  /// Makes the arguments whole. What is in the function is part 0 from then on.
  void widen();
  /// Copies what was in the function at `widen` before its terminator, for part `index`, from 1.
  mlir::IRMapping copy(int64_t index);

private:
  mlir::Value cut(mlir::Value whole, int64_t index);
  void renumber(loom::RandomBitsOp op, int64_t index);

  mlir::func::FuncOp function;
  mlir::OpBuilder builder;
  mlir::StringAttr name;
  int64_t count = 1, rows = 0;
  /// Per argument that is cut: the whole, and part 0.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>> wholes;
  llvm::SmallVector<mlir::Operation *> original;
  llvm::SmallVector<std::pair<loom::RandomBitsOp, mlir::Value>> random; ///< with their indices
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_PIECES_H
