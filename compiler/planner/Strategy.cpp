//===- Strategy.cpp - ways to use a mesh, and the choice among them ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Strategy.h"

#include "cluster/Presets.h"
#include "compiler/planner/Meshes.h"
#include "compiler/planner/Trials.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Loom.h"
#include "passes/shard/DeviceConfiguration.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/SearchLimits.h"
#include "passes/shard/StrategyFile.h"
#include "support/Candidates.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

#include <numeric>

using namespace mlir;
using namespace gridloom;

/// The most devices whose meshes the planner lists.
static constexpr int64_t kMaxPlanned = 4096;
/// Up to this many combinations of uses of a mesh's axes, all are tried.
static constexpr size_t kMaxCandidates = 64;
/// The most axes of a search; `auto` only searches meshes with fewer: time grows exponentially.
static constexpr size_t kMaxSearched = 4;
/// The most meshes without stages that are searched when the user gives none.
static constexpr size_t kMaxMeshes = 2;
/// The most stages that are searched when the user gives no mesh.
static constexpr int64_t kMaxSearchedStages = 8;
/// A table may have two copies if one takes at most this part of the memory: a search counts both
/// even where its readers could share one.
static constexpr int64_t kTableShare = 8;

namespace {
enum class Use { Data, Tensor, Pipeline, Search, Random, Any };
} // namespace

static Use getUse(StringRef axis) {
  if (axis == "data" || axis == "batch")
    return Use::Data;
  if (axis == "model" || axis == "tensor")
    return Use::Tensor;
  if (axis == "pipe" || axis == "stage")
    return Use::Pipeline;
  return Use::Any;
}

double TrialPlan::getSeconds() const {
  double seconds = 0;
  for (const sim::ProgramRun &run : runs)
    seconds += run.seconds;
  return seconds;
}

double TrialPlan::getExposedSeconds() const {
  double milliseconds = 0;
  for (const sim::ProgramRun &run : runs)
    milliseconds += run.stats.exposed;
  return milliseconds / 1e3;
}

std::string Candidate::describe() const {
  switch (verdict) {
  case Verdict::Open:
    return "";
  case Verdict::Chosen:
    return "chosen";
  case Verdict::Slower:
    return isExtrapolated ? "slower, extrapolated" : "slower";
  case Verdict::Refused:
    return refusal;
  case Verdict::Left:
    return kLeftVerdict;
  }
  llvm_unreachable("a candidate without a verdict");
}

std::string Choice::describe() const {
  if (candidates.size() < 2)
    return "";
  auto simulated =
      llvm::count_if(candidates, [](const Candidate &c) { return c.simulatedSeconds > 0; });
  auto measured =
      llvm::count_if(candidates, [](const Candidate &c) { return c.measuredSeconds > 0; });
  size_t left = countLeft();
  const Candidate *chosen = getChosen();
  bool isFastest = measured || !chosen || llvm::none_of(candidates, [&](const Candidate &c) {
                     return c.simulatedSeconds > 0 && c.simulatedSeconds < chosen->simulatedSeconds;
                   });
  std::string within = llvm::formatv("within {0:F1} % of the ", 100 * (kAsFast - 1));
  return (isFastest ? "" : within) + "fastest of " + std::to_string(candidates.size()) +
         " candidates, " + std::to_string(simulated) + " simulated" +
         (isFastest ? "" : ", and waits less for messages") +
         (measured ? ", " + std::to_string(measured) + " measured" : "") +
         (left ? ", " + std::to_string(left) + " left" : "");
}

size_t Choice::countLeft() const {
  return llvm::count_if(candidates, [](const Candidate &c) { return c.verdict == Verdict::Left; });
}

bool Choice::hasCutSearch() const {
  return llvm::any_of(candidates, [](const Candidate &c) { return c.options.limits->isCut; });
}

uint64_t Choice::countSteps() const {
  uint64_t steps = numLooks;
  for (const Candidate &candidate : candidates)
    steps += candidate.options.limits->rounds;
  return steps;
}

const Candidate *Choice::getChosen() const {
  for (const Candidate &candidate : candidates)
    if (candidate.verdict == Verdict::Chosen)
      return &candidate;
  return nullptr;
}

