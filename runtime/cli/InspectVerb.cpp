//===- InspectVerb.cpp - gridloom inspect ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/PlanViews.h"
#include "runtime/cli/page/Page.h"
#include "runtime/core/Error.h"
#include "support/FileSwap.h"
#include "support/OutputFormat.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static const char *const examples = R"(
Views:
  summary       what the plan is, takes, gives and communicates (default)
  collectives   every collective and transfer, in order, with its ONNX node
  memory        bytes of a rank per stage
  schedule      every step on its stream; a+N is the arena from byte N, r+N the memory that is
                registered for communication
  kernels       generated code and calls of libraries, the costly first: bytes moved and
                operations (flops) of one launch, registers and spilled bytes of a thread; what
                has no launches computes derived weights, once, when a plan is loaded
  weights       every weight and how it is cut
  states        what a session keeps between runs (weights in training, moments, caches): role,
                whole and local shape, how it is cut, bytes on a device
  ir            the program after each phase: lists the dumps, or prints one with --phase

Examples:
  gridloom inspect model.plan
  gridloom inspect model.plan kernels
  gridloom inspect model.plan collectives --json
  gridloom inspect model.plan ir --phase partition
  gridloom inspect model.plan --format html -o page.html --trace run.json
      all of it as one page for a browser: mesh, timeline, memory, model, tables; --trace puts a
      run that 'gridloom run --trace' recorded beside the simulated one
  gridloom inspect model.onnx
      inputs, outputs, operators and weights of a model (needs the compiler)

Steps of a loop whose iterations the run decides count once, collectives as often as the plan's
report.json says that it iterates at most.

On a terminal tables are made to fit: '+3' stands for three more, '…' for the middle of a name;
--wide and --json show everything. Nothing of the plan is run.)";

namespace {

struct Settings {
  std::string plan, view = "summary", phase;
  std::string output, trace; ///< for --format html
  bool force = false;
  OutputFormat format;
  bool isPage() const { return format.getName() == "html"; }
};

} // namespace

static const std::vector<std::string> &getViewNames() {
  static const std::vector<std::string> names{"summary", "collectives", "memory", "schedule",
                                              "kernels", "weights",     "states", "ir"};
  return names;
}

/// The dumps of all phases in order: their names are like "03-shard.mlir".
static std::vector<fs::path> listDumps(const fs::path &folder) {
  std::vector<fs::path> dumps;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error))
    dumps.push_back(entry.path());
  std::sort(dumps.begin(), dumps.end());
  return dumps;
}

static std::string getPhase(const fs::path &dump) {
  std::string stem = dump.stem().string();
  size_t dash = stem.find('-');
  return dash == std::string::npos ? stem : stem.substr(dash + 1);
}

static int showIr(const Settings &settings) {
  fs::path folder = fs::path(settings.plan) / "ir";
  std::vector<fs::path> dumps = listDumps(folder);
  if (settings.phase.empty()) {
    Document document;
    document.addTable("phases", {"phase", "file", "bytes"});
    for (const fs::path &dump : dumps)
      document.addRow({getPhase(dump), dump.string(), bytesCell(fs::file_size(dump))});
    settings.format.write(document);
    return 0;
  }
  std::string known;
  for (const fs::path &dump : dumps) {
    if (getPhase(dump) == settings.phase || dump.stem() == settings.phase) {
      std::ifstream file(dump);
      if (file.peek() != EOF) // else << fails
        std::cout << file.rdbuf();
      if (file.bad() || !file.is_open())
        throw Error(ErrorCode::InvalidArgument, dump.string() + ": cannot be read");
      return 0;
    }
    known += (known.empty() ? "" : ", ") + getPhase(dump);
  }
  throw Error(ErrorCode::InvalidArgument,
              folder.string() + " has no dump of phase " + settings.phase +
                  (known.empty() ? "; it is empty" : "; there are " + known));
}

/// Whether the path does not exist or is a page, which may be replaced.
static bool isFree(const fs::path &path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    return !fs::exists(path, error);
  std::string start(1024, '\0');
  std::ifstream(path).read(start.data(), std::streamsize(start.size()));
  return start.find("content=\"gridloom inspect\"") != std::string::npos;
}

