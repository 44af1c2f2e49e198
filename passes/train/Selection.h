//===- Selection.h - which weights are trained ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_SELECTION_H
#define GRIDLOOM_PASSES_TRAIN_SELECTION_H

#include "passes/train/Parameters.h"

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace gridloom::train {

/// How training treats a float weight that the losses depend on.
enum class Fate {
  Trained,
  Frozen,    ///< by --param
  Constant,  ///< of the graph, not an initializer
  Statistic, ///< a running statistic, which no gradient changes
  Mixed,     ///< a parameter that is also a running statistic, which is an error
  Narrow     ///< neither f32 nor f64, which is an error
};

/// Reads of float weights on which the values have a derivative, in the order of the function;
/// weights behind operations without a slope are not among them.
llvm::SmallVector<loom::GetWeightOp> findReads(mlir::func::FuncOp function,
                                               llvm::ArrayRef<mlir::Value> values);

/// The same reads, and others of the same weights that training leaves unchanged, by weight.
llvm::MapVector<mlir::StringAttr, llvm::SmallVector<loom::GetWeightOp>>
groupReads(mlir::func::FuncOp function, llvm::ArrayRef<mlir::Value> values);

/// The next values of running statistics, by weight, among a function's results.
llvm::MapVector<mlir::StringAttr, mlir::Value> findStatistics(mlir::func::FuncOp function);

/// Decides what is trained; the only rule for it.
Fate decideFate(loom::GetWeightOp read, const ParameterRules &rules,
                const llvm::MapVector<mlir::StringAttr, mlir::Value> &statistics);
/// The same for a weight with these reads: Mixed if they differ.
Fate decideFate(llvm::ArrayRef<loom::GetWeightOp> reads, const ParameterRules &rules,
                const llvm::MapVector<mlir::StringAttr, mlir::Value> &statistics);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_SELECTION_H
