//===- ShardPipeline.cpp - passes of the shard phase ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Shard.h"
#include "passes/shard/StrategyFile.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Pass/PassManager.h"

using namespace gridloom;

/// Adds the passes after the user's pins if a strategy file decides everything else.
static void addFilePasses(mlir::OpPassManager &pm, const ShardOptions &options) {
  if (!options.file->unpack.empty()) {
    UnpackWeightsOptions only;
    for (const StrategyLine &line : options.file->unpack)
      only.only.push_back(line.key);
    pm.addPass(createUnpackWeights(only));
    pm.addPass(createHoistPrologue());
  }
  pm.addPass(createPinStages(options.file));
  pm.addPass(createAssignStages({options.stageAxis}));
  // After stages got their copies of weights and constants, each of which has its own sharding.
  pm.addPass(createPinShardings(options.file));
  pm.addPass(createPropagate());
  pm.addPass(createDeclareStorage());
  pm.addPass(createPinReductions(options.file));
  pm.addPass(createChooseSplits());
  pm.addPass(createVerifySharded());
}

/// Which tables have two copies; with a strategy file those whose second copy it names. With stages
/// a second copy is most often another stage's.
static CloneConstantsOptions listTables(const ShardOptions &options) {
  CloneConstantsOptions clones;
  if (options.hasPipeline())
    return clones;
  if (options.mostTableBytes) {
    clones.tables = {"*"};
    clones.mostBytes = options.mostTableBytes;
  }
  if (!options.file)
    return clones;
  auto addNamed = [&](const StrategyTable &decisions) {
    for (const StrategyLine &line : decisions[StrategySection::Weights])
      if (auto [name, number] = llvm::StringRef(line.key).rsplit('#'); number == "2")
        clones.tables.push_back(name.str());
  };
  addNamed(options.file->common);
  for (const StrategyException &specialisation : options.file->specialisations)
    addNamed(specialisation.table);
  return clones;
}

/// Adds the mesh and the user's pins.
static void addUserPasses(mlir::OpPassManager &pm, const ShardOptions &options) {
  pm.addPass(createInsertMesh({options.mesh}));
  pm.addPass(createCloneConstants(listTables(options)));
  // Pinned shardings are closed before the strategy runs, so that it cannot change them.
  pm.addPass(
      createApplyAnnotations({{options.shard.begin(), options.shard.end()}, options.stageAxis}));
}

void gridloom::addSeedPasses(mlir::OpPassManager &pm, const ShardOptions &options) {
  addUserPasses(pm, options);
  if (!options.tp.empty() || !options.search.empty()) {
    pm.addPass(createUnpackWeights());
    pm.addPass(createHoistPrologue()); // the parts of weights
  }
  pm.addPass(createApplyStrategy({{options.dp.begin(), options.dp.end()},
                                  {options.tp.begin(), options.tp.end()},
                                  options.vocab,
                                  options.sequence,
                                  options.microbatches,
                                  /*onlyGiven=*/!options.search.empty(),
                                  options.explains}));
  if (options.zero && !options.dp.empty())
    pm.addPass(createSplitStates({{options.dp.begin(), options.dp.end()}, options.zero}));
}

void gridloom::addShardPasses(mlir::OpPassManager &pm, const ShardOptions &options) {
  if (options.file) {
    addUserPasses(pm, options);
    return addFilePasses(pm, options);
  }
  addSeedPasses(pm, options);
  std::string cutAxis = options.mergesStages ? "" : options.stageAxis;
  if (!options.search.empty())
    pm.addPass(createSearchSplits({.axes = {options.search.begin(), options.search.end()},
                                   .stageAxis = cutAxis,
                                   .memory = options.searchMemory,
                                   .hiddenShare = options.hiddenShare},
                                  options.searched, options.limits, options.prices));
  if (!options.random.empty())
    pm.addPass(createSeedRandomly({{options.random.begin(), options.random.end()}, options.seed}));
  // Before every value gets its final sharding, since each stage gets copies of constants and
  // weights.
  pm.addPass(createAssignStages({cutAxis}));
  pm.addPass(createPropagate({options.explains}));
  // Random shardings and searches may leave an axis unused.
  if (options.random.empty() && options.search.empty())
    pm.addPass(createRequireUsedAxes({options.stageAxis, {options.tp.begin(), options.tp.end()}}));
  pm.addPass(createDeclareStorage());
  // Last: nothing after this phase decides how work is split.
  pm.addPass(createChooseSplits());
  pm.addPass(createVerifySharded());
}
