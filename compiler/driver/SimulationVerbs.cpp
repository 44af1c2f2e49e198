//===- SimulationVerbs.cpp - gridloom plan and gridloom simulate ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/SimulationVerbs.h"

#include "runtime/trace/Trace.h"

#include "support/FileSwap.h"
#include "support/Layers.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>

using namespace gridloom;

namespace fs = std::filesystem;

void gridloom::addOutcomeOptions(CLI::App &verb, OutcomeOptions &options, bool hasFolder) {
  if (hasFolder)
    verb.add_option("-o,--output", options.folder,
                    "folder to write report.json and plan.strategy to")
        ->type_name("FOLDER")
        ->check(notEmpty());
  verb.add_option("--costs", options.costs,
                  "trace of a run (gridloom run --trace FILE): steps that it names take the time "
                  "they took there, on average")
      ->type_name("FILE")
      ->check(notEmpty());
  verb.add_option("--trace", options.trace,
                  "file for the simulated run as Perfetto and chrome://tracing open it, one rank "
                  "of each stage, with its memory")
      ->type_name("FILE")
      ->check(notEmpty());
  options.format.addOptions(verb);
}

static double toMs(double seconds) { return seconds * 1e3; }

/// Milliseconds, to a tenth of a microsecond.
static Cell timeCell(double ms) { return numberCell(ms, 4); }

static void addPrograms(Document &document, const PlanOutcome &outcome) {
  document.addTable("programs", {"entry", "dims", "step_ms", "compute_ms", "comm_ms", "exposed_ms",
                                 "bubble_percent"});
  double all = 0;
  for (const sim::ProgramRun &run : outcome.runs) {
    all += toMs(run.seconds);
    document.addRow({run.entry, run.dims, timeCell(toMs(run.seconds)), timeCell(run.stats.compute),
                     timeCell(run.stats.communication), timeCell(run.stats.exposed),
                     numberCell(100 * run.stats.bubble, 0)});
  }
  if (outcome.runs.size() > 1) // candidates are compared by it
    document.addField("step_ms_of_all", timeCell(all));
  document.addTable("stages", {"entry", "dims", "stage", "rank", "compute_ms", "comm_ms",
                               "exposed_ms", "bubble_percent", "peak_bytes", "allocated_bytes"});
  for (const sim::ProgramRun &run : outcome.runs)
    for (const sim::StageRun &stage : run.stages)
      document.addRow({run.entry, run.dims, stage.stage, stage.rank, timeCell(stage.stats.compute),
                       timeCell(stage.stats.communication), timeCell(stage.stats.exposed),
                       numberCell(100 * stage.stats.bubble, 0), bytesCell(stage.memory.getPeak()),
                       bytesCell(stage.memory.getAllocated())});
}

/// Lists repetitions of which only some were run, so that their times are extrapolated.
static void addPartial(Document &document, const PlanOutcome &outcome) {
  if (std::all_of(outcome.runs.begin(), outcome.runs.end(),
                  [](const sim::ProgramRun &run) { return run.partial.empty(); }))
    return;
  document.addTable("extrapolated", {"entry", "dims", "what", "run", "of"});
  for (const sim::ProgramRun &run : outcome.runs)
    for (const sim::PartialRun &partial : run.partial)
      document.addRow({run.entry, run.dims, partial.what, partial.shown, partial.count});
}

/// What a trace of the runs leaves out, in a line; empty if nothing.
static std::string describeLeftOut(const std::vector<sim::ProgramRun> &runs) {
  std::string text;
  for (const sim::ProgramRun &run : runs)
    for (const sim::PartialRun &partial : run.partial)
      text += (text.empty() ? "" : "; ") + run.entry + (run.dims.empty() ? "" : " ") + run.dims +
              ": " + std::to_string(partial.count - partial.shown) + " of " +
              std::to_string(partial.count) + " " + partial.what;
  return text;
}

