//===- RunVerb.cpp - gridloom run -----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Values.h"
#include "runtime/cli/Figures.h"
#include "runtime/cli/Job.h"
#include "runtime/core/Error.h"
#include "support/OutputFormat.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <iostream>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static const char *const examples = R"(
Examples:
  gridloom run model.plan --input x=x.npy --output results
      one process per device of the plan's mesh; results/NAME.npy for each output
  gridloom run model.plan --input 'ids=randint(0,30522)' --input mask=ones --seed 7
      made-up inputs, the same on every run and every mesh; outputs are summarised
  gridloom run model.plan --input x=x.npy --repeat 20 --trace trace.json
      twenty runs, and a file of the last that ui.perfetto.dev opens
  gridloom run model.plan --input x=x.npy --weights finetuned.onnx
      the weights of another file, without compiling again
  gridloom run model.plan --input x=x.npy --transport loopback
      all ranks of a plan for GPUs on one GPU: checks the split, says nothing of its speed
  torchrun --nproc-per-node 4 --no-python gridloom run model.plan --input x=x.npy
      under torchrun, mpirun or srun each process is one rank

A plan holds native code: running one is running a program.)";

namespace {

struct RunSettings {
  JobSettings job;
  std::string output;
  bool force = false;
  int repeat = 1;
  std::string trace;
};

} // namespace

/// Creates the folder and refuses to replace files without --force.
static void prepareOutput(const RunSettings &settings, const EntrySpecialisation &specialisation) {
  std::error_code error;
  fs::create_directories(settings.output, error);
  if (!fs::is_directory(settings.output))
    throw Error(ErrorCode::InvalidArgument,
                "--output " + settings.output + " cannot be made: " +
                    (error ? error.message() : "a file of this name is in the way"));
  std::set<std::string> names;
  for (const Argument &output : specialisation.outputs) {
    std::string name = getNpyName(output.name);
    if (!names.insert(name).second)
      throw Error(ErrorCode::InvalidArgument, "two outputs would be written to " + name);
    if (!settings.force && fs::exists(fs::path(settings.output) / name))
      throw Error(ErrorCode::InvalidArgument, (fs::path(settings.output) / name).string() +
                                                  " exists; choose another --output or --force");
  }
}

static void runOnRank(const Job &job, const RunSettings &settings, const World &world,
                      Transport &transport) {
  SessionOptions options;
  options.trace = !settings.trace.empty();
  JobRank rank = job.start(world, transport, options);
  Session &session = *rank.session;

  std::vector<RunStats> runs;
  for (int i = 0; i < settings.repeat; ++i)
    runs.push_back(job.run(session));
  for (RunStats &stats : runs)
    stats = gatherStats(session, stats);
  for (const Argument &output : job.getSpecialisation().outputs) {
    HostArray whole = session.gatherOutput(output.name);
    if (world.rank != 0)
      continue;
    if (settings.output.empty())
      std::cout << makePrintable(output.name) << "  " << summarize(whole) << "\n";
    else
      writeNpy(fs::path(settings.output) / getNpyName(output.name), whole);
  }
  if (!settings.trace.empty()) {
    std::vector<std::string> events =
        session.gatherText(toChromeEvents(session.getTrace(), world.rank));
    if (world.rank == 0)
      writeChromeTrace(settings.trace, events);
  }
  if (world.rank != 0)
    return;
  if (settings.repeat > 1)
    std::cout << formatSpread(runs) << "\n";
  std::string loopback = describeLoopback(job.getSettings(), world.size);
  std::cout << (loopback.empty() ? "" : loopback + " | ") << formatStats(getMedian(runs)) << "\n";
  flushOutput(); // here, since errors are still reported
}

Verb gridloom::rt::addRun(CLI::App &app) {
  auto settings = std::make_shared<RunSettings>();
  CLI::App *verb = app.add_subcommand("run", "Run a plan on its ranks");
  verb->footer(examples);
  addPlanOptions(*verb, settings->job);
  auto *output = verb->add_option("--output", settings->output,
                                  "folder for one .npy per output; default: summarise them")
                     ->check(notEmpty());
  verb->add_flag("--force", settings->force, "replace outputs that exist")->needs(output);
  verb->add_option("--repeat", settings->repeat, "runs; times are the median's")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--trace", settings->trace, "file for the last run's trace (Perfetto)")
      ->check(notEmpty());
  return {verb, [settings] {
            std::optional<Job> job;
            beforeJoining(settings->job, [&] {
              job.emplace(settings->job, /*fillInputs=*/false);
              job->getPlan().requireOutside("--output", settings->output);
              job->getPlan().requireOutside("--trace", settings->trace);
              if (!settings->output.empty())
                prepareOutput(*settings, job->getSpecialisation());
              if (!settings->trace.empty())
                requireTraceFile(settings->trace);
            });
            return job->launch([&](const World &world, Transport &transport) {
              runOnRank(*job, *settings, world, transport);
            });
          }};
}
