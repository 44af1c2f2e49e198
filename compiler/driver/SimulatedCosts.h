//===- SimulatedCosts.h - a simulated run in report.json --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_SIMULATEDCOSTS_H
#define GRIDLOOM_COMPILER_DRIVER_SIMULATEDCOSTS_H

#include "compiler/planner/AllocatedMemory.h"
#include "compiler/simulator/Runs.h"
#include "runtime/core/PlanQueries.h"

#include "llvm/Support/JSON.h"

namespace gridloom {

/// The steps of all programs, summed by what they do and for which node; a program's most expensive
/// first.
llvm::json::Array describeSteps(std::span<const sim::ProgramRun> runs);

/// What a step of each program takes, in milliseconds.
llvm::json::Array describePrograms(std::span<const sim::ProgramRun> runs);

/// Bytes of a device of a stage, as in `inspect memory`.
llvm::json::Object describeNeeds(int64_t stage, const rt::MemoryNeeds &needs);

/// What each stage does in a step of each program, in milliseconds, and what it keeps, in bytes.
llvm::json::Array describeStages(std::span<const sim::ProgramRun> runs,
                                 std::span<const StageMemory> memory);

/// What collectives took in simulated runs.
class CollectiveTimes {
public:
  explicit CollectiveTimes(std::span<const sim::ProgramRun> runs);
  /// Adds, in microseconds and over all its times: how long it takes, how much of that nothing
  /// computes beside it, how long nothing computes because it waits for another stage, and the
  /// computation that hides most of it.
  void addTo(llvm::json::Object &object, const rt::PlannedCollective &collective) const;

private:
  struct Time {
    double seconds, exposed, waiting;
    llvm::json::Array hiddenBehind;
  };
  std::map<std::tuple<std::string, std::string, int64_t, std::string>, Time> times;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_SIMULATEDCOSTS_H
