//===- Compilation.cpp - one run of the phases ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Compilation.h"

#include "cluster/Presets.h"
#include "compiler/driver/DumpChecks.h"
#include "compiler/driver/Interrupt.h"
#include "compiler/driver/ReadableNames.h"
#include "compiler/driver/Registration.h"
#include "compiler/driver/Ties.h"
#include "compiler/planner/Meshes.h"
#include "compiler/simulator/TimelineFile.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Derivatives.h"
#include "dialects/loom/Training.h"
#include "dialects/plan/Plan.h"
#include "runtime/core/plan.pb.h"
#include "support/Text.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <fstream>
#include <iostream>

using namespace mlir;
using namespace gridloom;

namespace fs = std::filesystem;

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

Compilation::Compilation(CompileOptions givenOptions, std::ostream &out, std::ostream &messages)
    : options(std::move(givenOptions)), out(out), messages(messages),
      context(makeRegistry(), MLIRContext::Threading::DISABLED) {
  if (options.isInterruptible)
    InterruptOnce::forget();
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false);
  context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    handle(diagnostic);
    return success();
  });
}

/// Makes a text, which may hold any name from a model, one printable line.
static std::string makeOneLine(const std::string &text) {
  return makePrintable(llvm::json::fixUTF8(text));
}

/// Prints an error as one line, with the ONNX node if there is one, and its notes after it. Keeps
/// remarks and warnings for the report.
void Compilation::handle(Diagnostic &diagnostic) {
  // An entry's function is located at the model's graph, which is no node.
  bool isOfGraph =
      module && llvm::any_of(module->getOps<func::FuncOp>(), [&](func::FuncOp func) {
        return func->hasAttr(loom::kEntry) && func.getLoc() == diagnostic.getLocation();
      });
  std::string text =
      makeOneLine(isOfGraph ? diagnostic.str() : loom::describeWithNode(diagnostic, options.input));
  // Only what cannot be parsed is at a place in the file.
  if (auto place = dyn_cast<FileLineColLoc>(diagnostic.getLocation()); place && !module)
    text = makeOneLine(place.getFilename().str()) + ":" + std::to_string(place.getLine()) + ": " +
           text;
  switch (diagnostic.getSeverity()) {
  case DiagnosticSeverity::Error:
    hadError = true;
    say() << "error: " << text << "\n";
    for (Diagnostic &note : diagnostic.getNotes())
      messages << "note: " << makeOneLine(note.str()) << "\n";
    return;
  case DiagnosticSeverity::Warning:
    if (llvm::is_contained(warnings, text)) // of another specialisation
      return;
    say() << "warning: " << text << "\n";
    warnings.push_back(text);
    return;
  case DiagnosticSeverity::Remark:
    if (options.remarks)
      say() << "remark: " << text << "\n";
    remarks.push_back(text);
    return;
  case DiagnosticSeverity::Note:
    return;
  }
}

void Compilation::fail(const Twine &message) {
  hadError = true;
  say() << "error: " << message.str() << "\n";
}

