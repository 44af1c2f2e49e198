//===- Strategy.cpp - ways to use a mesh, and the choice among them ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Strategy.h"

#include "passes/communicate/Communicate.h"
#include "passes/partition/Partition.h"
#include "passes/shard/DeviceConfiguration.h"
#include "runtime/core/MemoryNeeds.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace gridloom;

/// Of one axis, and of the meshes that the planner tries.
static constexpr int64_t kMostDevices = 1 << 20, kMostPlanned = 4096;

namespace {
enum class Use { Data, Tensor, Pipeline, Random, Any };

struct AxisSpec {
  std::string name;
  int64_t size;
};

using MeshSpec = std::vector<AxisSpec>;
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

static std::string print(const MeshSpec &mesh) {
  return llvm::join(
      llvm::map_range(
          mesh, [](const AxisSpec &axis) { return axis.name + "=" + std::to_string(axis.size); }),
      ",");
}

static FailureOr<MeshSpec> parseMesh(ModuleOp module, StringRef text) {
  MeshSpec mesh;
  for (StringRef part : llvm::split(text, ',')) {
    if (part.empty())
      continue;
    auto [name, number] = part.split('=');
    int64_t size;
    if (name.empty() || number.getAsInteger(10, size) || size < 1) {
      module.emitError("cannot read '")
          << part << "' in --mesh; write name=size, e.g. data=2,model=2";
      return failure();
    }
    if (size > kMostDevices) {
      module.emitError("--mesh has an axis '")
          << name << "' of " << size << " devices; the most are " << kMostDevices;
      return failure();
    }
    if (llvm::any_of(mesh, [&](const AxisSpec &axis) { return axis.name == name; })) {
      module.emitError("--mesh names axis '") << name << "' twice";
      return failure();
    }
    mesh.push_back({name.str(), size});
  }
  return mesh;
}

/// "8xH100-80GB" or "4": count and machine, `usual` where it is not named.
static FailureOr<std::pair<int64_t, Machine>> parseDevices(ModuleOp module, StringRef text,
                                                           const Machine &usual) {
  auto [number, name] = text.split('x');
  int64_t count;
  if (number.getAsInteger(10, count) || count < 1) {
    module.emitError("cannot read --devices '")
        << text << "'; write COUNT or COUNTxNAME, e.g. 4 or 8xH100-80GB";
    return failure();
  }
  if (count > kMostPlanned) {
    module.emitError("--devices ")
        << count << " are more than the planner tries, " << kMostPlanned << "; give a --mesh";
    return failure();
  }
  std::optional<Machine> machine = name.empty() ? usual : Machine::find(name);
  if (!machine) {
    module.emitError("--devices names '") << name << "'; known are " << Machine::listNames();
    return failure();
  }
  return std::make_pair(count, *machine);
}

/// All meshes of `count` devices over data, model and pipe.
static std::vector<MeshSpec> enumerateMeshes(int64_t count) {
  std::vector<MeshSpec> meshes;
  for (int64_t data = 1; data <= count; ++data) {
    if (count % data)
      continue;
    for (int64_t model = 1; model <= count / data; ++model) {
      if (count / data % model)
        continue;
      MeshSpec mesh;
      for (auto [name, size] : {std::pair("data", data), std::pair("model", model),
                                std::pair("pipe", count / data / model)})
        if (size > 1)
          mesh.push_back({name, size});
      meshes.push_back(mesh);
    }
  }
  return meshes;
}

static Candidate makeCandidate(const MeshSpec &mesh, ArrayRef<Use> uses,
                               const StrategyRequest &request) {
  Candidate candidate;
  ShardOptions &options = candidate.options;
  options.mesh = print(mesh);
  options.shard = request.shard;
  int64_t stages = 1;
  std::vector<std::string> words;
  for (auto [axis, use] : llvm::zip_equal(mesh, uses)) {
    if (use == Use::Data) {
      options.dp.push_back(axis.name);
      words.push_back("dp over " + axis.name);
    } else if (use == Use::Tensor) {
      options.tp.push_back(axis.name);
      words.push_back("tp over " + axis.name);
    } else if (use == Use::Random) {
      options.random.push_back(axis.name);
      words.push_back("random over " + axis.name);
    } else if (use == Use::Pipeline) {
      options.stageAxis = axis.name;
      stages = axis.size;
      words.push_back("pp over " + axis.name);
    }
  }
  // Micro-batches pay only where stages wait for each other.
  options.microbatches =
      stages > 1 ? (request.microbatches ? request.microbatches : 2 * stages) : 1;
  candidate.name = (mesh.empty() ? "one device" : options.mesh + ": " + llvm::join(words, ", "));
  return candidate;
}

/// "random:SEED", for tests: every axis but those named for pipelines splits at random.
static FailureOr<std::vector<Candidate>> makeRandom(ModuleOp module, const MeshSpec &mesh,
                                                    const StrategyRequest &request) {
  StringRef number = request.strategy;
  uint64_t seed;
  if (!number.consume_front("random:") || number.getAsInteger(10, seed)) {
    module.emitError("cannot read --strategy '")
        << request.strategy << "'; write random:SEED with a whole number, e.g. random:1";
    return failure();
  }
  SmallVector<Use> uses = llvm::map_to_vector(mesh, [](const AxisSpec &axis) {
    return getUse(axis.name) == Use::Pipeline ? Use::Pipeline : Use::Random;
  });
  std::vector<Candidate> candidates{makeCandidate(mesh, uses, request)};
  candidates.front().options.seed = seed;
  return candidates;
}

/// Every use the request allows for each axis, combined.
static FailureOr<std::vector<Candidate>> enumerateUses(ModuleOp module, const MeshSpec &mesh,
                                                       const StrategyRequest &request) {
  StringRef strategy = request.strategy;
  if (strategy.starts_with("random"))
    return makeRandom(module, mesh, request);
  SmallVector<StringRef> words;
  if (strategy != "auto")
    strategy.split(words, '+');
  bool dp = false, tp = false, pp = false, sp = false;
  for (StringRef word : words) {
    bool *flag = llvm::StringSwitch<bool *>(word)
                     .Case("dp", &dp)
                     .Case("tp", &tp)
                     .Case("pp", &pp)
                     .Case("sp", &sp)
                     .Default(nullptr);
    if (!flag) {
      module.emitError("unknown --strategy '")
          << word << "'; write auto, or dp, tp, sp and pp joined by '+', or random:SEED";
      return failure();
    }
    *flag = true;
  }
  std::vector<SmallVector<Use>> combinations = {{}};
  for (const AxisSpec &axis : mesh) {
    SmallVector<Use> choices;
    Use named = axis.name == request.stageAxis ? Use::Pipeline : getUse(axis.name);
    if (words.empty()) {
      choices =
          named == Use::Any ? SmallVector<Use>{Use::Data, Use::Tensor} : SmallVector<Use>{named};
    } else if (words.size() == 1 || (words.size() == 2 && tp && sp)) {
      // One strategy takes every axis but those named for pipelines.
      choices = {dp ? Use::Data : pp ? Use::Pipeline : Use::Tensor};
      if (named == Use::Pipeline)
        choices = {Use::Pipeline};
    } else {
      bool allowed = (named == Use::Data && dp) || (named == Use::Tensor && tp) ||
                     (named == Use::Pipeline && pp);
      if (allowed)
        choices = {named};
      else
        for (auto [wanted, use] :
             {std::pair(dp, Use::Data), std::pair(tp, Use::Tensor), std::pair(pp, Use::Pipeline)})
          if (wanted)
            choices.push_back(use);
    }
    std::vector<SmallVector<Use>> next;
    for (const auto &combination : combinations)
      for (Use use : choices)
        if (use != Use::Pipeline || !llvm::is_contained(combination, Use::Pipeline)) {
          next.push_back(combination);
          next.back().push_back(use);
        }
    combinations = std::move(next);
  }
  std::vector<Candidate> candidates;
  for (const auto &uses : combinations) {
    candidates.push_back(makeCandidate(mesh, uses, request));
    candidates.back().options.sequence = sp;
  }
  if (candidates.empty()) {
    module.emitError("the strategy '") << request.strategy << "' has no use for mesh '"
                                       << print(mesh) << "'; a plan has one pipeline axis";
    return failure();
  }
  return candidates;
}

/// Runs the candidate's phases on a copy and estimates it. Its diagnostics become the verdict.
static void evaluate(ModuleOp module, Candidate &candidate, const Machine &machine) {
  OwningOpRef<ModuleOp> copy = module.clone();
  std::string firstError;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && firstError.empty()) {
      std::string node = loom::getNodeName(diagnostic.getLocation());
      bool isNode = !node.empty() && diagnostic.getLocation() != module.getLoc();
      firstError = (isNode ? "node '" + node + "': " : "") + diagnostic.str();
    }
    return success(); // a trial is not the user's business
  });
  PassManager pm(module.getContext());
  addShardPasses(pm, candidate.options);
  addPartitionPasses(pm);
  addCommunicatePasses(pm);
  if (failed(pm.run(*copy))) {
    candidate.verdict = firstError.empty() ? "cannot be compiled" : firstError;
    return;
  }
  for (const Estimate &estimate : estimate(*copy, machine)) {
    candidate.step += estimate.step;
    candidate.memoryBytes =
        std::max(candidate.memoryBytes, estimate.weightBytes + estimate.activationBytes);
  }
}