double Choice::getSumSeconds() const {
  const Candidate *chosen = getChosen();
  return chosen ? chosen->sumSeconds : 0;
}

void Choice::choose(Candidate &candidate) {
  for (Candidate &other : candidates)
    if (other.verdict == Verdict::Chosen)
      other.verdict = Verdict::Slower;
  candidate.verdict = Verdict::Chosen;
  options = candidate.options;
  name = candidate.name;
}

static Candidate makeCandidate(const MeshSpec &mesh, ArrayRef<Use> uses,
                               const StrategyRequest &request) {
  Candidate candidate;
  ShardOptions &options = candidate.options;
  options.mesh = print(mesh);
  options.shard = request.shard;
  options.stageAxis.clear();
  int64_t stages = 1;
  std::vector<std::string> words;
  for (auto [axis, use] : llvm::zip_equal(mesh, uses)) {
    if (use == Use::Data) {
      options.dp.push_back(axis.name);
      words.push_back("dp over " + axis.name);
    } else if (use == Use::Tensor) {
      options.tp.push_back(axis.name);
      words.push_back("tp over " + axis.name);
    } else if (use == Use::Search) {
      options.search.push_back(axis.name);
    } else if (use == Use::Random) {
      options.random.push_back(axis.name);
      words.push_back("random over " + axis.name);
    } else if (use == Use::Pipeline) {
      options.stageAxis = axis.name;
      stages = axis.size;
      words.push_back("pp over " + axis.name);
    }
  }
  if (!options.search.empty())
    words.emplace_back("search");
  // Micro-batches pay off only in a pipeline.
  options.microbatches =
      stages > 1 ? (request.microbatches ? request.microbatches : 2 * stages) : 1;
  candidate.name = (mesh.empty() ? "one device" : options.mesh + ": " + llvm::join(words, ", "));
  return candidate;
}

/// Whether a seed splits the batch over this axis of a mesh with micro-batches: a random split
/// leaves alone the dimension that micro-batches cut.
static bool splitsBatch(const AxisSpec &axis, uint64_t seed) {
  return llvm::xxh3_64bits(std::to_string(seed) + "/batch/" + axis.name) % 3 == 0;
}

/// The use an axis is named for.
static Use getUse(const AxisSpec &axis, const StrategyRequest &request) {
  return axis.name == request.stageAxis ? Use::Pipeline : getUse(axis.name);
}

/// The greatest common divisor of the functions' rows.
static int64_t countRows(ModuleOp module) {
  int64_t common = 0;
  for (auto func : module.getOps<func::FuncOp>())
    common = std::gcd(common, countRows(func));
  return common;
}

/// The largest number of micro-batches that divides the rows and is at most `most`.
static int64_t limitMicrobatches(ModuleOp module, int64_t most) {
  int64_t rows = countRows(module);
  while (rows % most != 0)
    --most;
  return most;
}

/// Whether the program can run in micro-batches.
static bool canCutBatch(ModuleOp module, const ShardOptions &options) {
  OwningOpRef<ModuleOp> copy = module.clone();
  ScopedDiagnosticHandler handler(module.getContext(), [](Diagnostic &) { return success(); });
  PassManager seed(module.getContext());
  addSeedPasses(seed, options);
  return succeeded(seed.run(*copy)) &&
         dist::getMesh(*copy).getAxisSize(dist::MeshOp::kMicroAxis) > 1;
}

/// Searches over all axes but the one for stages. Unless the user gives a number, tries one, two
/// and four micro-batches per stage, if the batch can be cut so: more keep stages busy, fewer leave
/// more rows to split.
static std::vector<Candidate> makeSearches(ModuleOp module, const MeshSpec &mesh,
                                           const StrategyRequest &request) {
  int64_t stages = 1;
  SmallVector<Use> uses;
  for (const AxisSpec &axis : mesh) {
    uses.push_back(getUse(axis, request) == Use::Pipeline ? Use::Pipeline : Use::Search);
    stages *= uses.back() == Use::Pipeline ? axis.size : 1;
  }
  std::vector<Candidate> candidates;
  auto add = [&](int64_t count) {
    candidates.push_back(makeCandidate(mesh, uses, request));
    Candidate &candidate = candidates.back();
    candidate.options.microbatches = count;
    if (count > 1)
      candidate.name += ", up to " + std::to_string(count) + " micro-batches";
  };
  if (stages == 1 || request.microbatches) {
    add(stages == 1 ? 1 : request.microbatches);
    return candidates;
  }
  llvm::SmallSetVector<int64_t, 3> counts;
  for (int64_t each : {1, 2, 4})
    counts.insert(limitMicrobatches(module, each * stages));
  llvm::for_each(counts, add);
  if (counts.size() > 1 && !canCutBatch(module, candidates.back().options))
    candidates.resize(1);
  return candidates;
}

