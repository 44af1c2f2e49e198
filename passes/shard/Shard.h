//===- Shard.h - the shard phase --------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SHARD_H
#define GRIDLOOM_PASSES_SHARD_SHARD_H

#include "dialects/loom/Loom.h"

#include "mlir/Pass/Pass.h"

#include <string>
#include <vector>

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/shard/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/shard/Passes.h.inc"

/// Options of the shard phase.
struct ShardOptions {
  std::string mesh;                ///< "data=2,model=2"; empty for one device
  std::vector<std::string> shard;  ///< NAME=[{axis},...]
  std::vector<std::string> dp, tp; ///< axes by use
  std::string stageAxis = "pipe";  ///< empty for no pipeline
  std::vector<std::string> search; ///< axes over which a solver splits
  int64_t searchMemory = 0;        ///< bytes that it may use of a device; 0: any
  std::vector<std::string> random; ///< axes for random shardings, from
  uint64_t seed = 0;
  bool vocab = true;
  bool sequence = false;
  int64_t microbatches = 1;

  bool hasPipeline() const { return !stageAxis.empty(); }
};

/// mesh, annotations, strategy, stages, propagation, splits, verification.
void addShardPasses(mlir::OpPassManager &pm, const ShardOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SHARD_H