static LogicalResult pick(ModuleOp module, std::vector<Candidate> &candidates,
                          const Machine &machine, int64_t limit, Choice &choice) {
  Candidate *best = nullptr;
  for (Candidate &candidate : candidates) {
    evaluate(module, candidate, machine);
    if (!candidate.verdict.empty())
      continue;
    if (limit && candidate.memoryBytes > limit) {
      candidate.verdict = "needs " + rt::formatBytes(uint64_t(candidate.memoryBytes), "B") +
                          " per device, the limit is " + rt::formatBytes(uint64_t(limit), "B");
      continue;
    }
    if (!best || candidate.step < best->step)
      best = &candidate;
  }
  if (!best && candidates.size() == 1)
    return module.emitError(candidates.front().name)
           << ": " << candidates.front().verdict
           << "; split over more devices, or raise --memory-limit";
  if (!best)
    return module.emitError("no way to use the devices works; the last one tried, ")
           << candidates.back().name << ": " << candidates.back().verdict;
  for (Candidate &candidate : candidates)
    if (candidate.verdict.empty())
      candidate.verdict = &candidate == best ? "chosen" : "slower";
  choice.options = best->options;
  choice.name = best->name;
  return success();
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

FailureOr<Choice> gridloom::chooseStrategy(ModuleOp module, const StrategyRequest &given) {
  FailureOr<StrategyRequest> followed = followAnnotations(module, given);
  if (failed(followed))
    return failure();
  const StrategyRequest &request = *followed;
  Choice choice;
  choice.machine = Machine::of(request.target);
  std::vector<MeshSpec> meshes;
  if (!request.devices.empty()) {
    FailureOr<std::pair<int64_t, Machine>> devices =
        parseDevices(module, request.devices, choice.machine);
    if (failed(devices))
      return failure();
    choice.machine = devices->second;
    if (request.mesh.empty())
      meshes = enumerateMeshes(devices->first);
  }
  if (meshes.empty()) {
    FailureOr<MeshSpec> mesh = parseMesh(module, request.mesh);
    if (failed(mesh))
      return failure();
    meshes.push_back(*mesh);
  }
  for (const MeshSpec &mesh : meshes) {
    FailureOr<std::vector<Candidate>> uses = enumerateUses(module, mesh, request);
    if (failed(uses))
      return failure();
    llvm::append_range(choice.candidates, *uses);
  }
  if (choice.candidates.size() == 1 && !request.memoryLimit) {
    choice.options = choice.candidates.front().options;
    choice.name = choice.candidates.front().name;
    choice.candidates.front().verdict = "chosen";
    return choice;
  }
  int64_t limit = request.memoryLimit ? request.memoryLimit : choice.machine.memoryBytes;
  if (failed(pick(module, choice.candidates, choice.machine, limit, choice)))
    return failure();
  return choice;
}