/// The searches without stages. One splits over x alone, as many devices as divide the rows, and
/// leaves the others idle: small operations run as one if nothing is sent between them, which the
/// simulator knows and sums do not.
static std::vector<Candidate> makeWholeSearches(ModuleOp module, const cluster::Machine &machine,
                                                int64_t count, const StrategyRequest &request) {
  int64_t rows = std::gcd(countRows(module), count);
  std::vector<Candidate> candidates;
  for (const MeshSpec &mesh : makeSearchMeshes(machine, count, rows, /*mostAxes=*/3, kMaxMeshes))
    llvm::append_range(candidates, makeSearches(module, mesh, request));
  if (rows == 1 || rows == count)
    return candidates;
  MeshSpec mesh = {{"x", rows}, {"y", count / rows}};
  candidates.push_back(makeCandidate(mesh, {Use::Search, Use::Any}, request));
  candidates.back().name += " over x";
  return candidates;
}

/// The searches on all devices, and those with stages: one stage per block of the fastest links, or
/// a power of two up to that, so that stages send over the slower links. If all links are alike,
/// stages only pay off with micro-batches. Searches with stages are many, so they have two axes,
/// which takes a tenth of the time of three.
static std::vector<Candidate> makeFreeSearches(ModuleOp module, const cluster::Machine &machine,
                                               int64_t count, const StrategyRequest &request) {
  std::vector<Candidate> candidates = makeWholeSearches(module, machine, count, request);
  int64_t blocks = count / getFastBlock(machine, count);
  bool hasBatch = limitMicrobatches(module, 2 * kMaxSearchedStages) > 1;
  int64_t most = blocks > 1 || hasBatch ? std::max<int64_t>(blocks, 2) : 1;
  for (int64_t stages = 2; stages <= std::min(most, kMaxSearchedStages); ++stages) {
    if (count % stages != 0 || (!llvm::isPowerOf2_64(stages) && stages != blocks))
      continue;
    MeshSpec mesh = makeSearchMesh(machine, count / stages, /*mostAxes=*/2);
    mesh.insert(mesh.begin(), {request.stageAxis.empty() ? "pipe" : request.stageAxis, stages});
    llvm::append_range(candidates, makeSearches(module, mesh, request));
  }
  return candidates;
}

static size_t countStageAxes(const MeshSpec &mesh, const StrategyRequest &request) {
  return llvm::count_if(
      mesh, [&](const AxisSpec &axis) { return getUse(axis, request) == Use::Pipeline; });
}

/// The number of axes that a search would split over.
static size_t countSearched(const MeshSpec &mesh, const StrategyRequest &request) {
  return llvm::count_if(mesh, [&](const AxisSpec &axis) {
    return axis.size > 1 && getUse(axis, request) != Use::Pipeline;
  });
}

/// "random:SEED", for tests: splits at random over every axis not named for pipelines; beside a
/// pipeline, some axes split the batch.
static FailureOr<std::vector<Candidate>> makeRandom(ModuleOp module, const MeshSpec &mesh,
                                                    const StrategyRequest &request) {
  StringRef number = request.strategy;
  uint64_t seed;
  if (!number.consume_front("random:") || number.getAsInteger(10, seed)) {
    module.emitError("cannot read --strategy '")
        << request.strategy << "'; write random:SEED with a whole number, e.g. random:1";
    return failure();
  }
  bool isPipelined = countStageAxes(mesh, request) > 0;
  SmallVector<Use> uses = llvm::map_to_vector(mesh, [&](const AxisSpec &axis) {
    return getUse(axis, request) == Use::Pipeline   ? Use::Pipeline
           : isPipelined && splitsBatch(axis, seed) ? Use::Data
                                                    : Use::Random;
  });
  std::vector<Candidate> candidates{makeCandidate(mesh, uses, request)};
  candidates.front().options.seed = seed;
  return candidates;
}

