//===- Simulate.cpp - simulate a compiled plan ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"
#include "compiler/driver/DumpChecks.h"
#include "compiler/driver/Phases.h"
#include "compiler/driver/Registration.h"
#include "compiler/driver/Simulation.h"
#include "compiler/planner/AllocatedMemory.h"
#include "compiler/simulator/Simulator.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Sharding.h"
#include "dialects/plan/Plan.h"
#include "passes/allocate/Passes.h"
#include "passes/schedule/Passes.h"
#include "support/Text.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <filesystem>
#include <iostream>

using namespace mlir;
using namespace gridloom;

namespace fs = std::filesystem;

static LogicalResult fail(const Twine &message) {
  std::cerr << "error: " << message.str() << "\n";
  return failure();
}

/// The dump of the allocate phase in a plan's folder; a file is a dump itself. Empty, after an
/// error, if it is missing.
static std::string findDump(const std::string &input) {
  std::error_code error;
  std::string lacks = input + ": is not a plan folder or a dump of a phase";
  if (!fs::exists(input, error)) {
    (void)fail(lacks + "; nothing has this name");
    return "";
  }
  if (!fs::is_directory(input, error) && !StringRef(input).ends_with(".mlir")) {
    (void)fail(lacks + " (.mlir); make a plan with gridloom compile");
    return "";
  }
  if (!fs::is_directory(input, error))
    return input;
  std::string name;
  llvm::raw_string_ostream(name) << llvm::format("%02zu-allocate.mlir", *findPhase("allocate") + 1);
  fs::path path = fs::path(input) / "ir" / name;
  if (fs::exists(path, error))
    return path.string();
  (void)fail("'" + input + "' is no plan, or one without its programs: ir/" + name +
             " is missing; compile the model again");
  return "";
}

/// Moves the mesh to the first devices of another cluster.
static LogicalResult setCluster(ModuleOp module, const std::string &text) {
  std::string error;
  std::optional<cluster::Cluster> cluster = cluster::findCluster(text, error);
  if (!cluster)
    return fail(error);
  int64_t count = 1;
  dist::Mesh mesh = dist::Mesh::get(module);
  for (const dist::Mesh::Axis &axis : mesh.getAxes())
    count *= dist::isMicroAxis(axis.name) ? 1 : axis.size;
  if (cluster->getNumDevices() < count)
    return fail("the plan needs " + Twine(count) + " devices; --cluster " + text + " has " +
                Twine(cluster->getNumDevices()));
  module->setAttr(dist::kCluster,
                  dist::makeMachineAttr(module.getContext(), makeMachine(*cluster, count)));
  return success();
}

/// Allocates programs that are only scheduled, and verifies them.
static LogicalResult prepare(ModuleOp module, const std::string &path) {
  auto programs = module.getOps<plan::ProgramOp>();
  if (programs.empty())
    return fail("'" + path +
                "' holds no scheduled programs; simulate a plan, or a dump of the "
                "phase schedule or allocate");
  bool isAllocated = llvm::all_of(programs, [](plan::ProgramOp program) {
    auto buffers = program.getBody().front().getOps<plan::BufferOp>();
    return llvm::all_of(buffers,
                        [](plan::BufferOp buffer) { return buffer.getBytes().has_value(); });
  });
  PassManager pm(module.getContext());
  pm.addPass(createVerifyScheduled());
  if (!isAllocated)
    pm.addPass(createAllocateBuffers());
  pm.addPass(createVerifyAllocated());
  return pm.run(module);
}

static std::string printMesh(ModuleOp module) {
  std::string text;
  dist::Mesh mesh = dist::Mesh::get(module);
  for (const dist::Mesh::Axis &axis : mesh.getAxes())
    if (!dist::isMicroAxis(axis.name))
      text += (text.empty() ? "" : ",") + axis.name.str() + "=" + std::to_string(axis.size);
  return text;
}

static LogicalResult simulatePlan(const SimulateOptions &options, MLIRContext &context,
                                  PlanOutcome &outcome) {
  std::optional<sim::MeasuredCosts> measured;
  std::string error;
  if (!options.costs.empty())
    measured = sim::MeasuredCosts::read(options.costs, error);
  if (!error.empty())
    return fail(error);
  std::string path = findDump(options.input);
  if (path.empty())
    return failure();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
  if (!module || failed(checkDump(*module, /*readsWeights=*/false)) ||
      (!options.cluster.empty() && failed(setCluster(*module, options.cluster))) ||
      failed(prepare(*module, path)))
    return failure();
  FailureOr<std::vector<sim::ProgramRun>> runs =
      sim::simulate(*module, measured ? &*measured : nullptr);
  if (failed(runs))
    return failure();
  outcome.model = options.input;
  outcome.mesh = printMesh(*module);
  outcome.machine = dist::getMachine(*module)->getName();
  for (const StageMemory &memory : computeMemory(*module))
    outcome.memory.push_back({memory.stage, 0, memory.needs});
  outcome.runs = std::move(*runs);
  return success();
}

int gridloom::runSimulate(const SimulateOptions &options, PlanOutcome &outcome) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false);
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
    std::string text =
        makePrintable(llvm::json::fixUTF8(loom::describeWithNode(diagnostic, options.input)));
    // Only what cannot be parsed is at a place in the file.
    if (auto place = dyn_cast<FileLineColLoc>(diagnostic.getLocation()))
      text = makePrintable(place.getFilename().str()) + ":" + std::to_string(place.getLine()) +
             ": " + text;
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      std::cerr << "error: " << text << "\n";
    return success();
  });
  return failed(simulatePlan(options, context, outcome));
}
