//===- PartitionPipeline.cpp - passes of the partition phase --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Partition.h"

#include "mlir/Pass/PassManager.h"

void gridloom::addPartitionPasses(mlir::OpPassManager &pm) {
  // One function still holds all stages: a value that crosses stages is resharded as any other.
  pm.addPass(createInsertReshards());
  pm.addPass(createLowerReshards());
  pm.addPass(createLocalize());
  // On local shapes, so that sends and receives are of the bytes that travel.
  pm.addPass(createSplitStages());
  pm.addPass(createVerifyPartitioned());
}
