//===- SimplifyPipeline.cpp - passes of the import and simplify phases ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Differentiate.h"
#include "passes/simplify/Simplify.h"
#include "passes/train/Train.h"

#include "mlir/Pass/PassManager.h"

using namespace gridloom;

void gridloom::addImportVerify(mlir::OpPassManager &pm) { pm.addPass(createVerifyImported()); }

static AddTrainStepOptions makeTrainStepOptions(const TrainOptions &options) {
  AddTrainStepOptions made;
  llvm::append_range(made.losses, options.losses);
  llvm::append_range(made.metrics, options.metrics);
  llvm::append_range(made.parameters, options.parameters);
  llvm::append_range(made.inits, options.inits);
  made.seed = options.seed.value_or(0);
  made.optimizer = options.optimizer;
  made.clip = options.clip;
  made.lossScale = options.lossScale;
  return made;
}

void gridloom::addRaisePasses(mlir::OpPassManager &pm) {
  pm.addPass(createFoldConstants());
  pm.addPass(createSeparateDims());
  pm.addPass(createCanonicalize());
  pm.addPass(createFoldConstants());
  // Composites are matched in canonical form, and leave dead parts behind.
  pm.addPass(createRaiseComposites());
  pm.addPass(createCanonicalize());
  pm.addPass(createFoldConstants());
}

void gridloom::addSimplifyPasses(mlir::OpPassManager &pm, const SimplifyOptions &options) {
  addRaisePasses(pm);
  // Composites have better derivatives than their parts.
  if (!options.gradientsOf.empty()) {
    DifferentiateOptions gradients;
    gradients.of = options.gradientsOf;
    llvm::append_range(gradients.withRespectTo, options.withRespectTo);
    pm.addPass(createDifferentiate(gradients));
  }
  if (options.train.isOn)
    pm.addPass(createAddTrainStep(makeTrainStepOptions(options.train)));
  if (!options.gradientsOf.empty() || options.train.isOn) {
    pm.addPass(createCanonicalize());
    pm.addPass(createFoldConstants());
  }
  pm.addPass(createFoldScales());
  pm.addPass(createFoldConstants()); // scales that are constants
  // After composites, which compute in f32 inside; before hoisting, so that conversions of weights
  // are hoisted, too.
  pm.addPass(createSetPrecision({options.precision}));
  pm.addPass(createFoldConstants()); // constants that are small enough in 16 bits
  // Last, so that what is hoisted is in its final form.
  pm.addPass(createHoistPrologue());
  pm.addPass(createVerifySimplified());
}
