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
  /// Rows of matmul weights whose length in elements is a multiple of this are padded; 0 pads none.
  int64_t padMultiple = 256;
  /// Elements after each padded row.
  int64_t padElements = 16;
  /// The target has a library of convolutions: they stay whole.
  bool convolutionLibrary = false;
  /// It has one of f32 convolutions, which are no gradients: these stay whole, but in training
  /// steps.
  bool forwardConvolutions = false;
  /// Products of one left operand and several weights become one.
  bool mergeMatmuls = false;
  /// Weights that products sum over the last dimension of are stored with that first, which the
  /// target's library reads faster.
  bool turnWeights = false;
};

/// Chooses physical layouts; `pm` is a module's.
void addLayoutPasses(mlir::OpPassManager &pm, const LayoutOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_LAYOUT_LAYOUT_H
