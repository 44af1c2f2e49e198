//===- MeasureBest.cpp - the fastest candidate on this machine --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Compiles the candidates that are fastest in the simulator into plans, runs them on this machine
// by `gridloom bench`, and chooses by the measured times.
//
//===----------------------------------------------------------------------===//
#include "cluster/Fit.h"
#include "cluster/Presets.h"
#include "compiler/driver/Compilation.h"
#include "dialects/loom/FirstError.h"
#include "dialects/plan/Plan.h"
#include "support/FileSwap.h"
#include "support/JsonDepth.h"
#include "support/TemporaryFolder.h"
#include "support/Text.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <chrono>
#include <filesystem>

using namespace mlir;
using namespace gridloom;

namespace fs = std::filesystem;

/// Candidates take turns in this many rounds, so that other load on the machine affects all alike.
static constexpr int kRounds = 3;
/// A program runs for about this long in a round.
static constexpr std::chrono::duration<double> kRound = std::chrono::milliseconds(500);
/// A run that takes longer counts as stuck.
static constexpr std::chrono::seconds kStuck = std::chrono::minutes(10);

/// A candidate that is measured.
struct Compilation::Contender {
  Candidate *candidate;
  fs::path folder;
  std::vector<std::pair<std::string, std::string>> programs; ///< entry and "batch=8,sequence=32"
  std::vector<double> seconds; ///< of a step of all programs together, in each round
};

LogicalResult Compilation::checkMeasuring() {
  if (!options.measureBest)
    return success();
  std::string count = "--measure-best " + std::to_string(options.measureBest);
  if (strategy)
    fail(count + " compares candidates; the strategy " + strategy->locate(0) +
         " is one; leave one of the two out");
  else if (getPhases()[last].name != "emit")
    fail(count + " runs compiled plans; leave --stop-after out");
  else if (first > *findPhase("shard"))
    fail(count + " comes too late for --start-from " + options.startFrom +
         "; the program is split already");
  return failure(hadError);
}

//===----------------------------------------------------------------------===//
// One run
//===----------------------------------------------------------------------===//

/// The runtime's program: beside this one, else on PATH; empty if missing.
static std::string findRuntime() {
  std::error_code error;
  fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / "gridloom";
  if (fs::exists(beside, error))
    return beside.string();
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName("gridloom");
  return found ? *found : "";
}

static std::string readFile(const std::string &path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : "";
}

/// Seconds of a step of one program of a plan, the median of a few; on failure nullopt, and
/// `error`.
static std::optional<double> bench(const std::string &runtime, const fs::path &plan,
                                   const std::pair<std::string, std::string> &program,
                                   double expected, std::string &error) {
  std::string path = plan.string(), said = path + ".out", errors = path + ".err";
  double fitting = kRound.count() / std::max(expected, 1e-6);
  std::string runs = std::to_string(static_cast<int>(std::clamp(fitting, 3.0, 30.0)));
  std::vector<StringRef> arguments = {runtime, "bench",    path, "--json",  "--iters",
                                      runs,    "--warmup", "2",  "--entry", program.first};
  if (!program.second.empty())
    arguments.insert(arguments.end(), {"--dim", program.second});
  // Redirection does not truncate: a shorter text would leave the end of a longer one.
  std::error_code ignored;
  fs::remove(said, ignored);
  fs::remove(errors, ignored);
  std::string failed;
  int code = llvm::sys::ExecuteAndWait(runtime, arguments, /*Env=*/std::nullopt,
                                       {StringRef(), StringRef(said), StringRef(errors)},
                                       kStuck.count(), /*MemoryLimit=*/0, &failed);
  if (code != 0) {
    StringRef text = StringRef(failed);
    std::string log = readFile(errors);
    for (StringRef line : llvm::split(log, '\n'))
      if (line.consume_front("error: ") && text.empty())
        text = line;
    error = text.empty() ? "gridloom bench ended with " + std::to_string(code) : text.str();
    return std::nullopt;
  }
  llvm::Expected<llvm::json::Value> result = llvm::json::parse(readFile(said));
  const llvm::json::Object *object = result ? result->getAsObject() : nullptr;
  std::optional<double> milliseconds = object ? object->getNumber("median_ms") : std::nullopt;
  if (!result)
    llvm::consumeError(result.takeError());
  if (!milliseconds)
    error = "gridloom bench reports no median_ms";
  return milliseconds ? std::optional(*milliseconds / 1e3) : std::nullopt;
}

std::string Compilation::writePlanOf(Contender &contender) {
  std::string error;
  OwningOpRef<ModuleOp> copy = module->clone();
  if (failed(
          compileFrom(*findPhase("shard"), "allocate", *copy, contender.candidate->options, error)))
    return error;
  loom::FirstErrorHandler handler(&context, error, options.input);
  EmitSummary ignored;
  FailureOr<PlanFiles> plan = emitPlan(*copy, contender.folder, *target, ignored);
  if (failed(plan))
    return error.empty() ? "it cannot be emitted" : error;
  for (auto program : copy->getOps<plan::ProgramOp>()) {
    std::pair<std::string, std::string> name(program.getEntry().str(),
                                             plan::formatDims(program.getDims()));
    if (!llvm::is_contained(contender.programs, name)) // each stage has it
      contender.programs.push_back(std::move(name));
  }
  return writePlan(*plan, contender.folder, /*force=*/false);
}

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

