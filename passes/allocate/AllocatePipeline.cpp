//===- AllocatePipeline.cpp - passes of the allocate phase ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Allocate.h"

void gridloom::addAllocatePasses(mlir::OpPassManager &pm) {
  pm.addPass(createAllocateBuffers());
  // Checks offsets alone, whatever led to them, with one more iteration of repeats.
  pm.addPass(createVerifyAllocated());
}
