//===- FusePipeline.cpp - passes of the fuse phase ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/Fuse.h"

#include "mlir/Transforms/Passes.h"

void gridloom::addFusePasses(mlir::OpPassManager &pm, const FuseOptions &options) {
  pm.addPass(createNormalizeViews());
  if (options.attentionLibrary) {
    pm.addPass(createFormAttention());
    // Prepares the layers' masks only once.
    pm.addPass(mlir::createCSEPass());
  }
  pm.addPass(createFormConvolutions({options.convolutionEpilogues}));
  pm.addPass(createChannelsLast({options.channelsLast}));
  pm.addPass(createExpandContractions());
  pm.addPass(createFormMatmuls(
      {options.activationEpilogues, options.residualEpilogues, options.rowProducts}));
  pm.addPass(createFormKernels());
  pm.addPass(createVerifyFused());
}