LogicalResult Compilation::checkOptions() {
  last = getPhases().size() - 1;
  auto find = [&](const std::string &name, StringRef flag, size_t &index) -> LogicalResult {
    if (name.empty())
      return success();
    std::optional<size_t> found = findPhase(name);
    if (!found) {
      std::string names;
      for (const Phase &phase : getPhases())
        names += (names.empty() ? "" : ", ") + phase.name.str();
      fail(flag + " names phase '" + name + "'; the phases are " + names);
      return failure();
    }
    index = *found;
    return success();
  };
  if (failed(find(options.stopAfter, "--stop-after", last)) ||
      failed(find(options.startFrom, "--start-from", first)))
    return failure();
  if (first > last) {
    fail("--start-from " + options.startFrom + " comes after --stop-after " + options.stopAfter);
    return failure();
  }
  size_t shard = *findPhase("shard");
  if (!options.emitOnnx.empty() && (first > shard || last < shard)) {
    fail("--emit-onnx writes what the shard phase decides; this compilation does not run it");
    return failure();
  }
  if (failed(checkMesh()) || failed(checkTarget()) || failed(checkPrecision()) ||
      failed(checkGradients()) || failed(checkStrategy()) || failed(checkTraining()) ||
      failed(checkCluster()) || failed(checkMeasuring()))
    return failure();
  if (!options.startFrom.empty() && first > 1 &&
      (!options.mesh.empty() || cluster || !options.shard.empty() || options.microbatches) &&
      first > *findPhase("shard")) {
    fail(
        "--mesh, --devices, --cluster, --shard and --microbatches come too late for --start-from " +
        options.startFrom + "; the program is split already");
    return failure();
  }
  if (options.chunkMatmul && first > *findPhase("communicate")) {
    fail("--chunk-matmul comes too late for --start-from " + options.startFrom +
         "; communication is arranged already");
    return failure();
  }
  if (options.output.empty())
    options.output = fs::path(options.input).replace_extension(".plan").string();
  // Drop the slash of "m.plan/", as a shell completes it: the plan is first written beside its
  // folder.
  fs::path folder = options.output;
  while (folder.has_relative_path() && folder.has_parent_path() &&
         (!folder.has_filename() || folder.filename() == "."))
    folder = folder.parent_path();
  options.output = folder.string();
  return checkOutput();
}

