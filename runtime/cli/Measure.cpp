//===- Measure.cpp - gridloom devices --measure ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Compiles models as users do and runs them on as many ranks at once as there are cores, so that
// kernels reach the rates of a rank among others. Then times collectives among two and more ranks.
// Ranks are processes, as in `run`; rank 0 returns its measurements in a file.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Measure.h"

#include "cluster/ClusterWriter.h"
#include "runtime/cli/CollectiveBench.h"
#include "runtime/cli/MeasureModels.h"
#include "runtime/cli/StepTimes.h"
#include "runtime/cli/Verbs.h"
#include "runtime/core/Error.h"
#include "runtime/device/Registry.h"
#include "runtime/launch/Launcher.h"
#include "support/FileSwap.h"
#include "support/ProgressLine.h"
#include "support/TemporaryFolder.h"
#include "support/Text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using cluster::CollectiveSample;
using cluster::NumberType;
using cluster::WorkClass;
using cluster::WorkSample;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Thrown to end the verb with an exit code: a rank was interrupted and has reported it.
struct Interrupted {
  int code;
};

class Measurement {
public:
  explicit Measurement(const MeasureSettings &settings);
  cluster::Cluster run();
  /// The median error of estimates for the measured collectives.
  double getCollectiveError() const { return links.medianError; }

private:
  /// Shows progress on a terminal.
  void report(const std::string &what);
  std::string compile(const MeasuredModel &model);
  void timeModel(const MeasuredModel &model);
  void timeCollectivesOf(int members);
  json runRanks(int count, const std::function<json(const World &, Transport &)> &main);
  cluster::Cluster describe() const;

  const MeasureSettings &settings;
  TemporaryFolder folder;
  const DeviceKind &device;
  unsigned cores = 1;
  int ranks = 2, busyRanks = 1;
  int numParts = 0, part = 0;
  ProgressLine progress;
  std::vector<WorkSample> work;
  std::vector<CollectiveSample> collectives;
  cluster::LinkFit links = {};
};

} // namespace

//===----------------------------------------------------------------------===//
// Files and processes
//===----------------------------------------------------------------------===//

/// Fail before a minute's measurement, not after it, if the file cannot be written.
static void checkOutput(const MeasureSettings &settings) {
  const std::string &output = settings.output;
  std::error_code error;
  if (fs::is_directory(output, error))
    throw Error(ErrorCode::InvalidArgument, "-o " + output + " is a folder; name a file");
  if (fs::exists(output, error) && !settings.force)
    throw Error(ErrorCode::InvalidArgument, output + " exists; choose another -o or --force");
  fs::path parent = fs::absolute(output).parent_path();
  if (!fs::is_directory(parent, error))
    throw Error(ErrorCode::InvalidArgument,
                "-o " + output + " cannot be written: there is no folder " + parent.string());
  // Create a file to find out: folders such as /proc claim to be writable by root.
  if (std::string reason = NewFile(output).write({}); !reason.empty())
    throw Error(ErrorCode::InvalidArgument, "-o " + output + " cannot be written: " + reason);
}

/// The last line of a file, without the prefix "error: ".
static std::string readLastLine(const std::string &path) {
  std::ifstream stream(path);
  std::string line, last;
  while (std::getline(stream, line))
    if (!line.empty())
      last = line;
  return last.starts_with("error: ") ? last.substr(strlen("error: ")) : last;
}

