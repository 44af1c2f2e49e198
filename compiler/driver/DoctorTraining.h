//===- DoctorTraining.h - report what can be trained ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_DOCTORTRAINING_H
#define GRIDLOOM_COMPILER_DRIVER_DOCTORTRAINING_H

#include "compiler/driver/Options.h"
#include "passes/train/SurveyData.h"

namespace gridloom {

/// Prints what `compile --train` would train of a model, what it would not, and what the file has
/// lost of the network. Adds a loss to the options if one is obvious, and --param for weights that
/// no gradient reaches. Returns the exit code: 1, with the error printed, if nothing can be
/// trained.
int examineTraining(CompileOptions &options, TrainSurvey &survey);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_DOCTORTRAINING_H
