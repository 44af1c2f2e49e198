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

/// What training does with a float weight that the losses depend on.
enum class Fate {
  Trained,
  Frozen,    ///< by --param
  Statistic, ///< a running statistic: no gradient changes it
  Narrow     ///< neither f32 nor f64: a step is refused
};

/// Reads of float weights that the values depend on as a derivative sees it, in the order of the
/// function; one that only operations without a slope lead to is not among them.
llvm::SmallVector<loom::GetWeightOp> findReads(mlir::func::FuncOp function,
                                               llvm::ArrayRef<mlir::Value> values);

/// The next values of running statistics, by weight, among a function's results.
llvm::MapVector<mlir::StringAttr, mlir::Value> findStatistics(mlir::func::FuncOp function);

/// The one rule of what is trained.
Fate decideFate(loom::GetWeightOp read, const ParameterRules &rules,
                const llvm::MapVector<mlir::StringAttr, mlir::Value> &statistics);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_SELECTION_H