/// Runs the compiler with `log` as stderr. Throws Unavailable with its last line if it fails.
static void runCompiler(std::vector<std::string> arguments, const std::string &log) {
  std::vector<char *> argv;
  for (std::string &argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  fflush(nullptr);
  // Ctrl-C ends the compiler first, then this process properly: it removes its folder.
  auto old = std::signal(SIGINT, SIG_IGN);
  pid_t child = fork();
  if (child == 0) {
    std::signal(SIGINT, old);
    if (!freopen(log.c_str(), "w", stderr) || !freopen("/dev/null", "w", stdout))
      _exit(1);
    try {
      execCompiler(argv.data());
    } catch (const std::exception &error) {
      fprintf(stderr, "error: %s\n", error.what());
      fflush(stderr);
    }
    _exit(1);
  }
  int failure = errno, status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  std::signal(SIGINT, old);
  if (child < 0)
    throw Error(ErrorCode::Unavailable,
                std::string("cannot start the compiler: ") + strerror(failure));
  if (WIFSIGNALED(status)) {
    int signal = WTERMSIG(status);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
      throw Interrupted{128 + signal};
    throw Error(ErrorCode::Unavailable, std::string("the compiler was ended by ") +
                                            strsignal(signal) + ", on what is to be timed");
  }
  if (WEXITSTATUS(status) != 0)
    throw Error(ErrorCode::Unavailable, "cannot compile what is to be timed: " + readLastLine(log));
}

/// Runs `main` on `count` ranks; returns rank 0's result.
json Measurement::runRanks(int count, const std::function<json(const World &, Transport &)> &main) {
  std::string path = folder.file("times.json");
  auto onRank = [&](const World &world, Transport &transport) {
    json result = main(world, transport);
    if (world.rank == 0 && !(std::ofstream(path) << result))
      throw Error(ErrorCode::Unavailable, "cannot write " + path);
  };
  LaunchOptions options;
  options.transport.deadline = std::chrono::seconds(60);
  if (int code = launchRanks(count, options, onRank))
    throw Interrupted{code};
  std::ifstream stream(path);
  return json::parse(stream);
}

//===----------------------------------------------------------------------===//
// What is timed
//===----------------------------------------------------------------------===//

Measurement::Measurement(const MeasureSettings &settings)
    : settings(settings), folder("gridloom-measure"), device(*findDeviceKind(settings.device)) {
  if (!folder.getError().empty())
    throw Error(ErrorCode::Unavailable, folder.getError());
  cores = std::max(1U, device.takeInventory().devices.front().cores.value_or(1));
  ranks = settings.ranks ? settings.ranks : int(std::clamp(cores, 2U, 16U));
  busyRanks = std::min(ranks, int(cores));
}

void Measurement::report(const std::string &what) {
  progress.show(std::to_string(++part) + " of " + std::to_string(numParts) + ": " + what);
}

std::string Measurement::compile(const MeasuredModel &model) {
  std::string file = folder.file(model.name + ".onnx"), plan = folder.file(model.name + ".plan");
  if (!(std::ofstream(file, std::ios::binary) << model.onnx))
    throw Error(ErrorCode::Unavailable, "cannot write " + file);
  std::string dims = "n=";
  for (int64_t size : model.sizes)
    dims += (dims == "n=" ? "" : ",") + std::to_string(size);
  runCompiler({"gridloom", "compile", file, "-o", plan, "--dim", dims, "--precision",
               model.precision, "-q"},
              folder.file("compiler.log"));
  return plan;
}

void Measurement::timeModel(const MeasuredModel &model) {
  report(model.what);
  std::shared_ptr<const Plan> plan = Plan::load(compile(model));
  double seconds = settings.quick ? 0.1 : 0.6;
  json times = runRanks(busyRanks, [&](const World &world, Transport &transport) {
    auto used = device.create({-1, world.localRank, world.localSize, 0});
    json list = json::array();
    for (const WorkSample &sample : timeSteps(plan, *used, transport, seconds))
      list.push_back({sample.work.kind, sample.work.type, sample.work.flops, sample.work.readBytes,
                      sample.work.writtenBytes, sample.seconds});
    return list;
  });
  for (const json &entry : times)
    work.push_back(
        {{entry[0].get<WorkClass>(), entry[1].get<NumberType>(), entry[2], entry[3], entry[4]},
         entry[5]});
}

void Measurement::timeCollectivesOf(int members) {
  report("collectives of " + std::to_string(members) + " ranks");
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = 1 << 10; bytes <= (settings.quick ? 1U << 20 : 1U << 24);
       bytes *= settings.quick ? 32 : 4)
    sizes.push_back(bytes);
  StepTiming timing{settings.quick ? 0.03 : 0.1, settings.quick ? 20 : 50};
  json times = runRanks(members, [&](const World &world, Transport &transport) {
    auto used = device.create({-1, world.localRank, world.localSize, 0});
    json list = json::array();
    for (const CollectiveTime &time : timeCollectives(*used, transport, sizes, timing))
      list.push_back({time.name, time.bytes, time.seconds});
    return list;
  });
  for (const json &entry : times) {
    std::string name = entry[0];
    if (auto kind = cluster::findCollective(name == "sendrecv" ? "permute" : name))
      collectives.push_back({*kind, members, entry[1], entry[2]});
  }
}

/// Group sizes: 2, 4, 8, ... and all.
static std::vector<int> listGroups(int ranks) {
  std::vector<int> groups;
  for (int members = 2; members < ranks; members *= 2)
    groups.push_back(members);
  if (ranks > 1)
    groups.push_back(ranks);
  return groups;
}

