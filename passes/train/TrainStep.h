//===- TrainStep.h - a training step of a function --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_TRAINSTEP_H
#define GRIDLOOM_PASSES_TRAIN_TRAINSTEP_H

#include "passes/train/Clipping.h"
#include "passes/train/Initializers.h"
#include "passes/train/LossScale.h"
#include "passes/train/Objective.h"
#include "passes/train/Optimizers.h"
#include "passes/train/Parameters.h"
#include "passes/train/TrainOptions.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom::train {

/// The parsed options of `compile --train`.
struct TrainSettings {
  llvm::SmallVector<LossSpec> losses;
  llvm::SmallVector<MetricSpec> metrics;
  std::optional<Optimizer> optimizer;
  std::optional<ClipSpec> clip;
  std::optional<LossScaleSpec> lossScale; ///< null if it is off
  ParameterRules rules;
  InitRules inits;
  uint64_t seed = 0; ///< of inits
};

/// Parses the texts. Fails with a diagnostic at the module if one cannot be parsed, or if --param
/// or --init matches no weight.
llvm::FailureOr<TrainSettings> readSettings(mlir::ModuleOp module, const TrainOptions &options);

/// Weights that become states, with their roles.
using Trained = llvm::MapVector<mlir::StringAttr, llvm::StringRef>;

/// Turns a function, the model in training mode, into a training step. Adds its states to
/// `trained`. Fails with a diagnostic.
llvm::LogicalResult buildTrainStep(mlir::func::FuncOp function, const TrainSettings &settings,
                                   Trained &trained);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_TRAINSTEP_H
