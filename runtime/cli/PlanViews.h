//===- PlanViews.h - contents of a plan as documents ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H
#define GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H

#include "runtime/core/Plan.h"
#include "support/Document.h"

namespace gridloom::rt {

Document makeSummary(const Plan &plan);
Document makeCollectives(const Plan &plan);
Document makeMemory(const Plan &plan);
Document makeSchedule(const Plan &plan);
Document makeKernels(const Plan &plan);
Document makeWeights(const Plan &plan);
Document makeStates(const Plan &plan);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H
