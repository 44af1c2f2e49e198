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

/// The steps of all programs, summed by name, node and stage; a program's most expensive first.
llvm::json::Array describeSteps(std::span<const sim::ProgramRun> runs);

/// Times of a step of each program, in milliseconds.
llvm::json::Array describePrograms(std::span<const sim::ProgramRun> runs);

/// Bytes of a device of a stage, as in `inspect memory`.
llvm::json::Object describeNeeds(int64_t stage, const rt::MemoryNeeds &needs);

/// Times of each stage in a step of each program, in milliseconds, and its memory, in bytes.
llvm::json::Array describeStages(std::span<const sim::ProgramRun> runs,
                                 std::span<const StageMemory> memory);

/// Times of collectives in simulated runs.
class CollectiveTimes {
public:
  explicit CollectiveTimes(std::span<const sim::ProgramRun> runs);
  /// How often a step runs the collective at most: a plan's own count leaves loops out.
  int64_t countRuns(const rt::PlannedCollective &collective) const;
  /// Sets how often it runs, and adds, in microseconds over all runs: its time, the part of that in
  /// which nothing computes, the time in which nothing computes because it waits for another stage,
  /// and the computation that hides most of it.
  void addTo(llvm::json::Object &object, const rt::PlannedCollective &collective) const;

private:
  struct Time {
    int64_t times;
    double seconds, exposed, waiting;
    llvm::json::Array hiddenBehind;
  };
  /// Null if the collective is in a branch of which the other body is simulated.
  const Time *find(const rt::PlannedCollective &collective) const;

  std::map<std::tuple<std::string, std::string, int64_t, std::string>, Time> times;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_SIMULATEDCOSTS_H
