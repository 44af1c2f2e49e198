//===- SimulationVerbs.h - gridloom plan and gridloom simulate --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_SIMULATIONVERBS_H
#define GRIDLOOM_COMPILER_DRIVER_SIMULATIONVERBS_H

#include "compiler/driver/Simulation.h"
#include "support/OutputFormat.h"

namespace gridloom {

/// Options of `plan` and `simulate` for the output of a simulation.
struct OutcomeOptions {
  std::string folder; ///< of the report; empty: none
  std::string trace;  ///< file; empty: none
  std::string costs;  ///< trace of a run; empty: none
  OutputFormat format;
};

/// Adds the options; `--output` only if `hasFolder`.
void addOutcomeOptions(CLI::App &verb, OutcomeOptions &options, bool hasFolder);

/// Whether the files that are asked for may be written, before time is spent: nothing but an
/// earlier report or trace is replaced. Prints the error, in one line.
bool checkOutcome(const OutcomeOptions &options);

/// Prints the outcome and writes the files that are asked for. Returns the exit code.
int showOutcome(const PlanOutcome &outcome, const OutcomeOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_SIMULATIONVERBS_H
