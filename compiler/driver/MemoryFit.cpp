//===- MemoryFit.cpp - plans that do not fit, and changes that do ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"
#include "compiler/driver/Compilation.h"
#include "compiler/driver/Ties.h"
#include "dialects/loom/FirstError.h"
#include "dialects/plan/Plan.h"
#include "support/Text.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace gridloom;

/// The largest factor by which something is changed.
static constexpr int64_t kMaxTimes = 16;

//===----------------------------------------------------------------------===//
// Memory of a program
//===----------------------------------------------------------------------===//

LogicalResult Compilation::compileFrom(size_t first, StringRef last, ModuleOp program,
                                       const ShardOptions &shard, std::string &error) const {
  loom::FirstErrorHandler handler(program.getContext(), error, options.input);
  PhaseContext phases = makePhaseContext(shard);
  phases.shard.explains = false;
  for (size_t i = first; i <= *findPhase(last); ++i) {
    PassManager pm(program.getContext());
    pm.enableVerifier(false); // the phases verify the program themselves
    getPhases()[i].addPasses(pm, phases);
    if (succeeded(pm.run(program)))
      continue;
    if (error.empty())
      error = ("phase " + getPhases()[i].name + " failed").str();
    return failure();
  }
  return success();
}

std::optional<TrialPlan> Compilation::tryPlan(ModuleOp simplified, const ShardOptions &shard,
                                              OwningOpRef<ModuleOp> fused,
                                              std::string &error) const {
  size_t first = fused ? *findPhase("fuse") + 1 : *findPhase("shard");
  OwningOpRef<ModuleOp> copy = fused ? std::move(fused) : simplified.clone();
  if (failed(compileFrom(first, "allocate", *copy, shard, error)))
    return std::nullopt;
  loom::FirstErrorHandler handler(simplified.getContext(), error, options.input);
  FailureOr<std::vector<sim::ProgramRun>> runs = sim::simulate(*copy);
  if (failed(runs)) {
    if (error.empty())
      error = "it cannot be simulated";
    return std::nullopt;
  }
  return TrialPlan{computeMemory(*copy), std::move(*runs)};
}

LogicalResult Compilation::checkMemory(ArrayRef<StageMemory> allocated) {
  memory = findLargest(allocated);
  uint64_t bytes = memory.needs.getAllocated(), limit = getMemoryLimit();
  for (Candidate &candidate : choice.candidates)
    if (candidate.verdict == Verdict::Chosen)
      candidate.memoryBytes = static_cast<int64_t>(bytes);
  if (!limit || bytes <= limit)
    return success();
  std::string stage = memory.stage ? " of stage " + std::to_string(memory.stage) : "";
  fail((choice.name.empty() ? "" : choice.name + ": ") + "a device" + stage + " " +
       describeExcess(bytes, limit) + ": " + rt::describe(memory.needs) +
       suggestFit(choice.options, memory.needs, static_cast<int64_t>(limit)));
  return failure();
}

uint64_t Compilation::getMemoryLimit() const {
  return static_cast<uint64_t>(options.memoryLimit ? options.memoryLimit : choice.memoryLimit);
}

//===----------------------------------------------------------------------===//
// A change that fits
//===----------------------------------------------------------------------===//

/// A changed option, with the request or dimensions that it leads to.
struct Compilation::Change {
  std::string flag; ///< "--mesh data=4"
  StrategyRequest request;
  std::vector<std::string> dims; ///< replace options.dims; empty: unchanged
  uint64_t fixed = 0;            ///< bytes that the change does not reduce
};

/// "data=2,pipe=2" with `axis` `times` as large; adds the axis if it is missing.
static std::string growAxis(const std::string &mesh, StringRef axis, int64_t times) {
  std::vector<std::string> parts;
  bool found = false;
  for (StringRef part : llvm::split(mesh, ',')) {
    auto [name, number] = part.split('=');
    int64_t size = 1;
    if (part.empty() || number.getAsInteger(10, size))
      continue;
    found |= name == axis;
    parts.push_back((name + "=" + Twine(name == axis ? size * times : size)).str());
  }
  if (!found)
    parts.push_back((axis + "=" + Twine(times)).str());
  return llvm::join(parts, ",");
}

/// "4xH100-80GB" with `times` as many devices.
static std::string growDevices(StringRef devices, int64_t times) {
  auto [number, kind] = devices.split('x');
  int64_t count = 1;
  number.getAsInteger(10, count);
  return std::to_string(count * times) + (kind.empty() ? "" : "x" + kind.str());
}

/// "HGX-H100x4" with `times` as many hosts; "" for a file.
static std::string growCluster(const std::string &cluster, int64_t times) {
  std::optional<cluster::PresetHosts> now = cluster::parsePreset(cluster);
  return now ? now->preset->name + ("x" + std::to_string(now->hosts * times)) : "";
}

/// "batch=1,8" with sizes divided by `times` where they can be; "" if nothing changes.
static std::string shrinkDim(StringRef dim, int64_t times) {
  auto [name, numbers] = dim.split('=');
  std::vector<std::string> sizes;
  bool changed = false;
  for (StringRef number : llvm::split(numbers, ',')) {
    int64_t size = 1;
    if (number.getAsInteger(10, size))
      return "";
    int64_t smaller = size % times == 0 ? size / times : size;
    changed |= smaller != size;
    std::string text = std::to_string(smaller);
    if (!llvm::is_contained(sizes, text))
      sizes.push_back(text);
  }
  return changed ? name.str() + "=" + llvm::join(sizes, ",") : "";
}

