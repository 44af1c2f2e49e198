//===- BenchVerb.cpp - gridloom bench: a plan -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/CollectiveBench.h"
#include "runtime/cli/Figures.h"
#include "runtime/cli/Job.h"
#include "runtime/core/Error.h"
#include "support/OutputFormat.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;

static const char *const examples = R"(
Examples:
  gridloom bench model.plan
      times of 20 runs, and how much communication they hide: the plan is run with its
      communication beside its computation, and one after the other
  gridloom bench model.plan --input 'ids=randint(0,30522)' --iters 100 --json
  gridloom bench all_reduce -b 1K -e 64M -f 2 -n 4
      a collective over sizes, with the columns of nccl-tests
  gridloom bench all_reduce -n 8 --transport nccl
      the same between GPUs

Times are medians in milliseconds; all ranks begin each run together. exposed: communication that no
computation hides. On GPUs a run is a CUDA graph; 'stepped' figures are of runs whose steps are
submitted one by one, which alone can be timed. 'gap' is the share of a run in which the GPU does
nothing, and on CPUs the share outside of kernels and communication.)";

namespace {

struct BenchSettings {
  JobSettings job;
  int iterations = 20, warmup = 3;
  OutputFormat format;
};

} // namespace

namespace {
/// Makes all ranks begin each run together: otherwise a pipeline's first stages would begin the
/// next run while the last stages are at work, and its bubble would not show.
class StartLine {
public:
  explicit StartLine(Transport &transport) : host(createCpuDevice(1)) {
    if (transport.getSize() < 2)
      return;
    std::vector<int> ranks(static_cast<size_t>(transport.getSize()));
    std::iota(ranks.begin(), ranks.end(), 0);
    stream = host->createStream(StreamKind::Communication, "start");
    world = transport.createCommunicator(ranks, "start");
  }
  void meet() {
    if (!world)
      return;
    world->barrier(*stream, {"barrier", ++sequence, "the start of a run"});
    stream->synchronize();
  }

private:
  std::unique_ptr<Device> host;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> world;
  uint32_t sequence = 0;
};
} // namespace

/// The statistics of `settings.iterations` runs; over all ranks on rank 0.
static std::vector<RunStats> measure(const Job &job, const BenchSettings &settings,
                                     const World &world, Transport &transport,
                                     const SessionOptions &options) {
  JobRank rank = job.start(world, transport, options);
  StartLine line(transport);
  std::vector<RunStats> runs;
  for (int i = -settings.warmup; i < settings.iterations; ++i) {
    line.meet();
    RunStats stats = job.run(*rank.session);
    if (i >= 0)
      runs.push_back(stats);
  }
  for (RunStats &stats : runs)
    stats = gatherStats(*rank.session, stats);
  return runs;
}

namespace {
/// Normal runs; runs with steps launched one by one, whose steps can be timed; and such runs
/// without overlapped communication (empty for one rank).
struct Measured {
  std::vector<RunStats> usual, stepped, apart;
};
} // namespace

static Cell timeCell(double ms, int digits) { return numberCell(ms, getDigits(ms, digits)); }

static void tellDevice(Document &document, const RunStats &usual, const RunStats &stepped) {
  document.addField("graph_launches", numberCell(usual.graphs, 0));
  document.addField("device_ms", timeCell(usual.device, 3));
  document.addField("stepped_median_ms", timeCell(stepped.wall, 2));
  document.addField("stepped_device_ms", timeCell(stepped.device, 3));
  document.addField("stepped_busy_ms", timeCell(stepped.busy, 3));
  document.addField("kernels_ms", timeCell(stepped.kernels, 3));
  // The share of a run outside of its steps, which are timed separately.
  auto share = [&](double span) { return span > 0 ? 100 * (span - stepped.busy) / span : 0; };
  document.addField("stepped_gap_percent", numberCell(share(stepped.device), 1));
  document.addField("gap_percent", numberCell(std::max(0.0, share(usual.device)), 1));
}