namespace {
/// The kinds of parallelism that --strategy allows; all of them if `count` is 0.
struct Allowed {
  bool dp = false, tp = false, pp = false, sp = false;
  size_t count = 0;
};
} // namespace

static FailureOr<Allowed> parseStrategy(ModuleOp module, StringRef strategy) {
  Allowed allowed;
  SmallVector<StringRef> words;
  if (strategy != "auto")
    strategy.split(words, '+');
  for (StringRef word : words) {
    bool *flag = llvm::StringSwitch<bool *>(word)
                     .Case("dp", &allowed.dp)
                     .Case("tp", &allowed.tp)
                     .Case("pp", &allowed.pp)
                     .Case("sp", &allowed.sp)
                     .Default(nullptr);
    if (!flag) {
      module.emitError("unknown --strategy '")
          << word << "'; write auto, search, or dp, tp, sp and pp joined by '+', or random:SEED";
      return failure();
    }
    *flag = true;
  }
  allowed.count = words.size();
  return allowed;
}

/// The uses to try for an axis; only one if it has one device.
static SmallVector<Use> getChoices(const AxisSpec &axis, const Allowed &allowed,
                                   const StrategyRequest &request) {
  Use named = getUse(axis, request);
  SmallVector<Use> choices;
  if (allowed.count == 0) {
    choices =
        named == Use::Any ? SmallVector<Use>{Use::Data, Use::Tensor} : SmallVector<Use>{named};
  } else if (allowed.count == 1 || (allowed.count == 2 && allowed.tp && allowed.sp)) {
    // One strategy takes every axis but those named for pipelines.
    choices = {allowed.dp ? Use::Data : allowed.pp ? Use::Pipeline : Use::Tensor};
    if (named == Use::Pipeline)
      choices = {Use::Pipeline};
  } else if ((named == Use::Data && allowed.dp) || (named == Use::Tensor && allowed.tp) ||
             (named == Use::Pipeline && allowed.pp)) {
    choices = {named};
  } else {
    for (auto [wanted, use] : {std::pair(allowed.dp, Use::Data), std::pair(allowed.tp, Use::Tensor),
                               std::pair(allowed.pp, Use::Pipeline)})
      if (wanted)
        choices.push_back(use);
  }
  if (axis.size == 1)
    choices.truncate(1);
  return choices;
}

/// Combinations of one use per axis, with at most one pipeline. If there are more than
/// kMaxCandidates, axes that have a choice take their uses in order: data first, then tensor, then
/// pipeline.
static std::vector<SmallVector<Use>> combine(ModuleOp module, const MeshSpec &mesh,
                                             ArrayRef<SmallVector<Use>> choices) {
  size_t ways = 1;
  std::string names;
  for (auto [axis, uses] : llvm::zip_equal(mesh, choices))
    if (uses.size() > 1) {
      ways *= uses.size();
      names += (names.empty() ? "'" : ", '") + axis.name + "'";
    }
  bool inOrder = ways > kMaxCandidates;
  struct Combination {
    SmallVector<Use> uses;
    Use last = Use::Data; ///< of the axes that had a choice
  };
  std::vector<Combination> combinations(1);
  for (const SmallVector<Use> &uses : choices) {
    std::vector<Combination> next;
    for (const Combination &combination : combinations)
      for (Use use : uses) {
        bool hasChoice = uses.size() > 1;
        if ((use == Use::Pipeline && llvm::is_contained(combination.uses, use)) ||
            (inOrder && hasChoice && use < combination.last))
          continue;
        next.push_back(combination);
        next.back().uses.push_back(use);
        next.back().last = hasChoice ? use : combination.last;
      }
    combinations = std::move(next);
  }
  if (inOrder)
    module.emitRemark("axes ")
        << names << " may be used in more than " << kMaxCandidates << " ways; of these "
        << combinations.size()
        << " are tried, where the first axes split the batch; name axes data or model to choose";
  std::vector<SmallVector<Use>> result;
  for (Combination &combination : combinations)
    result.push_back(std::move(combination.uses));
  return result;
}