/// Whether `path` is in `folder`, with links resolved.
static bool isWithin(const fs::path &path, const fs::path &folder) {
  std::error_code error;
  fs::path inner = fs::weakly_canonical(path, error), outer = fs::weakly_canonical(folder, error);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

/// Checks that the plan may be written, before time is spent. It must not replace the model's
/// folder.
LogicalResult Compilation::checkOutput() {
  if (getPhases()[last].name != "emit")
    return success();
  std::string obstacle = findPlanObstacle(options.output, options.force);
  if (obstacle.empty() && options.startFrom.empty() && isWithin(options.input, options.output))
    obstacle = "'" + options.output + "' holds the model '" + options.input +
               "', which a plan there would replace; choose another --output";
  if (obstacle.empty())
    return success();
  fail(obstacle);
  return failure();
}

/// Reads the target, and checks its options.
LogicalResult Compilation::checkTarget() {
  std::string error;
  target = parseTarget(options.target, error);
  if (!target)
    fail(error);
  return success(target != nullptr);
}

std::string Compilation::getClusterFlag() const {
  return !options.cluster.empty()   ? "--cluster " + options.cluster
         : !options.devices.empty() ? "--devices " + options.devices
                                    : "";
}

/// Checks that --mesh can be read, and writes it without spaces.
LogicalResult Compilation::checkMesh() {
  OwningOpRef<ModuleOp> nowhere = ModuleOp::create(UnknownLoc::get(&context));
  FailureOr<MeshSpec> mesh = parseMesh(*nowhere, options.mesh);
  if (succeeded(mesh))
    options.mesh = gridloom::print(*mesh);
  return mesh;
}

/// Reads the cluster that the options name.
LogicalResult Compilation::checkCluster() {
  if (getClusterFlag().empty())
    return success();
  std::string error;
  cluster = options.cluster.empty()
                ? cluster::findDevices(options.devices, target->getTraits().machine.str(), error)
                : cluster::findCluster(options.cluster, error);
  if (!cluster)
    fail(error);
  return success(cluster.has_value());
}

/// Checks that the target supports the precision.
LogicalResult Compilation::checkPrecision() {
  const std::string &precision = options.precision;
  if (precision == "f32")
    return success();
  if (std::string obstacle = target->findPrecisionObstacle(precision); !obstacle.empty())
    fail(obstacle);
  else if (first > *findPhase("simplify"))
    fail("--precision comes too late for --start-from " + options.startFrom +
         "; the simplify phase sets it");
  return failure(hadError);
}

std::string Compilation::fillImportOptions(ImportOptions &import,
                                           const std::vector<std::string> &dims) const {
  for (const std::string &dim : dims)
    if (std::string error = import.addDim(dim); !error.empty())
      return error;
  import.mayLackWeights = mayLackWeights;
  import.unroll = options.unroll;
  import.isTraining = options.train.isOn;
  import.microbatches = options.train.isOn ? std::max<int64_t>(options.microbatches, 1) : 1;
  import.marksTies = !options.gradientsOf.empty() || options.train.isOn;
  for (const std::string &state : options.states)
    if (std::string error = import.addState(state); !error.empty())
      return error;
  return "";
}

/// The most micro-batches of a training step: each is a copy of its forward and backward part.
static constexpr int64_t kMostTrained = 64;

std::string gridloom::getTieFlags(const TrainOptions &options) {
  std::string flags;
  for (const std::string &tie : options.ties)
    flags += " --tie " + quoteForShell(tie);
  return flags;
}

std::string gridloom::getTrainFlags(const TrainOptions &options) {
  std::string flags = options.isOn ? " --train" : "";
  auto add = [&](const std::string &flag, const std::vector<std::string> &values) {
    for (const std::string &value : values)
      flags += " --" + flag + " " + quoteForShell(value);
  };
  add("loss", options.losses);
  add("metric", options.metrics);
  if (!options.optimizer.empty())
    add("optimizer", {options.optimizer});
  if (!options.clip.empty())
    add("clip", {options.clip});
  if (!options.lossScale.empty())
    add("loss-scale", {options.lossScale});
  add("param", options.parameters);
  add("init", options.inits);
  if (options.seed)
    add("seed", {std::to_string(*options.seed)});
  return flags;
}

/// Checks training against the other options; sets the default optimizer and loss scale.
LogicalResult Compilation::checkTraining() {
  TrainOptions &train = options.train;
  if (!train.isOn) {
    if (std::string flags = getTieFlags(train) + getTrainFlags(train); !flags.empty())
      fail(flags.substr(1) + " goes with --train");
    else if (train.accumulate)
      fail("--accumulate goes with --train; pipelines have --microbatches");
    else if (options.zero && options.startFrom.empty())
      fail("--zero " + std::to_string(options.zero) + " goes with --train");
    else if (options.bucketSize != kBucketBytes && options.startFrom.empty())
      fail("--bucket-size goes with --train: it is of gradients");
    return failure(hadError);
  }
  if (train.losses.empty() && !mayLackLosses)
    fail("--train needs a --loss, e.g. --loss 'cross_entropy(logits, labels)' with the names of an "
         "output and of a new input, or --loss OUTPUT");
  else if (options.zero &&
           (StringRef(options.strategy).starts_with("random") || options.strategy == "search" ||
            StringRef(options.strategy).ends_with(".strategy")))
    fail("--zero does not go with --strategy " + options.strategy +
         ", which says by itself how states lie");
  else if (!options.gradientsOf.empty())
    fail("--train and --gradients-of exclude each other");
  else if (!options.states.empty())
    fail("--train does not go with --state: a training step has no caches");
  else if (first > *findPhase("simplify"))
    fail("--train comes too late for --start-from " + options.startFrom +
         "; the simplify phase adds the training step");
  if (!train.ties.empty() && first > 0)
    fail("--tie comes too late for --start-from " + options.startFrom +
         "; weights are tied on import");
  if (train.seed && train.inits.empty())
    fail("--seed " + std::to_string(*train.seed) +
         " goes with --init, whose numbers it is of; the order of samples is train --seed");
  if (train.optimizer.empty())
    train.optimizer = "adamw";
  if (train.lossScale.empty() && options.precision == "f16")
    train.lossScale = "dynamic"; // f16 ends at 65504, and many gradients are below its least number
  if (train.accumulate && options.microbatches)
    fail("--accumulate and --microbatches are the same here; give one of them");
  else if (train.accumulate)
    options.microbatches = train.accumulate;
  if (options.microbatches && first > 0)
    fail("--microbatches comes too late for --start-from " + options.startFrom +
         "; the import makes the parts of a training step's batch");
  if (options.microbatches > kMostTrained)
    fail("--microbatches " + std::to_string(options.microbatches) +
         " is more than a training step may have, " + std::to_string(kMostTrained));
  return failure(hadError);
}

LogicalResult Compilation::checkGradients() {
  if (options.gradientsOf.empty() && options.withRespectTo.empty())
    return success();
  if (options.gradientsOf.empty())
    fail("--with-respect-to goes with --gradients-of OUTPUT");
  else if (options.precision == "f16")
    fail("--gradients-of does not go with --precision f16, where gradients overflow; use bf16 or "
         "f32");
  else if (first > *findPhase("simplify"))
    fail("--gradients-of comes too late for --start-from " + options.startFrom +
         "; the simplify phase differentiates");
  return failure(hadError);
}

/// Imports the model, or parses a dump.
LogicalResult Compilation::load() {
  if (first == 0) {
    if (StringRef(options.input).ends_with(".mlir")) {
      fail("'" + options.input + "' is a dump; name the phase that comes next with --start-from");
      return failure();
    }
    ImportOptions import;
    if (std::string error = fillImportOptions(import, options.dims); !error.empty()) {
      fail(error);
      return failure();
    }
    module = importOnnx(context, options.input, import);
    if (std::string error = module ? tieWeights(*module, options.input, options.train) : "";
        !error.empty()) {
      fail(makeOneLine(error));
      return failure();
    }
  } else {
    if (!options.states.empty()) {
      fail("--state comes too late for --start-from " + options.startFrom +
           "; states are found on import");
      return failure();
    }
    if (!options.dims.empty()) {
      fail("--dim comes too late for --start-from " + options.startFrom +
           "; dimensions are bound on import");
      return failure();
    }
    module = parseSourceFile<ModuleOp>(options.input, &context);
    if (std::string skipped = module ? findSkippedPhase(*module, options.input, first) : "";
        !skipped.empty()) {
      fail(skipped);
      return failure();
    }
    if (module && failed(checkDump(*module)))
      return failure();
    if (module && !options.gradientsOf.empty() && !(*module)->hasAttr(loom::kTies)) {
      fail("'" + options.input + "' was imported without --gradients-of; import the model with it");
      return failure();
    }
    if (module && options.train.isOn != (*module)->hasAttr(loom::kTrains)) {
      fail("'" + options.input + "' was imported with" + (options.train.isOn ? "out" : "") +
           " --train; " + (options.train.isOn ? "import the model with it" : "go on with it"));
      return failure();
    }
  }
  if (!module) {
    if (!hadError)
      fail("cannot read '" + options.input + "'");
    return failure();
  }
  return success();
}

static CommunicateOptions getCommunicateOptions(const CompileOptions &options) {
  return {.chunks = options.chunkMatmul, .bucketBytes = options.bucketSize};
}

static MemoryOptions getMemoryOptions(const TargetTraits &traits, const CompileOptions &options) {
  return {traits.layout, traits.fuse, getCommunicateOptions(options)};
}

StrategyRequest Compilation::makeRequest() const {
  StrategyRequest request;
  request.mesh = options.mesh;
  request.cluster = cluster;
  // What runs as one kernel depends on the target.
  if (request.cluster)
    for (cluster::DeviceKind &kind : request.cluster->kinds)
      if (kind.target.empty())
        kind.target = target->getName();
  request.clusterFlag = getClusterFlag();
  request.kind = target->getTraits().machine.str();
  request.strategy = options.seeds ? options.strategy : "search"; // auto without known strategies
  request.file = strategy;
  request.shard = options.shard;
  request.microbatches = options.train.isOn ? 0 : options.microbatches; // else in the program
  request.zero = options.zero;
  request.memoryLimit = options.memoryLimit;
  request.leastSimulated = static_cast<size_t>(options.measureBest);
  request.weighsAll = options.weighsAll;
  request.certifies = options.certifies;
  request.jobs = options.jobs;
  request.limits = makeLimits();
  request.memory = getMemoryOptions(target->getTraits(), options);
  return request;
}

LogicalResult Compilation::choose() {
  identifyModel();
  StrategyRequest request = makeRequest();
  if (options.memoryLimit || cluster || cluster::findKind(request.kind)->memoryBytes)
    simplified = module->clone();
  request.tryPlan = [&](ModuleOp program, const ShardOptions &shard, OwningOpRef<ModuleOp> fused,
                        std::string &error) {
    return tryPlan(program, shard, std::move(fused), error);
  };
  request.suggest = [&](const ShardOptions &shard, const rt::MemoryNeeds &needs, int64_t limit) {
    return suggestFit(shard, needs, limit);
  };
  request.onProgress = [&](const PlanProgress &progress) { showProgress(progress); };
  planBegin = std::chrono::steady_clock::now();
  FailureOr<Choice> chosen = [&] {
    InterruptOnce interrupt(options.isInterruptible);
    return chooseStrategy(*module, request);
  }();
  if (failed(chosen))
    return failure();
  choice = std::move(*chosen);
  recordStop();
  if (failed(checkChoice()))
    return failure();
  return options.measureBest ? measureBest() : success();
}

/// Options that must be repeated when a compilation is resumed: the program does not hold them yet.
static std::string getShardFlags(const CompileOptions &options) {
  std::string flags;
  auto add = [&](const std::string &flag, const std::string &value) {
    if (!value.empty())
      flags += " --" + flag + " " + quoteForShell(value);
  };
  add("mesh", options.mesh);
  add("devices", options.devices);
  add("cluster", options.cluster);
  if (options.strategy != "auto")
    add("strategy", options.strategy);
  if (!options.seeds)
    flags += " --no-seeds";
  for (const std::string &shard : options.shard)
    add("shard", shard);
  if (options.microbatches && !options.train.isOn)
    add("microbatches", std::to_string(options.microbatches));
  if (options.zero)
    add("zero", std::to_string(options.zero));
  if (options.memoryLimit)
    add("memory-limit", std::to_string(options.memoryLimit));
  if (options.measureBest)
    add("measure-best", std::to_string(options.measureBest));
  if (options.planTime >= 0)
    add("plan-time", llvm::formatv("{0}", llvm::json::Value(options.planTime)).str());
  if (options.planWork)
    add("plan-work", std::to_string(options.planWork));
  return flags;
}

/// The command that continues from the dump of a phase.
std::string Compilation::describeResumption(size_t phase) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "gridloom compile --start-from "
     << getPhases()[std::min(phase + 1, getPhases().size() - 1)].name << " "
     << llvm::format("%02zu-", phase + 1) << getPhases()[phase].name << ".mlir -o "
     << quoteForShell(fs::path(options.output).filename().string());
  if (phase + 1 <= *findPhase("shard"))
    os << getShardFlags(options);
  if (options.chunkMatmul && phase + 1 <= *findPhase("communicate"))
    os << " --chunk-matmul " << options.chunkMatmul;
  if (options.bucketSize != kBucketBytes && phase + 1 <= *findPhase("communicate"))
    os << " --bucket-size " << options.bucketSize;
  const TargetOptions usual;
  if (options.target.name != usual.name)
    os << " --target " << options.target.name;
  if (options.target.cpuArch != usual.cpuArch)
    os << " --cpu-arch " << quoteForShell(options.target.cpuArch);
  if (!options.target.toolkit.empty())
    os << " --cuda-toolkit " << quoteForShell(options.target.toolkit);
  if (!options.target.cudnn && phase + 1 <= *findPhase("fuse"))
    os << " --no-cudnn";
  if (phase + 1 <= *findPhase("simplify")) {
    if (options.precision != "f32")
      os << " --precision " << options.precision;
    if (!options.gradientsOf.empty())
      os << " --gradients-of " << quoteForShell(options.gradientsOf);
    for (const std::string &pattern : options.withRespectTo)
      os << " --with-respect-to " << quoteForShell(pattern);
    os << getTrainFlags(options.train);
  }
  return makeOneLine(text);
}

