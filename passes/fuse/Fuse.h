//===- Fuse.h - the fuse phase ----------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_FUSE_H
#define GRIDLOOM_PASSES_FUSE_FUSE_H

#include "passes/fuse/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace gridloom {

struct FuseOptions {
  /// The target has a library for attention in f16 and bf16.
  bool attentionLibrary = false;
  /// The target's library for matrix multiplication applies activations.
  bool activationEpilogues = false;
  /// It also adds residuals.
  bool residualEpilogues = false;
  /// The target's library for convolutions adds residuals and applies relu.
  bool convolutionEpilogues = true;
  /// Calls of that library have channels last also in f32; it reorders weights itself.
  bool channelsLast = false;
  /// The target has kernels for products of few rows.
  bool rowProducts = false;
};

/// Adds the passes that group operations into kernels and library calls; `pm` is a module's.
void addFusePasses(mlir::OpPassManager &pm, const FuseOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_FUSE_H
