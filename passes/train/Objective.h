//===- Objective.h - the losses and metrics of a function -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_OBJECTIVE_H
#define GRIDLOOM_PASSES_TRAIN_OBJECTIVE_H

#include "passes/train/Losses.h"
#include "passes/train/States.h"

namespace gridloom::train {

/// What a function computes of its outputs and its targets, all f32 [].
struct Objective {
  /// A loss: the sum over the batch, what its mean divides by, and what the mean counts in the
  /// whole. A divisor is never 0.
  struct Part {
    Term sum, divisor;
    double factor;
  };
  llvm::SmallVector<Part> parts;
  std::optional<Term> loss;  ///< the sum of the means, each times its factor
  std::optional<Term> count; ///< what the first loss was divided by; 0 where all was ignored
  llvm::SmallVector<std::pair<std::string, Term>> metrics;

  /// Adds `loss`, `count` and the metrics.
  void addOutputs(Results &results) const;
};

/// Builds the losses and metrics before the function's terminator; targets that are neither inputs
/// nor outputs become inputs, named dimensions as the outputs have them. Fails with a diagnostic at
/// the function.
mlir::FailureOr<Objective> buildObjective(mlir::func::FuncOp function, mlir::OpBuilder &builder,
                                          llvm::ArrayRef<LossSpec> losses,
                                          llvm::ArrayRef<MetricSpec> metrics);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_OBJECTIVE_H