std::string Compilation::print(size_t phase) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "// " << describeResumption(phase) << "\n";
  OpPrintingFlags flags;
  flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false).printNameLocAsPrefix();
  std::string program;
  llvm::raw_string_ostream stream(program);
  module->print(stream, flags);
  os << makeNamesReadable(program) << "\n";
  return text;
}

PhaseContext Compilation::makePhaseContext(const ShardOptions &shard) const {
  const TargetTraits &traits = target->getTraits();
  return {.shard = shard,
          .communicate = getCommunicateOptions(options),
          .layout = traits.layout,
          .simplify = {.precision = options.precision,
                       .gradientsOf = options.gradientsOf,
                       .withRespectTo = options.withRespectTo,
                       .train = options.train},
          .fuse = traits.fuse};
}

LogicalResult Compilation::runPhase(size_t index) {
  const Phase &phase = getPhases()[index];
  statusOfPhase = "[" + std::to_string(index + 1) + "/" + std::to_string(getPhases().size()) +
                  "] " + phase.name.str();
  showStatus(statusOfPhase);
  auto begin = std::chrono::steady_clock::now();
  if ((phase.name == "import" && failed(load())) || (phase.name == "shard" && failed(choose())) ||
      (phase.name == "emit" && failed(emit())))
    return failure();
  if (phase.addPasses) {
    PassManager pm(&context);
    phase.addPasses(pm, makePhaseContext(choice.options));
    // A search that is the only candidate runs here.
    InterruptOnce interrupt(options.isInterruptible && phase.name == "shard");
    if (failed(pm.run(*module))) {
      if (!hadError)
        fail("phase " + phase.name + " failed");
      return failure();
    }
  }
  if (phase.name == "shard") {
    recordStop();
    const Candidate *chosen = choice.getChosen();
    estimatedMemory = chosen && !chosen->estimatedMemory.empty()
                          ? chosen->estimatedMemory
                          : estimateMemory(*module, getMemoryOptions(target->getTraits(), options));
    searchBound = takeSearchBound(*module);
    recordValues();
    recordStrategy();
    if (failed(collectAnnotations()))
      return failure();
  }
  if (phase.name == "allocate" && failed(checkMemory(computeMemory(*module))))
    return failure();
  times.push_back({phase.name.str(), std::chrono::duration<double, std::milli>(
                                         std::chrono::steady_clock::now() - begin)
                                         .count()});
  if (phase.name != "emit") {
    (*module)->setAttr(kPhase, StringAttr::get(&context, phase.name));
    if (!keepsDumps)
      return success();
    std::string name;
    llvm::raw_string_ostream(name) << llvm::format("%02zu-", index + 1) << phase.name << ".mlir";
    dumps[name] = print(index);
  }
  return success();
}

