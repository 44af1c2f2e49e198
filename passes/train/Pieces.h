//===- Pieces.h - a batch computed in parts ---------------------*- C++ -*-===//
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

/// Turns a function of a part of a batch into one of the whole batch, with a copy of its operations
/// for each part. Part i of n has rows i, i + n, i + 2n, ...: if devices have equal blocks of rows,
/// of a multiple of n, each holds its share of every part.
class Pieces {
public:
  /// Arguments have the rows of a part if their first dimension has the name in attribute
  /// `loom.batch`, {name, parts}, which is removed. Without the attribute there is one part. Random
  /// numbers of the batch's rows, in whatever dimension, are those of the whole batch; others are
  /// the same in all parts.
  explicit Pieces(mlir::func::FuncOp function);

  int64_t getCount() const { return count; }
  /// Whether an argument has the rows of a part.
  bool isCut(mlir::BlockArgument argument);
  /// The first operation up to `last` that sums floats over the rows and that `values` depend on;
  /// null if there is none, or one part. To be called before `widen`.
  mlir::Operation *findSum(llvm::ArrayRef<mlir::Value> values, mlir::Operation *last);
  /// Makes the arguments whole. The function's operations are part 0 from then on.
  void widen();
  /// Copies the operations of part 0 before the function's terminator as part `index`, from 1.
  mlir::IRMapping copy(int64_t index);

private:
  mlir::Value cut(mlir::Value whole, int64_t index);
  void renumber(loom::RandomBitsOp op, int64_t stride, int64_t index);

  /// Random numbers of a batch's rows, which have this stride in them, and their indices.
  struct Random {
    loom::RandomBitsOp op;
    mlir::Value index;
    int64_t stride;
  };

  mlir::func::FuncOp function;
  mlir::OpBuilder builder;
  mlir::StringAttr name;
  int64_t count = 1, rows = 0;
  /// For each argument that is cut: the whole, and part 0.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>> wholes;
  llvm::SmallVector<mlir::Operation *> original;
  llvm::SmallVector<Random> random;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_PIECES_H
