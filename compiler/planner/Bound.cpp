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

/// The search prices in whole picoseconds: a bound this much above a plan is a rounding error.
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

/// The search's lower bound on a mesh in seconds: the lesser of keeping packed weights and taking
/// them apart. nullopt if the mesh cannot be searched or time is over.
static std::optional<double> boundOn(const MeshSpec &mesh, ModuleOp module,
                                     const std::function<bool()> &isOver) {
  ShardOptions options;
  options.mesh = print(mesh);
  options.stageAxis.clear();
  SmallVector<StringAttr> axes;
  for (const AxisSpec &axis : mesh) {
    options.search.push_back(axis.name);
    axes.push_back(StringAttr::get(module.getContext(), axis.name));
  }
  auto bound = [&](ModuleOp seeded) { return boundSplits(seeded, axes, isOver); };
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
/// The least bound over all finest meshes, or the reason why there is none.
struct Certificate {
  std::optional<double> seconds;
  std::string fault;
};
} // namespace

static Certificate certify(ModuleOp module, int64_t devices, const BoundRequest &request) {
  if (request.mostAxes > kCertifiedAxes)
    return {{}, llvm::formatv("meshes of {0} axes are too many to search", request.mostAxes).str()};
  // The model's annotations name axes of their own mesh.
  OwningOpRef<ModuleOp> free = module.clone();
  (*free)->removeAttr(kAnnotations);
  double least = std::numeric_limits<double>::infinity();
  for (const MeshSpec &mesh : listFinestMeshes(devices, kCertifiedAxes)) {
    bool isOver = request.isOver && request.isOver();
    std::optional<double> seconds = isOver ? std::nullopt : boundOn(mesh, *free, request.isOver);
    if (!seconds)
      return {{},
              isOver || (request.isOver && request.isOver())
                  ? "planning ended before the searches did"
                  : "mesh " + print(mesh) + " cannot be searched"};
    least = std::min(least, *seconds);
  }
  return {least, ""};
}

/// What the bound covers and how it was computed.
static std::string describeScope(int64_t devices, const BoundRequest &request,
                                 const Certificate &searched) {
  std::string text = llvm::formatv("all meshes of {0} devices", devices);
  if (searched.seconds && countPrimes(devices) > kCertifiedAxes)
    text += llvm::formatv(" with up to {0} axes", kCertifiedAxes);
  text += ", all splits, storages, stages and micro-batches";
  if (request.isPinned)
    text += ", with what is pinned and without";
  if (searched.seconds)
    return text + "; without stages as the search prices work and messages, with stages by work "
                  "alone";
  return text + "; by work alone, without messages" +
         (searched.fault.empty() ? "" : ": " + searched.fault);
}

PlanBound gridloom::boundPlans(ModuleOp module, const cluster::Machine &machine, int64_t devices,
                               const BoundRequest &request) {
  double unstaged = std::numeric_limits<double>::infinity(), staged = unstaged;
  auto add = [&](OwningOpRef<ModuleOp> program) {
    if (!program)
      return;
    WorkBound work(*program, machine);
    unstaged = std::min(unstaged, work.getSeconds(devices));
    staged = std::min(staged, work.getStagedSeconds(devices, kFarAbove * request.seconds));
  };
  // Plans that only split the batch keep packed weights; others take them apart.
  add(prepare(module, [](OpPassManager &pm) { pm.addPass(createCloneConstants()); }));
  add(prepare(module, [](OpPassManager &pm) {
    pm.addPass(createCloneConstants());
    pm.addPass(createUnpackWeights());
    pm.addPass(createHoistPrologue());
  }));
  Certificate searched;
  if (request.certifies && devices > 1)
    searched = certify(module, devices, request);
  auto bound = [&] { return std::min(std::max(unstaged, searched.seconds.value_or(0)), staged); };
  if (searched.seconds && bound() > request.seconds * (1 + kRounding))
    searched = {{}, "a plan takes less than the searches say"};
  return {bound(), describeScope(devices, request, searched)};
}
