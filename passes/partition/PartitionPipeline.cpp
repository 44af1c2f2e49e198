//===- PartitionPipeline.cpp - passes of the partition phase --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Partition.h"

#include "mlir/Pass/PassManager.h"

void gridloom::addPartitionPasses(mlir::OpPassManager &pm) {
  // One function still holds all stages: values that cross stages are resharded like others.
  pm.addPass(createInsertReshards());
  pm.addPass(createLowerReshards());
  pm.addPass(createLocalize());
  // On local shapes, so that sends and receives have the sizes that are transferred.
  pm.addPass(createSplitStages());
  pm.addPass(createVerifyPartitioned());
}
