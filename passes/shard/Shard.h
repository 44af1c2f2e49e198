//===- Shard.h - the shard phase --------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SHARD_H
#define GRIDLOOM_PASSES_SHARD_SHARD_H

#include "dialects/loom/Loom.h"

#include "mlir/Pass/Pass.h"

#include <memory>
#include <string>
#include <vector>

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/shard/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/shard/Passes.h.inc"

struct SearchLimits;
struct SearchMemo;
struct SplitPrices;
struct StrategyFile;

/// Module attribute with the names of the nodes whose packed weights were unpacked.
inline constexpr llvm::StringLiteral kUnpacked = "dist.unpacked";

/// Options of the shard phase.
struct ShardOptions {
  std::string mesh;                ///< "data=2,model=2"; empty for one device
  std::vector<std::string> shard;  ///< NAME=[{axis},...]
  std::vector<std::string> dp, tp; ///< axes by use
  std::string stageAxis = "pipe";  ///< empty for no pipeline
  std::vector<std::string> search; ///< axes over which a solver splits
  int64_t searchMemory = 0;        ///< bytes of a device for the search; 0: no limit
  double hiddenShare = 0;          ///< of the search: of messages that work can run beside
  /// Weights of up to so many bytes may have two copies if they are looked up and multiplied; 0:
  /// none.
  int64_t mostTableBytes = 0;
  /// The search's result, filled by the first search of this program with these options. May be
  /// null.
  std::shared_ptr<SearchMemo> searched;
  std::shared_ptr<SearchLimits> limits; ///< of the search; may be null
  /// Prices on this mesh, shared by successive searches of programs in one context; may be null.
  std::shared_ptr<SplitPrices> prices;
  std::vector<std::string> random; ///< axes for random shardings, drawn from `seed`
  uint64_t seed = 0;
  bool vocab = true;
  bool sequence = false;
  int64_t microbatches = 1;
  int64_t zero = 0;          ///< level of dist-split-states; 0: states stay as they are used
  bool mergesStages = false; ///< all operations in one stage, to look at a micro-batch as a whole
  bool explains = true;      ///< records why values are not split; trials need not
  /// Decides in place of `dp`, `tp` and `search`; its mesh, axis of stages and micro-batches are
  /// repeated above.
  std::shared_ptr<const StrategyFile> file;

  bool hasPipeline() const { return !stageAxis.empty(); }
};

/// Searches, or applies the memo's result.
std::unique_ptr<mlir::Pass> createSearchSplits(SearchSplitsOptions options,
                                               std::shared_ptr<SearchMemo> memo,
                                               std::shared_ptr<SearchLimits> limits,
                                               std::shared_ptr<SplitPrices> prices);

/// The passes that apply a strategy file.
std::unique_ptr<mlir::Pass> createPinStages(std::shared_ptr<const StrategyFile> given);
std::unique_ptr<mlir::Pass> createPinShardings(std::shared_ptr<const StrategyFile> given);
std::unique_ptr<mlir::Pass> createPinReductions(std::shared_ptr<const StrategyFile> given);

/// Adds mesh, annotations, and the seeds of a strategy without a file, micro-batches included.
void addSeedPasses(mlir::OpPassManager &pm, const ShardOptions &options);

/// Adds mesh, annotations, strategy, stages, propagation, splits, verification.
void addShardPasses(mlir::OpPassManager &pm, const ShardOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SHARD_H
