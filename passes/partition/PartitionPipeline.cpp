//===- PartitionPipeline.cpp - passes of the partition phase --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Partition.h"

#include "mlir/Pass/PassManager.h"

void gridloom::addPartitionPasses(mlir::OpPassManager &pm) {
  pm.addPass(createPartition());
  pm.addPass(createSplitStages());
  pm.addPass(createVerifyPartitioned());
}
