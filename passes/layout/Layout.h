//===- Layout.h - the layout phase ------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_LAYOUT_LAYOUT_H
#define GRIDLOOM_PASSES_LAYOUT_LAYOUT_H

#include "passes/layout/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace gridloom {

struct LayoutOptions {
  /// Pads rows of matmul weights whose length in elements is a multiple of this; 0 pads none.
  int64_t padMultiple = 256;
  /// Elements after each padded row.
  int64_t padElements = 16;
  /// The target has a library for convolutions: they stay whole.
  bool convolutionLibrary = false;
  /// The target has one for f32 convolutions that are no gradients: these stay whole, except in
  /// training steps.
  bool forwardConvolutions = false;
  /// Merges products of one left operand with several weights.
  bool mergeMatmuls = false;
  /// Stores weights that products sum over the last dimension of with that dimension first, which
  /// the target's library reads faster.
  bool turnWeights = false;
};

/// Chooses physical layouts; `pm` is a module's.
void addLayoutPasses(mlir::OpPassManager &pm, const LayoutOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_LAYOUT_LAYOUT_H