/// Sums equal steps of all layers.
static std::vector<sim::StepSum> sumLayers(std::vector<sim::StepSum> steps) {
  std::map<std::tuple<std::string, std::string, int64_t, bool>, size_t> numbers;
  std::vector<sim::StepSum> sums;
  for (sim::StepSum &step : steps) {
    std::string node = foldLayers(step.node);
    auto [entry, isNew] =
        numbers.try_emplace({step.name, node, step.stage, step.isMeasured}, sums.size());
    if (isNew) {
      sums.push_back(std::move(step));
      continue;
    }
    sim::StepSum &sum = sums[entry->second];
    sum.node = node;
    sum.times += step.times;
    sum.seconds += step.seconds;
  }
  return sums;
}

/// The largest `most` steps of all programs together.
static void addSteps(Document &document, const PlanOutcome &outcome, size_t most, bool forTools) {
  std::vector<std::pair<const sim::ProgramRun *, sim::StepSum>> all;
  for (const sim::ProgramRun &run : outcome.runs) {
    std::vector<sim::StepSum> steps = sim::sumSteps(run);
    if (!forTools)
      steps = sumLayers(std::move(steps));
    for (sim::StepSum &sum : steps)
      all.emplace_back(&run, std::move(sum));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) {
    return a.second.seconds > b.second.seconds;
  });
  all.resize(std::min(all.size(), most));
  document.addTable("largest_steps",
                    {"ms", "times", "step", "dims", "stage", "onnx_node", "measured"});
  for (const auto &[run, sum] : all)
    document.addRow({timeCell(toMs(sum.seconds)), sum.times, sum.name, run->dims, sum.stage,
                     sum.node, sum.isMeasured});
}

/// Only for tools: people have the trace.
static void addMemory(Document &document, const PlanOutcome &outcome) {
  // Without estimates there is nothing to compare.
  if (std::any_of(outcome.memory.begin(), outcome.memory.end(),
                  [](const PlannedMemory &memory) { return memory.estimated > 0; })) {
    document.addTable("devices", {"stage", "estimated_bytes", "allocated_bytes"});
    for (const PlannedMemory &memory : outcome.memory)
      document.addRow({memory.stage, memory.estimated, memory.needs.getAllocated()});
  }
  document.addTable("memory", {"entry", "dims", "stage", "ms", "bytes"});
  for (const sim::ProgramRun &run : outcome.runs)
    for (const sim::StageRun &stage : run.stages)
      for (auto [seconds, bytes] : stage.memory.points)
        document.addRow({run.entry, run.dims, stage.stage, toMs(seconds), bytes});
}

static void addLines(Document &document, const char *table, const char *column,
                     const std::vector<std::string> &lines) {
  if (lines.empty())
    return;
  document.addTable(table, {column});
  for (const std::string &line : lines)
    document.addRow({line});
}

static Document describe(const PlanOutcome &outcome, bool forTools) {
  Document document;
  auto addText = [&](const char *name, const std::string &text) {
    if (!text.empty())
      document.addField(name, text);
  };
  addText("model", outcome.model);
  addText("mesh", outcome.mesh);
  addText("strategy", outcome.strategy);
  addText("chosen_as", outcome.chosenAs);
  addText("stopped", outcome.stopped);
  if (forTools && !outcome.strategy.empty()) {
    document.addField("candidates_left", outcome.left);
    document.addField("plan_steps", outcome.planSteps);
  }
  addText("machine", outcome.machine);
  addText("target", outcome.target);
  addText("precision", outcome.precision);
  if (outcome.boundMs > 0) {
    document.addField("sum_ms", timeCell(outcome.sumMs));
    document.addField("bound_ms", timeCell(outcome.boundMs));
    document.addField("bound_covers", outcome.boundScope);
  }
  if (outcome.memoryLimit)
    document.addField("limit_bytes", bytesCell(outcome.memoryLimit));
  if (auto [measured, all] = sim::countMeasured(outcome.runs); measured) {
    document.addField("measured_steps", measured);
    document.addField("steps", all);
  }
  addPrograms(document, outcome);
  addPartial(document, outcome);
  constexpr size_t kMostCandidates = 12, kMostSteps = 10;
  constexpr size_t all = std::numeric_limits<size_t>::max();
  addCandidates(document, outcome.candidates, forTools ? all : kMostCandidates);
  addSteps(document, outcome, forTools ? all : kMostSteps, forTools);
  if (forTools)
    addMemory(document, outcome);
  auto shown = [&](const std::vector<std::string> &lines) {
    return forTools ? lines : foldLines(lines);
  };
  addLines(document, "warnings", "warning", shown(outcome.warnings));
  addLines(document, "remarks", "remark", shown(outcome.remarks));
  return document;
}

