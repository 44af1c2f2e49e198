//===- Simulation.h - plans that are not compiled to the end ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR: filled by the compiler, printed by the command line.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_SIMULATION_H
#define GRIDLOOM_COMPILER_DRIVER_SIMULATION_H

#include "compiler/driver/Options.h"
#include "compiler/simulator/Runs.h"
#include "runtime/core/MemoryNeeds.h"
#include "support/Candidates.h"

#include <map>

namespace gridloom {

/// Bytes of a device of a stage.
struct PlannedMemory {
  int64_t stage = 0;
  uint64_t estimated = 0; ///< before partitioning; 0: not known
  rt::MemoryNeeds needs;  ///< as allocated
};

/// What `plan` and `simulate` found.
struct PlanOutcome {
  std::string model, mesh, machine, target, precision;
  std::string strategy;                  ///< empty where it was not chosen here
  std::string chosenAs;                  ///< "fastest of ..."; empty where nothing was to choose
  std::vector<PlanCandidate> candidates; ///< of which one was chosen
  uint64_t planSteps = 0;                ///< of the planner
  std::string stopped;                   ///< what ended planning early; empty: nothing did
  size_t left = 0;                       ///< candidates that there was no time for
  double boundMs = 0;                    ///< no plan's sum is less; 0 where nothing was to choose
  double sumMs = 0;                      ///< of the chosen one
  std::string boundScope;                ///< what the bound covers
  uint64_t memoryLimit = 0;              ///< bytes; 0: none
  std::vector<PlannedMemory> memory;     ///< of all stages
  std::vector<std::string> warnings, remarks;
  std::vector<sim::ProgramRun> runs;
  /// Further files for the folder of --output: name to contents.
  std::map<std::string, std::string> files;
};

struct SimulateOptions {
  std::string input;   ///< a plan's folder, or a dump of the schedule or allocate phase
  std::string cluster; ///< FILE, PRESET or PRESETxN; empty: the plan's own
  std::string costs;   ///< a run's trace; empty: none
};

/// Compiles up to allocation and simulates the result, with the times of the trace `costs` unless
/// that is empty; writes no plan. Errors go to `messages`, one a line. Returns the exit code.
int runPlan(const CompileOptions &options, const std::string &costs, PlanOutcome &outcome,
            std::ostream &messages = std::cerr);

/// Simulates a compiled plan. Errors go to standard error, one a line. Returns the exit code.
int runSimulate(const SimulateOptions &options, PlanOutcome &outcome);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_SIMULATION_H