LogicalResult Compilation::emit() {
  // A dump of the allocate phase has not been checked in this compilation.
  if (first == *findPhase("emit") && failed(checkMemory(computeMemory(*module))))
    return failure();
  FailureOr<PlanFiles> plan = emitPlan(*module, options.output, *target, emitted);
  if (failed(plan))
    return failure();
  files = std::move(*plan);
  FailureOr<std::vector<sim::ProgramRun>> simulated = sim::simulate(*module);
  if (failed(simulated))
    return failure();
  runs = std::move(*simulated);
  return readPlan();
}

/// Checks the emitted plan against the allocation and lists its collectives, by the reader that
/// `inspect` uses.
LogicalResult Compilation::readPlan() {
  stageMemory = computeMemory(*module);
  memory = findLargest(stageMemory);
  std::map<int64_t, schema::Stage> stages;
  for (const auto &[name, contents] : files) {
    schema::Stage stage;
    if (!StringRef(name).ends_with(".pb") || !stage.ParseFromString(contents))
      continue;
    if (stage.stage() == memory.stage &&
        rt::computeNeeds(stage).getAllocated() != memory.needs.getAllocated()) {
      fail("the plan's " + name + " takes " +
           std::to_string(rt::computeNeeds(stage).getAllocated()) + " bytes of a device, " +
           std::to_string(memory.needs.getAllocated()) +
           " were allocated; this is a fault of the compiler");
      return failure();
    }
    stages[stage.stage()] = std::move(stage);
  }
  dist::Mesh mesh(dist::getMesh(*module));
  auto groupOf = [&](const std::vector<std::string> &axes) {
    int64_t size = 1;
    for (const std::string &axis : axes)
      size *= mesh.getSize(StringAttr::get(&context, axis));
    return size;
  };
  // Programs do not hold dimensions' sizes; a stage has its specialisations in the module's order.
  std::map<std::string, std::vector<std::string>> dims;
  for (auto program : module->getOps<plan::ProgramOp>()) {
    if (static_cast<int64_t>(program.getStage()) != stages.begin()->first)
      continue;
    dims[program.getEntry().str()].push_back(plan::formatDims(program.getDims()));
  }
  auto dimsOf = [&](const std::string &entry, int specialisation) {
    return dims[entry].at(static_cast<size_t>(specialisation));
  };
  collectives.clear();
  for (const auto &[number, stage] : stages)
    rt::addCollectives(static_cast<int>(number), stage, groupOf, dimsOf, collectives);
  return success();
}