/// Why plans for this machine cannot run here; empty if no reason is known.
static std::string findObstacle(const cluster::Machine &machine, const Target &target) {
  for (const cluster::DeviceKind &kind : machine.kinds) {
    TargetOptions named;
    named.name = kind.target;
    std::string ignored;
    std::unique_ptr<Target> of = kind.target.empty() ? nullptr : parseTarget(named, ignored);
    if (of && of->getTraits().kind != target.getTraits().kind)
      return "times are estimated for " + kind.name + ", but plans are compiled for --target " +
             target.getName();
  }
  return "";
}

LogicalResult Compilation::measureBest() {
  std::string runtime = findRuntime(), obstacle = findObstacle(choice.machine, *target);
  if (runtime.empty())
    obstacle = "the program gridloom is neither beside gridloom-compile nor on PATH";
  TemporaryFolder folder("gridloom-measure");
  if (obstacle.empty())
    obstacle = folder.getError();
  if (!obstacle.empty()) {
    fail("--measure-best runs plans on this machine: " + obstacle);
    return failure();
  }
  std::vector<Contender> contenders;
  for (Candidate &candidate : choice.candidates)
    if (candidate.simulatedSeconds > 0 && candidate.verdict != Verdict::Refused)
      contenders.push_back({&candidate, {}, {}, {}});
  if (contenders.size() < 2) {
    emitWarning(module->getLoc()) << "--measure-best has nothing to compare: "
                                  << (choice.candidates.size() < 2
                                          ? "the options leave one candidate; " +
                                                suggestCandidates()
                                          : "only one candidate fits");
    return success();
  }
  llvm::stable_sort(contenders, [](const Contender &a, const Contender &b) {
    return a.candidate->simulatedSeconds < b.candidate->simulatedSeconds;
  });
  contenders.resize(std::min(contenders.size(), static_cast<size_t>(options.measureBest)));
  auto show = [&](int round, size_t number) {
    showStatus("measuring candidate " + std::to_string(number + 1) + " of " +
               std::to_string(contenders.size()) + ", round " + std::to_string(round + 1) + " of " +
               std::to_string(kRounds));
  };
  for (int round = 0; round < kRounds; ++round)
    for (auto [number, contender] : llvm::enumerate(contenders)) {
      show(round, number);
      std::string error;
      if (round == 0) {
        contender.folder = folder.file(std::to_string(number) + ".plan");
        error = writePlanOf(contender);
      }
      double seconds = 0;
      for (const auto &program : contender.programs)
        if (error.empty())
          seconds += bench(runtime, contender.folder, program,
                           contender.candidate->simulatedSeconds, error)
                         .value_or(0);
      if (!error.empty()) {
        fail("--measure-best cannot run " + contender.candidate->name +
             " on this machine: " + error);
        return failure();
      }
      contender.seconds.push_back(seconds);
    }
  Candidate *best = nullptr;
  for (Contender &contender : contenders) {
    contender.candidate->measuredSeconds = cluster::getMedian(contender.seconds);
    if (!best || contender.candidate->measuredSeconds < best->measuredSeconds)
      best = contender.candidate;
  }
  choice.choose(*best);
  recordMeasured(contenders);
  return success();
}

//===----------------------------------------------------------------------===//
// The record
//===----------------------------------------------------------------------===//

/// Adds the measurements to "lab.measured.json" for a cluster file "lab.json"; it grows with each
/// compilation.
void Compilation::recordMeasured(ArrayRef<Contender> contenders) {
  if (options.cluster.empty() || cluster::parsePreset(options.cluster))
    return;
  std::string path = fs::path(options.cluster).replace_extension(".measured.json").string();
  llvm::json::Array list;
  if (std::error_code error; fs::exists(path, error)) {
    std::string text = readFile(path);
    llvm::Expected<llvm::json::Value> old = llvm::json::parse(isDeepJson(text) ? "" : text);
    llvm::json::Array *kept =
        old && old->getAsObject() ? old->getAsObject()->getArray("measurements") : nullptr;
    if (!old)
      llvm::consumeError(old.takeError());
    if (!kept) {
      emitWarning(module->getLoc()) << "'" << path
                                    << "' is no list of measurements; what was measured is only "
                                       "in the plan's report.json";
      return;
    }
    list = std::move(*kept);
  }
  for (const Contender &contender : contenders) {
    llvm::json::Array programs;
    for (const auto &[entry, dims] : contender.programs)
      programs.push_back(llvm::json::Object{{"entry", entry}, {"dims", dims}});
    list.push_back(llvm::json::Object{{"model", identity.name},
                                      {"graph", identity.graph},
                                      {"target", target->getName()},
                                      {"precision", getPrecision()},
                                      {"strategy", contender.candidate->name},
                                      {"programs", std::move(programs)},
                                      {"simulated_ms", contender.candidate->simulatedSeconds * 1e3},
                                      {"measured_ms", contender.candidate->measuredSeconds * 1e3}});
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::formatv(
      "{0:2}\n", llvm::json::Value(llvm::json::Object{{"measurements", std::move(list)}}));
  if (std::string reason = replaceFile(path, {text}); !reason.empty())
    emitWarning(module->getLoc()) << "cannot write '" << path << "': " << reason;
}
