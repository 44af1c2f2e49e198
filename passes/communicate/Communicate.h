//===- Communicate.h - the communicate phase --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATE_H
#define GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATE_H

#include "dialects/loom/Loom.h"
#include "passes/communicate/CommunicateOptions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/communicate/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/communicate/Passes.h.inc"

/// Marks collectives that are one of several chunks; they are not combined.
inline constexpr llvm::StringLiteral kChunk = "dist.chunk";

/// Adds joined sums, reduce_scatters, chunks, contiguous data, combining, groups, verification.
void addCommunicatePasses(mlir::OpPassManager &pm, const CommunicateOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATE_H
