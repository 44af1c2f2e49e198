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

/// Says what loom-add-train-step would train of a program that it is about to change, by the rules
/// that it goes by. Settings without losses are completed: by a loss that an output makes plain, or
/// else by the sums of all float outputs. The program stays as it is. Fails with a diagnostic where
/// the losses do not fit the model.
llvm::LogicalResult surveyTraining(mlir::ModuleOp module, const TrainSettings &settings,
                                   TrainSurvey &survey);

/// What a weight is for, by the operations that read it.
std::string describeUse(llvm::ArrayRef<loom::GetWeightOp> reads);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_SURVEY_H
