//===- Objective.h - the losses and metrics of a function -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_OBJECTIVE_H
#define GRIDLOOM_PASSES_TRAIN_OBJECTIVE_H

#include "passes/train/Losses.h"
#include "passes/train/States.h"

#include "mlir/IR/IRMapping.h"

namespace gridloom::train {

/// Sums over the rows of a function and the numbers by which means divide them, all f32 [], or f64
/// [] for predictions in f64. Those of several parts of a batch add up to those of the batch.
class Objective {
public:
  struct Loss {
    LossParts parts;
    double factor;
    bool isMean; ///< else the count is 1, for all parts together
  };
  struct Metric {
    std::string name;
    LossParts parts;
  };

  llvm::ArrayRef<Loss> getLosses() const { return losses; }
  void add(Loss loss) { losses.push_back(std::move(loss)); }
  void add(Metric metric) { metrics.push_back(std::move(metric)); }
  bool hasMetric(llvm::StringRef name) const;
  /// The sums of the losses, which are differentiated.
  llvm::SmallVector<mlir::Value> getSums() const;

  /// The objective of a copy of the operations.
  Objective map(const mlir::IRMapping &mapping) const;
  /// Adds another part of the batch.
  void accumulate(const Objective &other);

  /// The sum of the losses' means, each times its factor; f64 if one is f64, else f32.
  Term getLoss() const;
  /// The outputs of which `loss` is the sum, each a mean over NAME.count rows: "loss.1" and so on
  /// if there are several losses, which may have different counts; else none.
  static llvm::SmallVector<std::string> getTermNames(size_t numLosses);
  /// The divisor of a mean: the count, or 1 if it is 0, in which case the sum is 0, too.
  static Term getDivisor(const LossParts &parts);
  /// Adds `loss`, `count` (of the first loss), and for each of getTermNames and each metric NAME
  /// its mean and NAME.count, all f32 [].
  void addOutputs(Results &results, const Term &loss) const;

private:
  llvm::SmallVector<Loss, 1> losses;
  llvm::SmallVector<Metric, 1> metrics;
};

/// Builds the losses and metrics before the function's terminator, marked kFullPrecision. Targets
/// that are neither inputs nor outputs become inputs, with the outputs' dimension names. Marks
/// labels with kLabels. Fails with a diagnostic at the function.
mlir::FailureOr<Objective> buildObjective(mlir::func::FuncOp function, mlir::OpBuilder &builder,
                                          llvm::ArrayRef<LossSpec> losses,
                                          llvm::ArrayRef<MetricSpec> metrics);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_OBJECTIVE_H
