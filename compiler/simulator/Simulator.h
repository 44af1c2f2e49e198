//===- Simulator.h - runs of programs on a cluster --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs the scheduled programs of all stages on the machine that the module names. All ranks of a
// stage do the same at the same time, so one of them is simulated; levels of links have the
// bandwidth that is left to a device when all communicate alike. Not simulated are the launching
// host, which is taken to be ahead of its device, conditions, which take no time to read, cores
// that copying takes from a rank's own work, and memory bandwidth that ranks share.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_SIMULATOR_H
#define GRIDLOOM_COMPILER_SIMULATOR_SIMULATOR_H

#include "compiler/simulator/MeasuredCosts.h"
#include "compiler/simulator/Runs.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom::sim {

/// Simulates every specialisation of a module's allocated programs. `measured` times, from a run's
/// trace, replace estimates; may be null. Fails, with an error, if stages wait for each other
/// forever, or if `measured` times none of the steps.
llvm::FailureOr<std::vector<ProgramRun>> simulate(mlir::ModuleOp module,
                                                  const MeasuredCosts *measured = nullptr);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_SIMULATOR_H
