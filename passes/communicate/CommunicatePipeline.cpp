//===- CommunicatePipeline.cpp - passes of the communicate phase ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace gridloom;

void gridloom::addCommunicatePasses(mlir::OpPassManager &pm, const CommunicateOptions &options) {
  auto &func = pm.nest<mlir::func::FuncOp>();
  func.addPass(createJoinPartialSums());
  func.addPass(createFormReduceScatter());
  if (options.chunks > 1) {
    ChunkCollectiveMatmulOptions chunk;
    chunk.chunks = options.chunks;
    func.addPass(createChunkCollectiveMatmul(chunk));
  }
  func.addPass(createContiguousCollectives());
  func.addPass(createLowerShardSlices());
  BucketShardsOptions shards;
  shards.bucketSize = options.bucketBytes;
  func.addPass(createBucketShards(shards));
  CombineCollectivesOptions combine;
  combine.bucketSize = options.bucketBytes;
  func.addPass(createCombineCollectives(combine));
  // Rearranging leaves reshapes that fold; dead receives and slices go too.
  func.addPass(mlir::createCanonicalizerPass());
  func.addPass(createMergeEqual());
  // After equal ones were merged: these stay apart.
  GatherAgainOptions gathers;
  gathers.bucketSize = options.bucketBytes;
  func.addPass(createGatherAgain(gathers));
  func.addPass(createFormGroups());
  func.addPass(createVerifyCommunicated());
}