std::string Compilation::getPrecision() const {
  ModuleOp program = *module;
  auto precision = program->getAttrOfType<StringAttr>(loom::kPrecision);
  return precision ? precision.str() : "f32";
}

std::string Compilation::getModelPath() const {
  ModuleOp program = *module;
  auto model = program->getAttrOfType<DictionaryAttr>(loom::kModel);
  auto path = model ? model.getAs<StringAttr>("path") : StringAttr();
  return path ? path.str() : options.input;
}

LogicalResult Compilation::collectAnnotations() {
  if (options.emitOnnx.empty())
    return success();
  std::string error = collectShardings(*module, getModelPath(), shardings);
  if (!error.empty())
    fail(error);
  return success(error.empty());
}

LogicalResult Compilation::emitAnnotated() {
  if (options.emitOnnx.empty())
    return success();
  std::string error = writeAnnotated(getModelPath(), shardings, options.emitOnnx);
  if (!error.empty())
    fail(error);
  return success(error.empty());
}

static std::string writeDumps(const std::map<std::string, std::string> &dumps,
                              const std::string &folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  for (const auto &[name, text] : dumps) {
    std::ofstream stream(fs::path(folder) / name, std::ios::binary);
    stream << text;
    stream.close();
    if (!stream)
      return "cannot write '" + (fs::path(folder) / name).string() + "'";
  }
  return "";
}

