//===- DumpChecks.h - check dumps against model and mesh --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_DUMPCHECKS_H
#define GRIDLOOM_COMPILER_DRIVER_DUMPCHECKS_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// Checks a program that may have been edited or moved: that the mesh has every axis it names, and,
/// if `readsWeights`, that the model file with its weights exists. Fails with a diagnostic that
/// names the operation or the file.
llvm::LogicalResult checkDump(mlir::ModuleOp module, bool readsWeights = true);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_DUMPCHECKS_H
