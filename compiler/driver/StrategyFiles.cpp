//===- StrategyFiles.cpp - --strategy FILE, --save-strategy, planning -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Compilation.h"

#include "passes/shard/StrategyWriter.h"
#include "support/FileSwap.h"
#include "support/Text.h"

using namespace mlir;
using namespace gridloom;

static constexpr llvm::StringLiteral kSuffix = ".strategy";

/// Checks that the strategy may be saved, before time is spent.
LogicalResult Compilation::checkSaving() {
  size_t shard = *findPhase("shard");
  if (options.saveStrategy.empty())
    return success();
  if (!StringRef(options.saveStrategy).ends_with(kSuffix))
    fail("--save-strategy '" + options.saveStrategy + "' does not end in " + kSuffix +
         ", by which --strategy knows a file; call it '" + options.saveStrategy + kSuffix + "'");
  else if (first > shard || last < shard)
    fail("--save-strategy writes what the shard phase decides; this compilation does not run it");
  return failure(hadError);
}

/// Checks that there are known strategies for --no-seeds to leave out.
LogicalResult Compilation::checkSeeds() {
  if (options.seeds)
    return success();
  bool isSearch = options.strategy == "auto" || options.strategy == "search";
  if (first > *findPhase("shard"))
    fail("--no-seeds comes too late for --start-from " + options.startFrom +
         "; the program is split already");
  else if (!isSearch)
    fail("--no-seeds has a search decide alone, and --strategy " + options.strategy +
         " decides otherwise; leave one of them out");
  return failure(hadError);
}

/// Checks that options come before the phase that they concern.
LogicalResult Compilation::checkPlanning() {
  const CompileOptions usual;
  auto refuse = [&](const Twine &late, const Twine &reason) {
    fail(late + " too late for --start-from " + options.startFrom + "; " + reason);
    return failure();
  };
  if (options.unroll != usual.unroll && first > 0)
    return refuse("--unroll comes", "loops are unrolled on import");
  if (options.bucketSize != usual.bucketSize && first > *findPhase("communicate"))
    return refuse("--bucket-size comes", "communication is arranged already");
  SmallVector<StringRef> given;
  auto add = [&](bool isGiven, StringRef option) {
    if (isGiven)
      given.push_back(option);
  };
  add(options.strategy != usual.strategy, "--strategy");
  add(options.zero, "--zero");
  add(options.planTime >= 0, "--plan-time");
  add(options.planWork, "--plan-work");
  add(options.certifies, "--certify");
  add(options.weighsAll, "--weigh-all");
  add(options.jobs, "--jobs");
  if (given.empty() || first <= *findPhase("shard"))
    return success();
  return refuse(llvm::join(given, ", ") + (given.size() == 1 ? " comes" : " come"),
                "the program is split already");
}

/// What to do where the options leave one candidate.
std::string Compilation::suggestCandidates() const {
  if (strategy)
    return "leave --strategy " + options.strategy + " out";
  if (!cluster)
    return "give --devices, or a --mesh of axes such as x=2,y=2";
  return options.mesh.empty() ? "give more devices than " + getClusterFlag()
                              : "leave --mesh out, or give it axes such as x=2,y=2";
}

LogicalResult Compilation::checkStrategy() {
  if (failed(checkSaving()) || failed(checkSeeds()) || failed(checkPlanning()))
    return failure();
  if (!StringRef(options.strategy).ends_with(kSuffix))
    return success();
  strategy = std::make_shared<StrategyFile>();
  for (const std::string &problem : readStrategy(options.strategy, *strategy)) {
    messages << (hadError ? "note: " : "error: ") << makePrintable(problem) << "\n";
    hadError = true;
  }
  if (hadError)
    return failure();
  if (options.chunkMatmul && options.chunkMatmul != strategy->chunkMatmul) {
    fail("--chunk-matmul " + Twine(options.chunkMatmul) + " contradicts the strategy " +
         strategy->locate(0) + ", which has " +
         (strategy->chunkMatmul ? std::to_string(strategy->chunkMatmul) : "none") +
         "; leave --chunk-matmul out, or change 'chunk-matmul' in the file");
    return failure();
  }
  options.chunkMatmul = strategy->chunkMatmul;
  // The parts of a training step's batch are made on import. A file that says nothing of them
  // leaves them to the option.
  if (!options.train.isOn || strategy->microbatches == 1)
    return success();
  int64_t given = options.microbatches ? options.microbatches : options.train.accumulate;
  if (given && given != strategy->microbatches)
    fail((options.microbatches ? "--microbatches " : "--accumulate ") + Twine(given) +
         " contradicts the strategy " + strategy->locate(0) + ", which has " +
         Twine(strategy->microbatches) +
         "; leave the option out, or change 'microbatches' in the file");
  else if (!given)
    options.microbatches = strategy->microbatches;
  return failure(hadError);
}

void Compilation::identifyModel() {
  // The model of a dump may be gone.
  if (!readIdentity(getModelPath(), identity).empty())
    identity = ModelIdentity();
  if (!strategy)
    return;
  strategy->modelNames = identity.names;
  if (!strategy->graph.empty() && !identity.graph.empty() && strategy->graph != identity.graph)
    emitWarning(module->getLoc()) << "the strategy " << strategy->locate(0)
                                  << " was written for another graph, '" << strategy->model << "' "
                                  << strategy->graph << "; this one is '" << identity.name << "' "
                                  << identity.graph;
}

void Compilation::recordStrategy() {
  StrategyFile file = collectStrategy(*module);
  file.model = identity.name;
  file.graph = identity.graph;
  file.chunkMatmul = options.chunkMatmul;
  strategyText = printStrategy(file);
}

LogicalResult Compilation::saveStrategy() {
  if (options.saveStrategy.empty())
    return success();
  std::string reason = replaceFile(options.saveStrategy, {strategyText});
  if (!reason.empty())
    fail("cannot write '" + options.saveStrategy + "': " + reason);
  return success(reason.empty());
}