/// Why the plan in `fresh`, which is to become `folder`, does not load; empty if it does. It may be
/// for another machine.
static std::string findFault(const fs::path &fresh, const std::string &folder) {
  std::string fault = rt::findPlanFault(fresh, {.requireTarget = false});
  if (fault.empty())
    return "";
  if (StringRef(fault).starts_with(fresh.string()))
    fault.replace(0, fresh.string().size(), folder);
  return "the plan does not load: " + fault;
}

LogicalResult Compilation::finishEarly() {
  if (options.dumpIr.empty())
    out << dumps.rbegin()->second;
  return success();
}

int Compilation::run() {
  if (failed(checkOptions()))
    return 1;
  if (first > 0 && failed(load()))
    return 1;
  LogicalResult result = success();
  for (size_t index = first; index <= last && succeeded(result); ++index)
    result = runPhase(index);
  showStatus("");
  // Dumps are also written when a later phase fails: then they are most useful.
  if (!options.dumpIr.empty())
    if (std::string error = writeDumps(dumps, options.dumpIr); !error.empty()) {
      fail(error);
      return 1;
    }
  if (failed(result) || hadError || failed(emitAnnotated()) || failed(saveStrategy()))
    return 1;
  if (getPhases()[last].name != "emit")
    return failed(finishEarly());
  for (const auto &[name, text] : dumps)
    files["ir/" + name] = text;
  files["report.json"] = makeReport();
  if (!runs.empty())
    files["timeline.json"] = sim::formatTimeline(runs);
  if (!strategyText.empty())
    files["plan.strategy"] = strategyText;
  auto check = [&](const fs::path &fresh) { return findFault(fresh, options.output); };
  if (std::string error = writePlan(files, options.output, options.force, /*durable=*/true, check);
      !error.empty()) {
    fail(error);
    return 1;
  }
  if (!options.quiet)
    printSummary();
  return 0;
}

int gridloom::runCompile(const CompileOptions &options, std::ostream &out, std::ostream &messages) {
  return Compilation(options, out, messages).run();
}
