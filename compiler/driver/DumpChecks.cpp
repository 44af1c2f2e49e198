//===- DumpChecks.cpp - check dumps against model and mesh ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/DumpChecks.h"

#include "compiler/driver/Phases.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Sharding.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;
using namespace gridloom;

/// Checks that the mesh has every axis in shardings, origins, operations' splits, streams, and
/// attributes called axes.
static LogicalResult checkAxes(ModuleOp module, dist::MeshOp meshOp) {
  dist::Mesh mesh(meshOp);
  StringAttr unknown;
  auto check = [&](StringAttr axis) {
    if (!unknown &&
        llvm::none_of(mesh.getAxes(), [&](const auto &known) { return known.name == axis; }))
      unknown = axis;
  };
  AttrTypeWalker walker;
  walker.addWalk([&](dist::ShardingAttr sharding) {
    dist::Sharding parsed(sharding);
    for (const dist::Sharding::Dim &dim : parsed.dims)
      llvm::for_each(dim.axes, check);
    llvm::for_each(parsed.unreduced, check);
  });
  walker.addWalk([&](dist::SplitsAttr splits) {
    for (dist::DimShardingAttr factor : splits.getFactors())
      llvm::for_each(factor.getAxes(), check);
    llvm::for_each(splits.getUnreduced(), check);
  });
  walker.addWalk([&](dist::OriginAttr origin) {
    for (auto [axis, source] : origin.getAxes())
      check(axis);
    if (origin.getTried())
      check(origin.getTried());
  });
  walker.addWalk([&](plan::StreamAttr stream) {
    if (stream.getAxes())
      for (auto axis : stream.getAxes().getAsRange<StringAttr>())
        check(axis);
  });
  WalkResult walk = module.walk([&](Operation *op) {
    walker.walk(op->getAttrDictionary());
    if (auto axes = op->getAttrOfType<ArrayAttr>("axes"); axes && op != meshOp.getOperation())
      for (auto axis : axes.getAsRange<StringAttr>())
        check(axis);
    if (!unknown)
      return WalkResult::advance();
    std::string names;
    for (const dist::Mesh::Axis &axis : mesh.getAxes())
      names += (names.empty() ? "" : ", ") + axis.name.str();
    op->emitError() << "axis '" << unknown.getValue() << "' is not in the mesh (axes: " << names
                    << ")";
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

static LogicalResult checkModel(ModuleOp module) {
  auto model = module->getAttrOfType<DictionaryAttr>(loom::kModel);
  auto path = model ? model.getAs<StringAttr>("path") : StringAttr();
  if (!path || path.empty() || module.getOps<loom::WeightOp>().empty() ||
      llvm::sys::fs::exists(path.getValue()))
    return success();
  return module.emitError("the weights are in '")
         << path.getValue()
         << "', which does not exist; continue in the folder where the model was compiled, or copy "
            "the model here";
}

static LogicalResult checkMachine(ModuleOp module) {
  Attribute machine = module->getAttr(dist::kCluster);
  if (!machine || dist::parseMachineAttr(machine))
    return success();
  return module.emitError(
      "attribute 'dist.cluster' does not describe kinds of devices and levels of links");
}

/// Whether all functions are of a stage, as the partition phase makes them.
static bool isPartitioned(ModuleOp module) {
  return llvm::all_of(module.getOps<func::FuncOp>(), [](func::FuncOp func) {
    return func->hasAttr(dist::kStage) && func->hasAttr(dist::kMicrobatches);
  });
}

/// Whether no function computes anything by itself, outside of kernels and library calls.
static bool isFused(ModuleOp module) {
  return !module
              .walk<WalkOrder::PreOrder>([](Operation *op) {
                if (isa<plan::KernelOp>(op))
                  return WalkResult::skip();
                bool isLeft = op->getParentOfType<func::FuncOp>() &&
                              isa_and_nonnull<loom::LoomDialect>(op->getDialect()) &&
                              !isa<loom::GetWeightOp, loom::ConstantOp, loom::ReshapeOp,
                                   loom::SliceOp, loom::YieldOp, loom::WhileOp, loom::IfOp>(op);
                return isLeft ? WalkResult::interrupt() : WalkResult::advance();
              })
              .wasInterrupted();
}

/// Whether every buffer of its own has its size.
static bool isAllocated(ModuleOp module) {
  return !module
              .walk([](plan::BufferOp buffer) {
                return buffer.getBytes() ? WalkResult::advance() : WalkResult::interrupt();
              })
              .wasInterrupted();
}

/// The first phase that a program without kPhase has not been through, of those that later ones
/// cannot do without; their passes refuse what else is missing.
static size_t findNextPhase(ModuleOp module) {
  size_t shard = *findPhase("shard"), schedule = *findPhase("schedule");
  if (!module.getOps<plan::ProgramOp>().empty())
    return isAllocated(module) ? schedule + 2 : schedule + 1;
  if (!dist::getMesh(module))
    return shard;
  if (!isPartitioned(module))
    return *findPhase("partition");
  return isFused(module) ? schedule : *findPhase("fuse");
}

std::string gridloom::findSkippedPhase(ModuleOp module, StringRef file, size_t first) {
  auto record = module->getAttrOfType<StringAttr>(kPhase);
  std::optional<size_t> done = record ? findPhase(record.getValue()) : std::nullopt;
  size_t next = done ? *done + 1 : findNextPhase(module);
  if (first <= next)
    return "";
  std::string what = done ? "is the dump of phase " + getPhases()[*done].name.str()
                          : "has not been through phase " + getPhases()[next].name.str();
  return "'" + file.str() + "' " + what + "; continue with --start-from " +
         getPhases()[next].name.str();
}

LogicalResult gridloom::checkDump(ModuleOp module, bool readsWeights) {
  if (failed(checkMachine(module)))
    return failure();
  dist::MeshOp mesh = dist::getMesh(module);
  if (mesh && failed(checkAxes(module, mesh)))
    return failure();
  return readsWeights ? checkModel(module) : success();
}
