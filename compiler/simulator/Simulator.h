//===- Simulator.h - runs of programs on a cluster --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs the scheduled programs of all stages on the machine that the module names. All ranks of a
// stage do the same at the same time, so one stands for all of them; levels of links have the
// bandwidth that is left to a device when all communicate alike. Not simulated are the launching
// host, which is taken to be ahead of its device, conditions, which are read in no time, cores that
// copying takes from a rank's own work, and memory bandwidth that ranks share.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_SIMULATOR_H
#define GRIDLOOM_COMPILER_SIMULATOR_SIMULATOR_H

#include "compiler/simulator/MeasuredCosts.h"
#include "compiler/simulator/Runs.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom::sim {

/// Runs every specialisation of a module's allocated programs. `measured`, of a run's trace, takes
/// the place of estimates; may be null. Fails, with an error on the program, where stages wait for
/// each other forever.
llvm::FailureOr<std::vector<ProgramRun>> simulate(mlir::ModuleOp module,
                                                  const MeasuredCosts *measured = nullptr);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_SIMULATOR_H
