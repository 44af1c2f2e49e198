//===- Survey.h - what can be trained of a model ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_SURVEY_H
#define GRIDLOOM_PASSES_TRAIN_SURVEY_H

#include "passes/train/SurveyData.h"
#include "passes/train/TrainStep.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom::train {

/// Reports what loom-add-train-step would train of a program, before that changes it and by the
/// same rules. Without losses in the settings, uses the loss that an output makes obvious, or else
/// the sums of all float outputs. The program stays unchanged. Fails with a diagnostic if the
/// losses do not fit the model.
llvm::LogicalResult surveyTraining(mlir::ModuleOp module, const TrainSettings &settings,
                                   TrainSurvey &survey);

/// The role of a weight, by the operations that read it.
std::string describeUse(llvm::ArrayRef<loom::GetWeightOp> reads);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_SURVEY_H
