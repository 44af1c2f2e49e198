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
  /// The target has a library of attention in f16 and bf16.
  bool attentionLibrary = false;
  /// The target's library of matrix multiplications does activations.
  bool activationEpilogues = false;
  /// It adds residuals, too.
  bool residualEpilogues = false;
  /// Its library of convolutions adds residuals and does relu.
  bool convolutionEpilogues = true;
  /// It is faster with the channels last also in f32, and orders weights itself.
  bool channelsLast = false;
  /// The target has kernels for products of few rows.
  bool rowProducts = false;
};

/// Groups operations into kernels and library calls; `pm` is a module's.
void addFusePasses(mlir::OpPassManager &pm, const FuseOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_FUSE_H
