//===- Bound.cpp - what no plan of a program goes below -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Bound.h"

#include "compiler/planner/WorkBound.h"
#include "passes/shard/Shard.h"
#include "passes/shard/SplitBound.h"
#include "passes/simplify/Simplify.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace gridloom;

/// Stages that take so many times as long as a plan are no bound worth knowing.
static constexpr double kFarAbove = 2;

static size_t countPrimes(int64_t number) {
  size_t primes = 0;
  for (int64_t factor = 2; number > 1; ++factor)
    for (; number % factor == 0; number /= factor)
      ++primes;
  return primes;
}

std::vector<MeshSpec> gridloom::listFinestMeshes(int64_t devices, size_t mostAxes) {
  size_t count = std::min(mostAxes, countPrimes(devices));
  std::vector<MeshSpec> meshes;
  MeshSpec mesh;
  auto extend = [&](auto &self, int64_t rest) -> void {
    if (mesh.size() == count) {
      if (rest == 1)
        meshes.push_back(mesh);
      return;
    }
    for (int64_t size = 2; size <= rest; ++size) {
      if (rest % size)
        continue;
      mesh.push_back({std::string(1, "xyzw"[mesh.size()]), size});
      self(self, rest / size);
      mesh.pop_back();
    }
  };
  extend(extend, devices);
  return meshes;
}

/// A copy of the program as the passes leave it; null where they fail, about which nobody hears.
/// Equal operations are merged first, as communication does in the end: a value that few of them
/// read may stay in registers then.
static OwningOpRef<ModuleOp> prepare(ModuleOp module,
                                     llvm::function_ref<void(OpPassManager &)> addPasses) {
  OwningOpRef<ModuleOp> copy = module.clone();
  ScopedDiagnosticHandler handler(module.getContext(), [](Diagnostic &) { return success(); });
  PassManager pm(module.getContext());
  pm.enableVerifier(false);
  pm.addPass(createCSEPass());
  addPasses(pm);
  return succeeded(pm.run(*copy)) ? std::move(copy) : OwningOpRef<ModuleOp>();
}

/// What the search says of the program on a mesh, with packed weights as they are and taken apart.
static std::optional<double> boundOn(const MeshSpec &mesh, ModuleOp module,
                                     const std::vector<std::string> &shard) {
  ShardOptions options;
  options.mesh = print(mesh);
  options.shard = shard;
  options.stageAxis.clear();
  SmallVector<StringAttr> axes;
  for (const AxisSpec &axis : mesh) {
    options.search.push_back(axis.name);
    axes.push_back(StringAttr::get(module.getContext(), axis.name));
  }
  auto bound = [&](ModuleOp seeded) { return boundSplits(seeded, axes); };
  auto seed = [&](OpPassManager &pm) { addSeedPasses(pm, options); };
  OwningOpRef<ModuleOp> apart = prepare(module, seed);
  std::optional<double> least = apart ? bound(*apart) : std::nullopt;
  if (!least || !(*apart)->hasAttr(kUnpacked))
    return least;
  options.search.clear(); // for which weights are taken apart
  OwningOpRef<ModuleOp> packed = prepare(module, seed);
  std::optional<double> other = packed ? bound(*packed) : std::nullopt;
  return other ? std::optional(std::min(*least, *other)) : std::nullopt;
}

/// The least of all finest meshes; nothing where one cannot be searched.
static std::optional<double> boundSearched(ModuleOp module, int64_t devices,
                                           const std::vector<std::string> &shard) {
  double least = std::numeric_limits<double>::infinity();
  for (const MeshSpec &mesh : listFinestMeshes(devices, kCertifiedAxes)) {
    std::optional<double> seconds = boundOn(mesh, module, shard);
    if (!seconds)
      return std::nullopt;
    least = std::min(least, *seconds);
  }
  return least;
}

PlanBound gridloom::boundPlans(ModuleOp module, const cluster::Machine &machine, int64_t devices,
                               double seconds, bool certifies,
                               const std::vector<std::string> &shard) {
  double unstaged = std::numeric_limits<double>::infinity(), staged = unstaged;
  auto add = [&](OwningOpRef<ModuleOp> program) {
    if (!program)
      return;
    WorkBound work(*program, machine);
    unstaged = std::min(unstaged, work.getSeconds(devices));
    staged = std::min(staged, work.getStagedSeconds(devices, kFarAbove * seconds));
  };
  // Plans that only cut the batch keep packed weights as they are, others take them apart.
  add(prepare(module, [](OpPassManager &pm) { pm.addPass(createCloneConstants()); }));
  add(prepare(module, [](OpPassManager &pm) {
    pm.addPass(createCloneConstants());
    pm.addPass(createUnpackWeights());
    pm.addPass(createHoistPrologue());
  }));
  std::optional<double> searched;
  if (certifies && devices > 1)
    searched = boundSearched(module, devices, shard);
  PlanBound bound;
  bound.seconds = std::min(searched ? std::max(unstaged, *searched) : unstaged, staged);
  bool isWhole = countPrimes(devices) <= kCertifiedAxes;
  std::string meshes = llvm::formatv(
      "all meshes of {0} devices{1}", devices,
      searched && !isWhole ? llvm::formatv(" with up to {0} axes", kCertifiedAxes).str()
                           : std::string());
  bound.scope = meshes + ", all splits, storages, stages and micro-batches; " +
                (searched ? "without stages as the search prices work and messages, with stages by "
                            "work alone"
                          : "by work alone, without messages");
  return bound;
}
