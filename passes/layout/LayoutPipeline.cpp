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
  pm.addPass(createDecomposeConvolutions(decompose));
  if (options.mergeMatmuls)
    pm.addPass(createMergeMatmuls());
  pm.addPass(createAssignLayouts(assign));
  pm.addPass(createVerifyLayouts());
}