/// Changes that divide something by `times`: by more micro-batches, more devices, or smaller
/// dimensions.
std::vector<Compilation::Change> Compilation::listChanges(const ShardOptions &shard,
                                                          const rt::MemoryNeeds &needs,
                                                          int64_t times) const {
  std::vector<Change> changes;
  StrategyRequest request = makeRequest();
  request.certifies = false; // the bound is not used
  if (shard.hasPipeline() && !options.train.isOn) {
    Change change{"", request, {}, needs.getAllocated() - needs.getActivations()};
    change.request.microbatches = shard.microbatches * times;
    change.flag = "--microbatches " + std::to_string(change.request.microbatches);
    changes.push_back(std::move(change));
  }
  std::vector<std::string> axes;
  for (StringRef part : llvm::split(shard.mesh, ','))
    if (!part.empty())
      axes.push_back(part.split('=').first.str());
  for (const char *axis : {"data", "model", "pipe"})
    if (!llvm::is_contained(axes, axis))
      axes.emplace_back(axis);
  for (const std::string &axis : axes) {
    Change change{"", request, {}, 0};
    change.request.mesh = growAxis(shard.mesh, axis, times);
    std::string error;
    if (!options.devices.empty() && options.mesh.empty()) {
      std::string more = growDevices(options.devices, times);
      change.flag = "--devices " + more;
      change.request.cluster = cluster::findDevices(more, request.kind, error);
    } else if (cluster && options.mesh.empty()) {
      std::string more = growCluster(options.cluster, times);
      change.flag = "--cluster " + more;
      change.request.cluster = more.empty() ? std::nullopt : cluster::findCluster(more, error);
      if (!change.request.cluster)
        continue;
    } else {
      change.flag = "--mesh " + change.request.mesh;
    }
    changes.push_back(std::move(change));
  }
  for (size_t i = 0; first == 0 && i < options.dims.size(); ++i)
    if (std::string dim = shrinkDim(options.dims[i], times); !dim.empty()) {
      Change change{"--dim " + dim, request, options.dims, needs.weights};
      change.dims[i] = dim;
      changes.push_back(std::move(change));
    }
  return changes;
}

/// Bytes that a device of the program needs with a change; nullopt if it cannot be compiled.
std::optional<uint64_t> Compilation::tryChange(const Change &change, int64_t limit) {
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> imported;
  ModuleOp program = *simplified;
  if (!change.dims.empty()) {
    ImportOptions import;
    if (!fillImportOptions(import, change.dims).empty())
      return std::nullopt;
    imported = importOnnx(context, options.input, import);
    if (!imported || !tieWeights(*imported, options.input, options.train).empty())
      return std::nullopt;
    PassManager pm(&context);
    getPhases()[*findPhase("simplify")].addPasses(pm, makePhaseContext({}));
    if (failed(pm.run(*imported)))
      return std::nullopt;
    program = *imported;
  }
  std::string error;
  StrategyRequest request = change.request;
  request.memoryLimit = limit;
  request.tryPlan = [&](ModuleOp copy, const ShardOptions &shard, OwningOpRef<ModuleOp> fused,
                        std::string &why) { return tryPlan(copy, shard, std::move(fused), why); };
  FailureOr<Choice> chosen = chooseStrategy(program, request);
  if (failed(chosen))
    return std::nullopt;
  const Candidate *candidate = chosen->getChosen();
  if (candidate && candidate->memoryBytes)
    return static_cast<uint64_t>(candidate->memoryBytes);
  std::optional<TrialPlan> trial = tryPlan(program, chosen->options, nullptr, error);
  return trial ? std::optional(trial->getNeeds().getAllocated()) : std::nullopt;
}

std::string Compilation::suggestFit(const ShardOptions &shard, const rt::MemoryNeeds &needs,
                                    int64_t limit) {
  auto allowed = static_cast<uint64_t>(limit);
  for (int64_t times = 2; simplified && times <= kMaxTimes; times *= 2) {
    for (const Change &change : listChanges(shard, needs, times)) {
      // Skip changes that would not fit even if all that they affect were `times` smaller.
      if (change.fixed + (needs.getAllocated() - change.fixed) / static_cast<uint64_t>(times) >
          allowed)
        continue;
      std::optional<uint64_t> changed = tryChange(change, limit);
      if (changed && *changed <= allowed)
        return "; the smallest change that fits is " + change.flag + " (" + formatBytes(*changed) +
               ")";
    }
  }
  std::pair<uint64_t, const char *> terms[] = {
      {needs.weights, "weights: split them over more devices, or use --precision bf16"},
      {needs.states, "states: split them over more devices, or keep fewer positions"},
      {needs.getActivations(), "activations: bind smaller dimensions with --dim"},
      {needs.bindings, "inputs and outputs: bind smaller dimensions with --dim"}};
  return std::string("; the most are ") + llvm::max_element(terms)->second +
         ", or raise --memory-limit";
}
