//===- Weighing.cpp - estimates of a candidate before compiling -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Weighing.h"

#include "dialects/dist/Sharding.h"
#include "dialects/loom/FirstError.h"
#include "passes/communicate/Communicate.h"
#include "passes/partition/Partition.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace gridloom;

double Weighed::getSeconds() const {
  double seconds = 0;
  for (const Estimate &estimate : estimates)
    seconds += estimate.seconds;
  return seconds;
}

int64_t Weighed::getLeastBytes() const {
  int64_t bytes = 0;
  for (const Estimate &estimate : estimates)
    bytes = std::max(bytes, estimate.leastBytes);
  return bytes;
}

Weighed gridloom::weigh(ModuleOp module, ShardOptions options, const MemoryOptions &memory,
                        bool isWhole) {
  OwningOpRef<ModuleOp> copy = module.clone();
  Weighed weighed;
  options.explains = false;
  loom::FirstErrorHandler handler(module.getContext(), weighed.refusal,
                                  loom::getNodeName(module.getLoc()));
  PassManager pm(module.getContext());
  pm.enableVerifier(false); // the phases verify the program themselves
  addShardPasses(pm, options);
  addPartitionPasses(pm);
  addCommunicatePasses(pm, memory.communicate);
  if (failed(pm.run(*copy))) {
    if (weighed.refusal.empty())
      weighed.refusal = "cannot be compiled";
    return weighed;
  }
  weighed.estimates = estimate(*copy);
  if (options.hasPipeline())
    weighed.stages = dist::getMesh(*copy).getAxisSize(options.stageAxis);
  if (!isWhole)
    return weighed;
  // Errors are reported by the phases when the candidate is tried out.
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  if (failed(fuseCommunicated(*copy, memory)))
    return weighed;
  weighed.fused = copy->clone();
  weighed.memory = estimateFused(*copy);
  return weighed;
}

double gridloom::extrapolateSeconds(const WeighedLayers &few, const WeighedLayers &more,
                                    int64_t layers) {
  double times =
      static_cast<double>(layers - more.count) / static_cast<double>(more.count - few.count);
  double seconds = 0;
  for (auto [less, all] : llvm::zip_equal(few.weighed.estimates, more.weighed.estimates))
    seconds +=
        (all.microSeconds + times * (all.microSeconds - less.microSeconds)) *
        (1 + static_cast<double>(all.microbatches - 1) / static_cast<double>(more.weighed.stages));
  return seconds;
}