/// All combinations of the uses that the request allows.
static FailureOr<std::vector<Candidate>> enumerateUses(ModuleOp module, const MeshSpec &mesh,
                                                       const StrategyRequest &request) {
  if (StringRef(request.strategy).starts_with("random"))
    return makeRandom(module, mesh, request);
  if (request.strategy == "search") {
    if (countSearched(mesh, request) > kMaxSearched)
      return module.emitError("a search splits over at most ")
             << kMaxSearched << " axes, mesh '" << print(mesh) << "' has "
             << countSearched(mesh, request) << "; join axes, as in x=4 for a=2,b=2";
    if (countStageAxes(mesh, request) > 1)
      return module.emitError("the strategy 'search' cannot use mesh '")
             << print(mesh) << "'; a plan has one pipeline axis";
    return makeSearches(module, mesh, request);
  }
  FailureOr<Allowed> allowed = parseStrategy(module, request.strategy);
  if (failed(allowed))
    return failure();
  SmallVector<SmallVector<Use>> choices;
  for (const AxisSpec &axis : mesh)
    choices.push_back(getChoices(axis, *allowed, request));
  std::vector<Candidate> candidates;
  for (const auto &uses : combine(module, mesh, choices)) {
    candidates.push_back(makeCandidate(mesh, uses, request));
    candidates.back().options.sequence = allowed->sp;
    if (allowed->sp)
      candidates.back().name += ", sp";
  }
  // A search does not respect uses that axes are named for.
  bool isFree = llvm::all_of(mesh, [&](const AxisSpec &axis) {
    return llvm::is_contained({Use::Any, Use::Pipeline}, getUse(axis, request));
  });
  size_t searched = countSearched(mesh, request);
  if (request.strategy == "auto" && isFree && searched > 0 && searched < kMaxSearched &&
      countStageAxes(mesh, request) <= 1)
    llvm::append_range(candidates, makeSearches(module, mesh, request));
  if (candidates.empty()) {
    module.emitError("the strategy '") << request.strategy << "' cannot use mesh '" << print(mesh)
                                       << "'; a plan has one pipeline axis";
    return failure();
  }
  return candidates;
}

/// Whether one device has room for all weights and inputs, so that any split is likely to fit, or,
/// with `forAll`, for all values at once, so that any split is sure to.
static bool hasRoom(ModuleOp module, int64_t limit, bool forAll) {
  int64_t bytes = 0;
  auto add = [&](Value value) { bytes += loom::getByteSize(value.getType()); };
  for (auto func : module.getOps<func::FuncOp>()) {
    llvm::for_each(func.getArguments(), add);
    func.walk([&](Operation *op) {
      if (forAll || isa<loom::GetWeightOp>(op))
        llvm::for_each(op->getResults(), add);
    });
  }
  return bytes <= limit;
}

/// Completes a request with the mesh of the model's own annotations, if it has any.
static FailureOr<StrategyRequest> followAnnotations(ModuleOp module, StrategyRequest request) {
  if (failed(resolveMesh(module, request.mesh)))
    return failure();
  if (auto annotations = module->getAttrOfType<DictionaryAttr>(kAnnotations)) {
    request.mesh = annotations.getAs<StringAttr>("mesh").str();
    if (auto stageAxis = annotations.getAs<StringAttr>("stage_axis"))
      request.stageAxis = stageAxis.str();
  }
  return request;
}

