//===- Checker.h - what an assignment costs ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_CHECKER_H
#define GRIDLOOM_SOLVER_CHECKER_H

#include "compiler/solver/Problem.h"

namespace gridloom::solver {

/// What an assignment costs and uses by the problem's own tables.
struct Evaluation {
  Cost cost = 0;         // infiniteCost if a choice is forbidden
  int64_t peakUsage = 0; // over all times
  int64_t peakTime = 0;  // the first time with this usage
  std::string fault;     // the first violated constraint in one line; empty if feasible

  bool isFeasible() const { return fault.empty(); }
};

/// Recomputes everything from `problem`, without the solver's data, so that it checks the solver.
/// Any assignment may be given, also one with too few nodes or unknown strategies.
Evaluation evaluate(const Problem &problem, const Assignment &assignment);

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_CHECKER_H