static void tell(const Job &job, const BenchSettings &settings, const Measured &measured) {
  RunStats median = getMedian(measured.usual), stepped = getMedian(measured.stepped);
  auto byWall = [](const RunStats &a, const RunStats &b) { return a.wall < b.wall; };
  auto [fastest, slowest] =
      std::minmax_element(measured.usual.begin(), measured.usual.end(), byWall);
  Document document;
  document.addField("plan", job.getPlan().getFolder().string());
  document.addField("mesh", formatMesh(job.getPlan().getMesh()));
  if (std::string loopback =
          describeLoopback(job.getSettings(), job.getPlan().getMesh().getNumRanks());
      !loopback.empty())
    document.addField("transport", loopback);
  document.addField("runs", settings.iterations);
  document.addField("median_ms", timeCell(median.wall, 2));
  document.addField("fastest_ms", timeCell(fastest->wall, 2));
  document.addField("slowest_ms", timeCell(slowest->wall, 2));
  document.addField("compute_ms", timeCell(stepped.compute, 2));
  if (stepped.communication > 0 && !measured.apart.empty()) {
    RunStats serial = getMedian(measured.apart);
    double shorter = std::min(serial.compute, serial.communication);
    // Clamp, since noise on a busy machine may exceed what can be hidden.
    double hidden = shorter > 0 ? std::clamp((serial.wall - stepped.wall) / shorter, 0.0, 1.0) : 0;
    document.addField("communication_ms", timeCell(stepped.communication, 2));
    document.addField("exposed_ms", timeCell(stepped.exposed, 2));
    document.addField("serial_median_ms", timeCell(serial.wall, 2));
    document.addField("hidden_percent", numberCell(100 * hidden, 0));
  }
  if (stepped.isPipeline)
    document.addField("bubble_percent", numberCell(100 * stepped.bubble, 0));
  if (job.getPlan().getDeviceKind().hasGraphs())
    tellDevice(document, median, stepped);
  else if (median.wall > 0) // between steps, and before and after them
    document.addField("gap_percent", numberCell(100 * (1 - median.busy / median.wall), 1));
  settings.format.write(document);
  flushOutput();
}

static int benchPlan(const BenchSettings &settings) {
  if (settings.job.plan.empty())
    throw Error(ErrorCode::InvalidArgument,
                "bench takes a plan or a collective; see gridloom bench --help");
  if (std::string nearest = suggest(settings.job.plan, getCollectiveNames());
      !nearest.empty() && !std::filesystem::exists(settings.job.plan))
    throw Error(ErrorCode::InvalidArgument,
                "there is no plan or collective '" + settings.job.plan + "'" + nearest);
  std::optional<Job> made;
  beforeJoining(settings.job, [&] { made.emplace(settings.job, /*fillInputs=*/true); });
  const Job &job = *made;
  return job.launch([&](const World &world, Transport &transport) {
    SessionOptions options;
    Measured measured;
    measured.usual = measured.stepped = measure(job, settings, world, transport, options);
    bool hasGraphs = job.getPlan().getDeviceKind().hasGraphs() && !settings.job.noGraphs;
    if (hasGraphs) {
      options.graphs = false;
      measured.stepped = measure(job, settings, world, transport, options);
    }
    options.serialize = true;
    if (world.size > 1)
      measured.apart = measure(job, settings, world, transport, options);
    if (world.rank == 0)
      tell(job, settings, measured);
  });
}

Verb gridloom::rt::addBench(CLI::App &app) {
  auto settings = std::make_shared<BenchSettings>();
  CLI::App *verb = app.add_subcommand("bench", "Time a plan, or a collective over sizes");
  verb->footer(examples);
  addPlanOptions(*verb, settings->job);
  verb->get_option("plan")->required(false);
  verb->add_option("--iters", settings->iterations, "timed runs")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--warmup", settings->warmup, "runs before them")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  settings->format.addOptions(*verb);
  verb->require_subcommand(0, 1);
  std::vector<Verb> collectives = addCollectives(*verb);
  return {verb, [verb, settings, collectives] {
            for (const Verb &collective : collectives) {
              if (!collective.app->parsed())
                continue;
              for (const CLI::Option *option : verb->get_options())
                if (option->count() != 0)
                  throw Error(ErrorCode::InvalidArgument, option->get_name() + " goes behind '" +
                                                              collective.app->get_name() +
                                                              "', or does not concern it");
              return collective.run();
            }
            return benchPlan(*settings);
          }};
}