/// Completes a request with the mesh of its strategy file.
static LogicalResult followFile(ModuleOp module, StrategyRequest &request) {
  const StrategyFile &file = *request.file;
  std::string who = "the strategy " + file.locate(0);
  FailureOr<MeshSpec> given = parseMesh(module, request.mesh);
  if (failed(given))
    return failure();
  if (!given->empty() && print(*given) != file.getMesh())
    return module.emitError("--mesh ")
           << request.mesh << " contradicts " << who << ", whose mesh is "
           << (file.mesh.empty() ? "one device" : file.getMesh())
           << "; leave --mesh out, or change 'mesh' in the file";
  if (request.microbatches && request.microbatches != file.microbatches)
    return module.emitError("--microbatches ")
           << request.microbatches << " contradicts " << who << ", which has " << file.microbatches
           << "; leave --microbatches out, or change 'microbatches' in the file";
  request.mesh = file.getMesh();
  return success();
}

/// The one candidate of a strategy file.
static Candidate makeCandidate(const StrategyRequest &request) {
  Candidate candidate;
  candidate.options.mesh = request.file->getMesh();
  candidate.options.shard = request.shard;
  candidate.options.stageAxis = request.file->stageAxis;
  candidate.options.microbatches = request.file->microbatches;
  candidate.options.file = request.file;
  candidate.name = (request.mesh.empty() ? "one device" : request.mesh) + ": as " +
                   request.file->locate(0) + " says";
  return candidate;
}

/// The request's mesh, or all meshes of the cluster's devices.
static FailureOr<std::vector<MeshSpec>> listMeshes(ModuleOp module,
                                                   const StrategyRequest &request) {
  if (!request.cluster || !request.mesh.empty() || request.file) {
    FailureOr<MeshSpec> mesh = parseMesh(module, request.mesh);
    if (failed(mesh))
      return failure();
    return std::vector<MeshSpec>{*mesh};
  }
  int64_t count = request.cluster->getNumDevices();
  if (count > kMaxPlanned)
    return module.emitError(request.clusterFlag)
           << " has " << count << " devices, more than the planner tries, " << kMaxPlanned
           << "; give a --mesh";
  return enumerateMeshes(count, request.strategy);
}

/// Training steps keep the micro-batches that they were built with. Their stages follow those of
/// the model, which no search prices, so only a mesh that names them has any.
static LogicalResult limitToTraining(ModuleOp module, const StrategyRequest &request,
                                     std::vector<Candidate> &candidates) {
  if (!module->hasAttr(loom::kTraining))
    return success();
  std::erase_if(candidates, [&](const Candidate &each) {
    return each.options.hasPipeline() && !request.file &&
           (request.mesh.empty() || !each.options.search.empty());
  });
  for (Candidate &candidate : candidates)
    candidate.options.microbatches = 1;
  if (!candidates.empty())
    return success();
  return module.emitError("no search cuts a training step into pipeline stages; leave --strategy "
                          "out for --mesh ")
         << request.mesh << ", or leave the stages out";
}

/// Keeps the candidates that support --zero, and sets it on them.
static LogicalResult splitStates(ModuleOp module, const StrategyRequest &request, int64_t devices,
                                 std::vector<Candidate> &candidates) {
  if (!request.zero || request.file)
    return success();
  std::erase_if(candidates, [](const Candidate &each) { return each.options.dp.empty(); });
  for (Candidate &candidate : candidates) {
    candidate.options.zero = request.zero;
    candidate.name += ", zero " + std::to_string(request.zero);
  }
  if (!candidates.empty())
    return success();
  InFlightDiagnostic error = module.emitError("--zero ")
                             << request.zero
                             << " splits states over the axes of data parallelism, and ";
  if (devices == 1)
    return error << "the program is for one device; give it a mesh with an axis data, e.g. --mesh "
                    "data=2";
  error << "the strategy '" << request.strategy << "' on ";
  if (request.mesh.empty())
    error << devices << " devices";
  else
    error << "mesh '" << request.mesh << "'";
  return error << " has none; name an axis data, e.g. --mesh data=2";
}

/// The machine of the mesh: the first devices of the request's cluster, or hosts of `kind`.
static FailureOr<cluster::Machine> placeMesh(ModuleOp module, const MeshSpec &mesh,
                                             const StrategyRequest &request) {
  int64_t count = countDevices(mesh);
  if (!request.cluster)
    return makeMachine(cluster::makeHosts(cluster::getUsualPreset(request.kind), count), count);
  if (request.cluster->getNumDevices() < count)
    return module.emitError("mesh ")
           << print(mesh) << " needs " << count << " devices; " << request.clusterFlag << " has "
           << request.cluster->getNumDevices();
  return makeMachine(*request.cluster, count);
}