static int writePage(const Settings &settings, const Plan &plan) {
  plan.requireOutside("--output", settings.output);
  if (!settings.force && !isFree(settings.output))
    throw Error(ErrorCode::InvalidArgument,
                settings.output + " exists and is no page of gridloom inspect; choose another "
                                  "--output, or --force to replace it");
  std::string page = makePage(plan, settings.trace);
  if (std::string reason = replaceFile(settings.output, {page}); !reason.empty())
    throw Error(ErrorCode::InvalidArgument, settings.output + " cannot be written: " + reason);
  std::cout << settings.output << ": " << formatBytes(page.size(), "B")
            << ", open it in a browser\n";
  return 0;
}

static int inspect(const Settings &settings) {
  if (!settings.phase.empty() && settings.view != "ir")
    throw Error(ErrorCode::InvalidArgument, "--phase concerns the view 'ir' only");
  if (!settings.phase.empty() && settings.format.isJson())
    throw Error(ErrorCode::InvalidArgument,
                "--phase " + settings.phase + " prints a program as text; leave --json out");
  std::shared_ptr<const Plan> plan = Plan::load(settings.plan, {.requireTarget = false});
  if (settings.isPage())
    return writePage(settings, *plan);
  if (settings.view == "ir")
    return showIr(settings);
  static const std::map<std::string, Document (*)(const Plan &)> views{
      {"summary", makeSummary},   {"collectives", makeCollectives}, {"memory", makeMemory},
      {"schedule", makeSchedule}, {"kernels", makeKernels},         {"weights", makeWeights},
      {"states", makeStates}};
  settings.format.write(views.at(settings.view)(*plan));
  return 0;
}

static bool isView(const std::string &name) {
  return std::find(getViewNames().begin(), getViewNames().end(), name) != getViewNames().end();
}

/// Also accepts `inspect kernels model.plan`.
static void sortArguments(Settings &settings, bool hasView) {
  bool isFolder = fs::exists(settings.plan);
  if (isView(settings.plan) && hasView && !isView(settings.view))
    std::swap(settings.plan, settings.view);
  else if (isView(settings.plan) && !hasView && !isFolder)
    throw CLI::ValidationError(settings.plan + " is a view: write gridloom inspect PLAN " +
                               settings.plan);
  if (isView(settings.view))
    return;
  std::string names;
  for (const std::string &name : getViewNames())
    names += (names.empty() ? "" : ", ") + name;
  std::string nearest = suggest(settings.view, getViewNames());
  throw CLI::ValidationError("there is no view '" + settings.view + "'" +
                             (nearest.empty() ? "; the views are " + names : nearest));
}

static void checkPageOptions(const Settings &settings, bool hasView) {
  if (!settings.isPage()) {
    if (!settings.output.empty() || !settings.trace.empty() || settings.force)
      throw CLI::ValidationError("-o, --trace and --force are for --format html, which writes a "
                                 "page; other formats are printed");
    return;
  }
  if (settings.output.empty())
    throw CLI::ValidationError("--format html needs a file for the page: -o page.html");
  if (hasView)
    throw CLI::ValidationError("--format html shows all views on one page; leave '" +
                               settings.view + "' out");
}

static void addPageOptions(CLI::App &verb, Settings &settings) {
  verb.add_option("-o,--output", settings.output, "file for the page of --format html")
      ->type_name("FILE")
      ->check(notEmpty());
  verb.add_option(
          "--trace", settings.trace,
          "with --format html: a run's trace (gridloom run --trace FILE) to draw beside the "
          "simulated run")
      ->type_name("FILE")
      ->check(notEmpty());
  verb.add_flag("--force", settings.force, "replace a file that is no such page");
}

Verb gridloom::rt::addInspect(CLI::App &app) {
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand("inspect", "Show the contents of a plan");
  verb->footer(examples);
  verb->add_option("plan", settings->plan, "folder that 'gridloom compile' wrote")->required();
  auto *view =
      verb->add_option("view", settings->view, "what to show; see below")->capture_default_str();
  settings->format.addOptions(*verb, {"html"});
  addPageOptions(*verb, *settings);
  verb->add_option("--phase", settings->phase, "print the program after this phase (view ir)")
      ->check(notEmpty());
  verb->parse_complete_callback([settings, view] {
    sortArguments(*settings, view->count() != 0);
    checkPageOptions(*settings, view->count() != 0);
  });
  return {verb, [settings] { return inspect(*settings); }};
}
