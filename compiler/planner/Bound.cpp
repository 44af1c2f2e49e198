//===- Bound.cpp - lower bound of all plans of a program ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Bound.h"

#include "compiler/planner/WorkBound.h"
#include "passes/shard/DeviceConfiguration.h"
#include "passes/shard/Shard.h"
#include "passes/shard/SplitBound.h"
#include "passes/simplify/Simplify.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace gridloom;

/// Bounds of plans with stages are cut off at this multiple of the best known plan.
static constexpr double kFarAbove = 2;

/// The search prices in whole numbers: a bound this much above a plan is a rounding error.
static constexpr double kRounding = 1e-5;

/// A copy of the program after the passes; null if they fail, without a diagnostic. Equal
/// operations are merged first, as the communicate phase does in the end: with fewer readers, more
/// values may stay in registers.
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

/// The search's lower bound in seconds for stages that each have this mesh, without transfers: the
/// lesser of keeping packed weights and taking them apart. nullopt if the mesh cannot be searched
/// or time is over.
static std::optional<double> boundOn(const MeshSpec &mesh, int64_t stages, ModuleOp module,
                                     const std::function<bool()> &isOver) {
  ShardOptions options;
  MeshSpec whole = mesh;
  if (stages > 1) // outermost, so that the axes within a stage have the fastest links
    whole.insert(whole.begin(), {"pipe", stages});
  options.mesh = print(whole);
  options.stageAxis.clear();
  SmallVector<StringAttr> axes;
  for (const AxisSpec &axis : mesh) {
    options.search.push_back(axis.name);
    axes.push_back(StringAttr::get(module.getContext(), axis.name));
  }
  auto bound = [&](ModuleOp seeded) { return boundSplits(seeded, axes, isOver); };
  options.mostTableBytes = std::numeric_limits<int64_t>::max();
  auto seed = [&](OpPassManager &pm) { addSeedPasses(pm, options); };
  OwningOpRef<ModuleOp> apart = prepare(module, seed);
  std::optional<double> least = apart ? bound(*apart) : std::nullopt;
  if (!least || !(*apart)->hasAttr(kUnpacked))
    return least;
  options.search.clear(); // a search takes packed weights apart
  OwningOpRef<ModuleOp> packed = prepare(module, seed);
  std::optional<double> other = packed ? bound(*packed) : std::nullopt;
  return other ? std::optional(std::min(*least, *other)) : std::nullopt;
}

namespace {
/// Bounds by the search, on all finest meshes.
class Certifier {
public:
  Certifier(ModuleOp module, int64_t devices, const BoundRequest &request)
      : devices(devices), request(request) {
    isOff = !request.certifies || devices == 1;
    if (isOff)
      return;
    if (request.mostAxes > kCertifiedAxes) {
      giveUp(llvm::formatv("meshes of {0} axes are too many to search", request.mostAxes));
      return;
    }
    // The model's annotations name axes of their own mesh.
    unpinned = module.clone();
    (*unpinned)->removeAttr(kAnnotations);
  }

  /// Seconds that no plan goes below which has this many stages and no micro-batches, without
  /// transfers between stages. 0 if there are no searches.
  double bound(int64_t stages) {
    if (isOff || stages == devices || (stages > 1 && !searchesStages)) // one device splits nothing
      return 0;
    // Then a mesh of all devices has all axes of a stage's mesh, and may leave the others unused.
    if (countPrimes(devices) <= kCertifiedAxes)
      stages = 1;
    auto [entry, isNew] = known.try_emplace(stages, std::numeric_limits<double>::infinity());
    if (!isNew)
      return entry->second;
    for (const MeshSpec &mesh : listFinestMeshes(devices / stages, kCertifiedAxes)) {
      std::optional<double> seconds;
      if (!isOver())
        seconds = boundOn(mesh, stages, *unpinned, request.isOver);
      if (!seconds) {
        searchesStages = false;
        if (stages == 1)
          giveUp(isOver() ? "planning ended before the searches did"
                          : "mesh " + print(mesh) + " cannot be searched");
        return 0;
      }
      entry->second = std::min(entry->second, *seconds);
    }
    return entry->second;
  }

  /// Ends the searches, for this reason.
  void giveUp(std::string reason) {
    isOff = true;
    fault = std::move(reason);
  }

  bool isSearching() const { return !isOff; }
  /// Whether all plans with stages that may matter were searched, too.
  bool hasStages() const { return searchesStages; }
  const std::string &getFault() const { return fault; }

private:
  bool isOver() const { return request.isOver && request.isOver(); }

  OwningOpRef<ModuleOp> unpinned; ///< the program without pins
  int64_t devices;
  const BoundRequest &request;
  std::map<int64_t, double> known; ///< by number of stages
  bool isOff = false, searchesStages = true;
  std::string fault; ///< why the searches were given up
};
} // namespace

/// What the bound covers and how it was computed.
static std::string describeScope(int64_t devices, const BoundRequest &request,
                                 const Certifier &certifier) {
  std::string text = llvm::formatv("all meshes of {0} devices", devices);
  if (certifier.isSearching() && countPrimes(devices) > kCertifiedAxes)
    text += llvm::formatv(" with up to {0} axes", kCertifiedAxes);
  text += ", all splits, storages, stages and micro-batches";
  if (request.isPinned)
    text += ", with what is pinned and without";
  if (certifier.isSearching())
    return text + "; as the search prices work and messages, with " +
           (certifier.hasStages() ? "" : "stages or ") + "micro-batches by work alone";
  return text + "; by work alone, without messages" +
         (certifier.getFault().empty() ? "" : ": " + certifier.getFault());
}

PlanBound gridloom::boundPlans(ModuleOp module, const cluster::Machine &machine, int64_t devices,
                               const BoundRequest &request) {
  // Plans that only split the batch keep packed weights; others take them apart.
  OwningOpRef<ModuleOp> packed =
      prepare(module, [](OpPassManager &pm) { pm.addPass(createCloneConstants({{"*"}})); });
  OwningOpRef<ModuleOp> apart = prepare(module, [](OpPassManager &pm) {
    pm.addPass(createCloneConstants({{"*"}}));
    pm.addPass(createUnpackWeights());
    pm.addPass(createHoistPrologue());
  });
  std::vector<WorkBound> works;
  for (OwningOpRef<ModuleOp> *program : {&packed, &apart})
    if (*program)
      works.emplace_back(**program, machine);
  Certifier certifier(module, devices, request);
  auto search = [&](int64_t stages) { return certifier.bound(stages); };
  auto bound = [&] {
    double least = std::numeric_limits<double>::infinity();
    for (WorkBound &work : works)
      least = std::min(least, work.getSeconds(devices));
    least = std::max(least, search(1));
    double most = std::min(least, kFarAbove * request.seconds);
    for (WorkBound &work : works)
      least = std::min(least, work.getStagedSeconds(devices, most, search));
    return least;
  };
  double seconds = bound();
  if (certifier.isSearching() && seconds > request.seconds * (1 + kRounding))
    certifier.giveUp("a plan takes less than the searches say");
  // Then the bound is by work alone, as the scope says.
  if (!certifier.isSearching())
    seconds = bound();
  return {seconds, describeScope(devices, request, certifier)};
}
