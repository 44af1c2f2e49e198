//===- LayoutPipeline.cpp - passes of the layout phase --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/layout/Layout.h"

void gridloom::addLayoutPasses(mlir::OpPassManager &pm, const LayoutOptions &options) {
  AssignLayoutsOptions assign;
  assign.padMultiple = options.padMultiple;
  assign.padElements = options.padElements;
  DecomposeConvolutionsOptions decompose;
  decompose.keepLibrary = options.convolutionLibrary;
  decompose.keepForward = options.forwardConvolutions;
  // First: what a convolution becomes reads weights, and its products can be merged.
  pm.addPass(createDecomposeConvolutions(decompose));
  pm.addPass(createSliceWeights());
  // A merged weight is a new one, so this comes before weights get their layouts; after
  // partitioning, so that each device merges its own shards.
  if (options.mergeMatmuls)
    pm.addPass(createMergeMatmuls());
  if (options.turnWeights)
    pm.addPass(createTurnWeights());
  // Last: a layout depends on all that reads the weight.
  pm.addPass(createAssignLayouts(assign));
  pm.addPass(createVerifyLayouts());
}