/// Collects the least sum and the most axes of all candidates.
static BoundRequest makeBoundRequest(ModuleOp module, const Choice &choice,
                                     const StrategyRequest &request) {
  BoundRequest bound;
  bound.seconds = choice.getSumSeconds();
  for (const Candidate &candidate : choice.candidates) {
    if (candidate.sumSeconds > 0 && !candidate.isExtrapolated)
      bound.seconds = std::min(bound.seconds, candidate.sumSeconds);
    FailureOr<MeshSpec> mesh = parseMesh(module, candidate.options.mesh);
    if (succeeded(mesh))
      bound.mostAxes =
          std::max<size_t>(bound.mostAxes, llvm::count_if(*mesh, [&](const AxisSpec &axis) {
                             return axis.size > 1 && axis.name != candidate.options.stageAxis;
                           }));
  }
  bound.certifies = request.certifies;
  bound.isPinned = !request.shard.empty() || module->hasAttr(kAnnotations);
  bound.isOver = request.limits.isOver;
  return bound;
}

FailureOr<Choice> gridloom::chooseStrategy(ModuleOp module, const StrategyRequest &given) {
  StrategyRequest completed = given;
  if (given.file && failed(followFile(module, completed)))
    return failure();
  FailureOr<StrategyRequest> followed = followAnnotations(module, completed);
  if (failed(followed))
    return failure();
  const StrategyRequest &request = *followed;
  Choice choice;
  FailureOr<std::vector<MeshSpec>> meshes = listMeshes(module, request);
  if (failed(meshes))
    return failure();
  // All meshes have equally many devices.
  int64_t devices = countDevices(meshes->front());
  FailureOr<cluster::Machine> machine = placeMesh(module, meshes->front(), request);
  if (failed(machine))
    return failure();
  choice.machine = std::move(*machine);
  module->setAttr(dist::kCluster, dist::makeMachineAttr(module.getContext(), choice.machine));
  bool isFree = request.cluster && request.mesh.empty() && !request.file;
  int64_t count = isFree ? request.cluster->getNumDevices() : 1;
  if (request.file || (count > 1 && request.strategy == "search"))
    meshes->clear();
  if (request.file)
    choice.candidates.push_back(makeCandidate(request));
  for (const MeshSpec &mesh : *meshes) {
    FailureOr<std::vector<Candidate>> uses = enumerateUses(module, mesh, request);
    if (failed(uses))
      return failure();
    llvm::append_range(choice.candidates, *uses);
  }
  if (count > 1 && (request.strategy == "auto" || request.strategy == "search"))
    llvm::append_range(choice.candidates, makeFreeSearches(module, choice.machine, count, request));
  if (failed(limitToTraining(module, request, choice.candidates)) ||
      failed(splitStates(module, request, devices, choice.candidates)))
    return failure();
  choice.memoryLimit = request.memoryLimit;
  if (!choice.memoryLimit && (request.cluster || choice.candidates.size() > 1))
    choice.memoryLimit = choice.machine.getMemoryBytes();
  for (Candidate &candidate : choice.candidates) {
    candidate.options.searchMemory = request.memoryLimit;
    if (!candidate.options.search.empty())
      candidate.options.mostTableBytes = choice.memoryLimit ? choice.memoryLimit / kTableShare
                                                            : std::numeric_limits<int64_t>::max();
    candidate.options.limits = std::make_shared<SearchLimits>(
        SearchLimits{request.limits.isOver, request.limits.mostSteps});
  }
  Candidate &first = choice.candidates.front();
  bool mayNeedLess = !first.options.search.empty() && choice.memoryLimit &&
                     !hasRoom(module, choice.memoryLimit, /*forAll=*/request.memoryLimit > 0);
  if (choice.candidates.size() == 1 && !mayNeedLess) {
    choice.choose(first);
    return choice;
  }
  if (failed(pickCandidate(module, request, choice)))
    return failure();
  choice.bound =
      boundPlans(module, choice.machine, devices, makeBoundRequest(module, choice, request));
  return choice;
}