/// Why no report may be written to `folder`, in one line; empty if it may: the folder is new, or
/// empty, or has an earlier report.
static std::string findFolderObstacle(const fs::path &folder) {
  std::error_code error;
  if (!fs::exists(folder, error) ||
      (fs::is_directory(folder, error) && fs::is_empty(folder, error)))
    return "";
  if (fs::exists(folder / "manifest.json", error))
    return "'" + folder.string() + "' is a compiled plan; choose another --output";
  if (!fs::exists(folder / "plan.strategy", error))
    return "'" + folder.string() +
           "' exists and has no report of gridloom plan; choose another --output";
  return "";
}

/// Whether `path` is in the folder of a compiled plan, or in one of its folders.
static bool isInPlan(const fs::path &path) {
  std::error_code error;
  fs::path folder = fs::weakly_canonical(path, error).parent_path();
  for (const fs::path &each : {folder, folder.parent_path()})
    if (fs::exists(each / "manifest.json", error) && fs::exists(each / "stage0.pb", error))
      return true;
  return false;
}

/// Why no trace may be written to `path`, in one line; empty if it may.
static std::string findTraceObstacle(const fs::path &path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return "--trace " + path.string() + " is a folder; name a file";
  if (isInPlan(path))
    return "--trace " + path.string() + " is in the folder of a plan; choose another file";
  if (!rt::isFreeForTrace(path))
    return "--trace " + path.string() + " exists and is not a trace; choose another file";
  return "";
}

bool gridloom::checkOutcome(const OutcomeOptions &options) {
  std::string error = options.folder.empty() ? "" : findFolderObstacle(options.folder);
  if (error.empty() && !options.trace.empty())
    error = findTraceObstacle(options.trace);
  if (!error.empty())
    std::cerr << "error: " << makePrintable(error) << "\n";
  return error.empty();
}

/// Writes report.json and plan.strategy. Returns the error, or "".
static std::string writeFolder(const PlanOutcome &outcome, const fs::path &folder) {
  std::error_code error;
  if (fs::create_directories(folder, error); error)
    return "cannot make '" + folder.string() + "': " + error.message();
  std::map<std::string, std::string> files = outcome.files;
  std::ostringstream report;
  describe(outcome, /*forTools=*/true).write(report, /*asJson=*/true);
  files["report.json"] = report.str();
  if (fs::path kept = folder / "plan.strategy"; fs::exists(kept, error)) {
    std::stringstream now;
    now << std::ifstream(kept, std::ios::binary).rdbuf();
    if (now.str() != files["plan.strategy"])
      return "'" + kept.string() +
             "' exists and says something else; remove it, or choose another "
             "--output";
  }
  for (const auto &[name, text] : files)
    if (std::string reason = replaceFile(folder / name, {text}); !reason.empty())
      return "cannot write '" + (folder / name).string() + "': " + reason;
  return "";
}

int gridloom::showOutcome(const PlanOutcome &outcome, const OutcomeOptions &options) {
  std::string error;
  if (!options.folder.empty())
    error = writeFolder(outcome, options.folder);
  if (error.empty() && !options.trace.empty())
    try {
      rt::writeChromeTrace(options.trace, sim::formatTrace(outcome.runs));
      if (std::string leftOut = describeLeftOut(outcome.runs); !leftOut.empty())
        std::cerr << "warning: " << makePrintable(options.trace)
                  << " leaves out what goes on like the rest: " << leftOut << "\n";
    } catch (const std::exception &failure) {
      error = failure.what();
    }
  if (!error.empty()) {
    std::cerr << "error: " << makePrintable(error) << "\n";
    return 1;
  }
  options.format.write(describe(outcome, options.format.isJson()));
  return 0;
}
