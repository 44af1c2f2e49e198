//===- Training.h - names in programs that train ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_TRAINING_H
#define GRIDLOOM_DIALECTS_LOOM_TRAINING_H

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom::loom {

/// Entries.
inline constexpr llvm::StringLiteral kMain = "main";
inline constexpr llvm::StringLiteral kTrainStep = "train_step";
inline constexpr llvm::StringLiteral kEval = "eval";

/// On an argument that is a state or a setting of a training run: one of the following.
inline constexpr llvm::StringLiteral kRole = "loom.role";
inline constexpr llvm::StringLiteral kParameter = "parameter"; ///< begins with a weight
inline constexpr llvm::StringLiteral kMoment = "moment";       ///< of the optimizer, by parameter
inline constexpr llvm::StringLiteral kStatistic =
    "statistic";                                           ///< begins with a weight; no gradient
inline constexpr llvm::StringLiteral kCounter = "counter"; ///< a number
inline constexpr llvm::StringLiteral kSetting = "setting"; ///< an input: the learning rate
/// On a module that was imported to be trained, until the training step is added.
inline constexpr llvm::StringLiteral kTrains = "loom.trains";
/// On a function of a part of a batch: {name, parts}, of the batch's dimension and how many make
/// it.
inline constexpr llvm::StringLiteral kBatch = "loom.batch";
/// On an input that holds labels: a list of {loss, classes, ignored}, of each loss that reads it,
/// how many classes it knows, and the label of rows that count for nothing, where there is one.
inline constexpr llvm::StringLiteral kLabels = "loom.labels";
/// On an addition of a part's gradient to those of the parts before it: the parameter's name.
inline constexpr llvm::StringLiteral kAccumulates = "loom.accumulates";
/// On the operation of a training step that makes a parameter's gradient, of the mean over the
/// batch and before clipping: the parameter's name. For those who judge steps; where a phase
/// replaces the operation, nothing takes its place.
inline constexpr llvm::StringLiteral kGradientOf = "loom.gradient_of";
/// On a read of a weight that training leaves alone: why.
inline constexpr llvm::StringLiteral kFrozen = "loom.frozen";

/// Whether the value is a weight of the model: read from its file, or a state that began so; or
/// either of them in another type, as it is computed with.
bool isWeight(mlir::Value value);
/// Whether the function is a training step.
bool isTrainStep(mlir::func::FuncOp function);
/// Where the derivative of what is located at `of` is located: at NODE.grad, within which `of` is.
mlir::Location getGradientLocation(mlir::Location of);
/// What an operation at `location` is a part of the derivative of; nothing for other operations.
std::optional<mlir::Location> getDifferentiated(mlir::Location location);

/// Whether the value is a state or a setting of a training run: it has no batch.
bool isOfTraining(mlir::Value value);
/// Whether the value is a state of a training step that is one number. Where it is read in another
/// pipeline stage than its own it is sent there; larger states are read in their own stage.
bool isSentState(mlir::Value value);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_TRAINING_H
