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
inline constexpr llvm::StringLiteral kMoment = "moment";       ///< of the optimizer, per parameter
inline constexpr llvm::StringLiteral kStatistic =
    "statistic";                                           ///< begins with a weight; no gradient
inline constexpr llvm::StringLiteral kCounter = "counter"; ///< a scalar
inline constexpr llvm::StringLiteral kSetting = "setting"; ///< an input, such as the learning rate
/// On a module imported for training, until the training step is added.
inline constexpr llvm::StringLiteral kTrains = "loom.trains";
/// On a function of a part of a batch: {name, parts}, the batch's dimension and the number of
/// parts.
inline constexpr llvm::StringLiteral kBatch = "loom.batch";
/// On an input that holds labels: a list of {loss, classes, ignored}, for each loss that reads it,
/// with its number of classes, and the label of rows that do not count, if any.
inline constexpr llvm::StringLiteral kLabels = "loom.labels";
/// On an addition of a part's gradient to those of earlier parts: the parameter's name.
inline constexpr llvm::StringLiteral kAccumulates = "loom.accumulates";
/// On the operation of a training step that makes a parameter's gradient, that of the mean over the
/// batch and before clipping: the parameter's name. For analyses of steps; if a phase replaces the
/// operation, the mark is lost.
inline constexpr llvm::StringLiteral kGradientOf = "loom.gradient_of";
/// On a read of a weight that training leaves unchanged: why, which is one of the next two.
inline constexpr llvm::StringLiteral kFrozen = "loom.frozen";
inline constexpr llvm::StringLiteral kFrozenConstant = "constant"; ///< of a Constant node
inline constexpr llvm::StringLiteral kFrozenStatistic = "statistics";

/// Whether the value is a weight of the model, read from its file or a state that began so, or a
/// conversion of one to the type it is computed in.
bool isWeight(mlir::Value value);
/// Whether the function is a training step.
bool isTrainStep(mlir::func::FuncOp function);
/// The location of the derivative of what is located at `of`: NODE.grad, with `of` inside.
mlir::Location getGradientLocation(mlir::Location of);
/// The location whose derivative an operation at `location` is part of; nullopt for others.
std::optional<mlir::Location> getDifferentiated(mlir::Location location);

/// Whether the value is a state or a setting of a training run, which has no batch.
bool isOfTraining(mlir::Value value);
/// Whether the value is a scalar state of a training step. If another pipeline stage than its own
/// reads it, it is sent there; larger states are read in their own stage.
bool isSentState(mlir::Value value);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_TRAINING_H
