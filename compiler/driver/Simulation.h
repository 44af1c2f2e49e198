//===- Simulation.h - results of plan and simulate --------------*- C++ -*-===//
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

/// Memory of a device of a stage, in bytes.
struct PlannedMemory {
  int64_t stage = 0;
  uint64_t estimated = 0; ///< before partitioning; 0: unknown
  rt::MemoryNeeds needs;  ///< as allocated
};

/// What `plan` and `simulate` found.
struct PlanOutcome {
  std::string model, mesh, machine, target, precision;
  std::string strategy;                  ///< empty if it was not chosen here
  std::string chosenAs;                  ///< "fastest of ..."; empty if there was nothing to choose
  std::vector<PlanCandidate> candidates; ///< the chosen one included
  uint64_t planSteps = 0;                ///< steps that planning took
  std::string stopped;                   ///< what ended planning early; empty: nothing did
  size_t left = 0;                       ///< candidates that there was no time to look at
  double boundMs = 0;                ///< no plan's sum is less; 0 if there was nothing to choose
  double sumMs = 0;                  ///< the chosen one's sum
  std::string boundScope;            ///< what the bound covers
  uint64_t memoryLimit = 0;          ///< bytes; 0: none
  std::vector<PlannedMemory> memory; ///< of all stages
  std::vector<std::string> warnings, remarks;
  std::vector<sim::ProgramRun> runs;
  /// More files for the folder of --output: name to contents.
  std::map<std::string, std::string> files;
};

struct SimulateOptions {
  std::string input;   ///< a plan's folder, or a dump of the schedule or allocate phase
  std::string cluster; ///< FILE, PRESET or PRESETxN; empty: the plan's own
  std::string costs;   ///< trace of a run; empty: none
};

/// Compiles up to allocation and simulates the result, with the times of the trace `costs` if that
/// is given; writes no plan. Errors go to `messages`, one a line. Returns the exit code.
int runPlan(const CompileOptions &options, const std::string &costs, PlanOutcome &outcome,
            std::ostream &messages = std::cerr);

/// Simulates a compiled plan. Errors go to standard error, one a line. Returns the exit code.
int runSimulate(const SimulateOptions &options, PlanOutcome &outcome);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_SIMULATION_H
