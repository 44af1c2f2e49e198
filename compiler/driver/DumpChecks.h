//===- DumpChecks.h - check dumps against model and mesh --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_DUMPCHECKS_H
#define GRIDLOOM_COMPILER_DRIVER_DUMPCHECKS_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// The module's attribute that names the phase which ran last.
inline constexpr llvm::StringLiteral kPhase = "loom.phase";

/// Why a compilation cannot start from phase `first` with the program in `file`: phases between
/// would be left out. By kPhase, or where the program was written by hand, by what is in it. Empty
/// if it can.
std::string findSkippedPhase(mlir::ModuleOp module, llvm::StringRef file, size_t first);

/// Checks a program that may have been edited or moved: that the mesh has every axis it names, and,
/// if `readsWeights`, that the model file with its weights exists. Fails with a diagnostic that
/// names the operation or the file.
llvm::LogicalResult checkDump(mlir::ModuleOp module, bool readsWeights = true);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_DUMPCHECKS_H