cluster::Cluster Measurement::run() {
  std::vector<MeasuredModel> models = makeMeasuredModels(settings.quick);
  std::vector<int> groups = listGroups(ranks);
  numParts = int(models.size() + groups.size());
  for (const MeasuredModel &model : models)
    timeModel(model);
  for (int members : groups)
    timeCollectivesOf(members);
  if (!collectives.empty())
    links = cluster::fitLinks(collectives);
  return describe();
}

/// The cluster: ranks on one host, connected by its memory.
cluster::Cluster Measurement::describe() const {
  cluster::DeviceKind kind;
  kind.name = "measured-" + device.getName();
  kind.target = device.getName();
  kind.memoryBytes = int64_t(device.takeInventory().devices.front().bytes) / ranks;
  kind.cores = std::max(1U, cores / unsigned(busyRanks));
  cluster::fitWork(work, kind);
  kind.collectiveSeconds = links.startSeconds;
  cluster::Cluster result;
  result.name = fs::path(settings.output).stem().string();
  result.kinds = {kind};
  auto count = static_cast<uint32_t>(ranks);
  result.devices.assign(count, 0);
  result.sharedCores = {{0, count, int64_t(cores)}};
  if (ranks == 1)
    return result;
  result.numSwitches = 1;
  for (uint32_t rank = 0; rank < count; ++rank)
    result.links.push_back(
        {rank, count, links.latencySeconds / 2, {links.bytesPerSecond, links.bytesPerSecond}});
  return result;
}

//===----------------------------------------------------------------------===//
// The verb
//===----------------------------------------------------------------------===//

static void tell(const MeasureSettings &settings, const OutputFormat &format,
                 const cluster::Cluster &measured, double collectiveError) {
  const cluster::DeviceKind &kind = measured.kinds.front();
  Document document;
  document.addField("cluster", settings.output);
  document.addField("ranks", measured.getNumDevices());
  document.addField("cores", measured.sharedCores.front().cores);
  document.addField("cores_of_rates", kind.cores);
  constexpr double giga = 1e-9, micro = 1e6;
  document.addField("memory_gb_per_second", numberCell(kind.bytesPerSecond * giga, 2));
  document.addField("launch_us", numberCell(kind.launchSeconds * micro, 2));
  if (!measured.links.empty()) {
    const cluster::Link &link = measured.links.front();
    document.addField("collective_launch_us", numberCell(kind.collectiveSeconds * micro, 2));
    document.addField("link_latency_us", numberCell(2 * link.latencySeconds * micro, 2));
    document.addField("link_gb_per_second", numberCell(link.getBytesPerSecond() * giga, 2));
    document.addField("collectives_median_error_percent", numberCell(100 * collectiveError, 0));
  }
  document.addTable("rates", {"work", "type", "gflop_per_second"});
  for (size_t work = 0; work < cluster::kClassNames.size(); ++work)
    for (size_t type = 0; type < cluster::kTypeNames.size(); ++type)
      if (double rate = kind.flopsPerSecond[work][type])
        document.addRow(
            {cluster::kClassNames[work], cluster::kTypeNames[type], numberCell(rate * giga, 2)});
  format.write(document);
}

int gridloom::rt::measureMachine(const MeasureSettings &settings, const OutputFormat &format) {
  if (settings.device != "cpu")
    throw Error(ErrorCode::InvalidArgument,
                "only CPUs can be measured, not --device " + settings.device +
                    "; for GPUs describe a cluster by hand, or take a preset (docs/clusters.md)");
  if (std::optional<World> world = detectWorld(getProcessEnvironment()); world && world->size > 1)
    throw Error(ErrorCode::InvalidArgument, "--measure starts its own ranks, but " + world->source +
                                                " started " + std::to_string(world->size) +
                                                "; call it without a launcher");
  checkOutput(settings);
  try {
    Measurement measurement(settings);
    cluster::Cluster measured = measurement.run();
    checkOutput(settings); // the file may have been created meanwhile
    if (std::string reason = replaceFile(settings.output, {cluster::formatCluster(measured)});
        !reason.empty())
      throw Error(ErrorCode::Unavailable, "cannot write " + settings.output + ": " + reason);
    tell(settings, format, measured, measurement.getCollectiveError());
  } catch (const Interrupted &interrupted) {
    return interrupted.code;
  }
  return 0;
}
