//===- PlanVerifier.h - bounds of a stage program ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Programs run without further checks, so these hold for a verified one: every index is valid,
// every buffer is inside its space, every access of a library call is inside its buffer, and sizes
// match. Accesses by kernels cannot be checked.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PLANVERIFIER_H
#define GRIDLOOM_RUNTIME_CORE_PLANVERIFIER_H

#include <string>

namespace gridloom::rt {

class Plan;

/// Checks the program of one stage against itself and the manifest; throws InvalidPlan with a line
/// that starts with `file`.
void verifyStage(const Plan &plan, int stage, const std::string &file);

/// Checks that stages' sends match their peers' receives.
void verifyTransfers(const Plan &plan, const std::string &file);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PLANVERIFIER_H
