//===- CollectiveBench.cpp - gridloom bench all_reduce --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sizes and bandwidths are those of nccl-tests: a size is the larger of a rank's input and output;
// algbw is size / time, and busbw is algbw times a factor that makes the figure independent of the
// number of ranks.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/CollectiveBench.h"

#include "runtime/arrays/Values.h"
#include "runtime/cli/Job.h"
#include "runtime/core/Error.h"
#include "support/OutputFormat.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;

namespace {

struct Settings {
  JobSettings job;
  uint64_t begin = 1 << 10, end = 64 << 20, factor = 2;
  std::string type = "f32", reduction = "sum";
  int iterations = 20, warmup = 5;
  bool check = true;
  bool shareGpu = false;
};

/// An operand on the host and in the memory that plans use: on CPUs in memory that peers can
/// access.
struct Operand {
  Operand(Device &device, Transport &transport, DataType type, std::vector<int64_t> shape)
      : device(device), transport(transport), host(HostArray::allocate(type, std::move(shape))),
        memory(device.hasHostMemory() ? transport.allocate(device, host.getNumBytes())
                                      : device.allocate(host.getNumBytes())) {}
  void *get() { return memory->data; }
  void upload(Stream &stream) {
    if (memory->bytes)
      device.copyIn(stream, memory->data, host.getData(), memory->bytes);
  }
  void download(Stream &stream) {
    if (memory->bytes)
      device.copyOut(stream, host.getMutableData(), memory->data, memory->bytes);
  }

  Device &device;
  Transport &transport;
  HostArray host;
  std::unique_ptr<Memory> memory;
};

/// The largest of the whole numbers from 0 on that `type` holds without a gap, as far as matters.
int64_t getMostExact(DataType type) {
  switch (type) {
  case DataType::I8:
    return 127;
  case DataType::U8:
    return 255;
  case DataType::BF16:
    return 256;
  case DataType::F16:
    return 2048;
  default:
    return 32767; // of i16; others hold more
  }
}

/// What the ranks' operands hold: small integers, so that a sum over all ranks is exact.
struct Numbers {
  int64_t levels = 5;            // 0 to 4
  int64_t ranksWith = INT64_MAX; // other ranks hold zeros
  static Numbers forSum(DataType type, int ranks) {
    int64_t most = getMostExact(type);
    return {std::clamp<int64_t>(most / ranks, 1, 4) + 1, most};
  }
  double get(int rank, int64_t i) const {
    // 7 has no factor in common with any number of levels, so that neighbours differ.
    return rank < ranksWith ? double((int64_t(rank) * 7 + i) % levels) : 0;
  }
};

/// Arguments of a collective.
struct Call {
  Communicator &world;
  Stream &stream;
  DataType type;
  Reduction reduction;
  size_t count;
  void *in, *out;
  Numbers numbers = {};
};

/// A call with its memory.
struct Setup : Call {
  Operand input, output;
};

struct Collective {
  const char *name, *summary;
  bool reduces;
  /// The size of a rank's input and output in units of `count`, with n ranks.
  int64_t (*inParts)(int n), (*outParts)(int n);
  double (*busFactor)(double n);
  void (*enqueue)(const Call &call, uint32_t sequence);
  /// The expected element i of the rank's output.
  double (*expected)(const Call &call, int64_t i);
};

int64_t one(int) { return 1; }
int64_t all(int n) { return n; }
double unit(double) { return 1; }
double shared(double n) { return (n - 1) / n; }

double reduceExactly(const Call &call, int64_t i) {
  double result = call.numbers.get(0, i);
  for (int rank = 1; rank < call.world.getSize(); ++rank) {
    double value = call.numbers.get(rank, i);
    result = call.reduction == Reduction::Sum   ? result + value
             : call.reduction == Reduction::Max ? std::max(result, value)
                                                : std::min(result, value);
  }
  return result;
}

constexpr Collective collectives[] = {
    {"all_reduce", "Every rank gets the reduction of all ranks' operands", true, one, one,
     [](double n) { return 2 * (n - 1) / n; },
     [](const Call &s, uint32_t sequence) {
       s.world.allReduce(s.stream, s.in, s.out, s.count, s.type, s.reduction,
                         {"all_reduce", sequence, ""});
     },
     reduceExactly},
    {"all_gather", "Every rank gets all ranks' operands", false, one, all, shared,
     [](const Call &s, uint32_t sequence) {
       s.world.allGather(s.stream, s.in, s.out, s.count, s.type, {"all_gather", sequence, ""});
     },
     [](const Call &s, int64_t i) {
       return s.numbers.get(int(i / int64_t(s.count)), i % int64_t(s.count));
     }},
    {"reduce_scatter", "Every rank gets its part of the reduction", true, all, one, shared,
     [](const Call &s, uint32_t sequence) {
       s.world.reduceScatter(s.stream, s.in, s.out, s.count, s.type, s.reduction,
                             {"reduce_scatter", sequence, ""});
     },
     [](const Call &s, int64_t i) {
       return reduceExactly(s, s.world.getRank() * int64_t(s.count) + i);
     }},
    {"all_to_all", "Part j of rank i becomes part i of rank j", false, all, all, shared,
     [](const Call &s, uint32_t sequence) {
       s.world.allToAll(s.stream, s.in, s.out, s.count, s.type, {"all_to_all", sequence, ""});
     },
     [](const Call &s, int64_t i) {
       int64_t count = int64_t(s.count);
       return s.numbers.get(int(i / count), s.world.getRank() * count + i % count);
     }},
    {"broadcast", "Every rank gets rank 0's operand", false, one, one, unit,
     [](const Call &s, uint32_t sequence) {
       s.world.broadcast(s.stream, s.in, s.out, s.count, s.type, 0, {"broadcast", sequence, ""});
     },
     [](const Call &s, int64_t i) { return s.numbers.get(0, i); }},
    {"sendrecv", "Every rank sends to the next and receives from the previous", false, one, one,
     unit,
     [](const Call &s, uint32_t sequence) {
       int n = s.world.getSize(), rank = s.world.getRank();
       s.world.sendRecv(s.stream, s.in, (rank + 1) % n, s.out, (rank + n - 1) % n, s.count, s.type,
                        /*receiveFirst=*/rank == 0, {"sendrecv", sequence, ""});
     },
     [](const Call &s, int64_t i) {
       int n = s.world.getSize();
       return s.numbers.get((s.world.getRank() + n - 1) % n, i);
     }},
};

} // namespace

/// Seconds after which a rank on a shared GPU is killed: NCCL may hang where nothing can abort it.
static constexpr unsigned shareGpuSeconds = 60;

static std::string describe(const Settings &settings, const Transport &transport) {
  if (std::string text = describeLoopback(settings.job, transport.getSize()); !text.empty())
    return text;
  return std::to_string(transport.getSize()) + " ranks" + (settings.shareGpu ? " on one GPU" : "") +
         ", transport " + transport.getName();
}

/// Reduces one number over all ranks.
static double combine(Setup &setup, double number, Reduction reduction, uint32_t sequence,
                      const char *what) {
  Operand operand(setup.input.device, setup.input.transport, DataType::F64, {1});
  memcpy(operand.host.getMutableData(), &number, sizeof number);
  operand.upload(setup.stream);
  setup.world.allReduce(setup.stream, operand.get(), operand.get(), 1, DataType::F64, reduction,
                        {"all_reduce", sequence, what});
  operand.download(setup.stream);
  setup.stream.synchronize();
  memcpy(&number, operand.host.getData(), sizeof number);
  return number;
}

/// The slowest rank's microseconds per call.
static double measure(const Collective &collective, Setup &setup, const Settings &settings,
                      uint32_t &sequence) {
  auto run = [&](int times) {
    for (int i = 0; i < times; ++i)
      collective.enqueue(setup, ++sequence);
    setup.stream.synchronize();
  };
  run(settings.warmup);
  setup.world.barrier(setup.stream, {"barrier", ++sequence, ""});
  setup.stream.synchronize();
  auto begin = std::chrono::steady_clock::now();
  run(settings.iterations);
  std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
  double time = passed.count() / settings.iterations;
  return combine(setup, time, Reduction::Max, ++sequence, "the slowest time");
}

/// The number of wrong elements over all ranks.
static int64_t countWrong(const Collective &collective, Setup &setup, uint32_t &sequence) {
  setup.output.download(setup.stream);
  setup.stream.synchronize();
  int64_t wrong = 0;
  for (int64_t i = 0; i < setup.output.host.getNumElements(); ++i)
    wrong += getElement(setup.output.host, i) != collective.expected(setup, i);
  return int64_t(combine(setup, double(wrong), Reduction::Sum, ++sequence, "wrong elements"));
}

/// Makes NCCL treat ranks on one GPU, which it otherwise refuses, as ranks on different machines
/// connected by sockets. Works since each rank is a process: NCCL reads its variables at first use.
static void shareGpu(int rank) {
  constexpr std::pair<const char *, const char *> variables[] = {
      {"NCCL_NET", "Socket"},    {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"},
      {"NCCL_MAX_CTAS", "1"},    {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_CUMEM_ENABLE", "0"},
      {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"},    {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};
  std::string text = "NCCL_HOSTID=gridloom-rank-RANK";
  setenv("NCCL_HOSTID", ("gridloom-rank-" + std::to_string(rank)).c_str(), 1);
  for (const auto &[name, value] : variables) {
    setenv(name, value, 1);
    text += std::string(" ") + name + "=" + value;
  }
  if (rank == 0)
    printf("# one GPU for all ranks, which no version of NCCL promises: %s\n", text.c_str());
  fflush(stdout);
  alarm(shareGpuSeconds);
}

static void benchOnRank(const Collective &collective, const Settings &settings, const World &place,
                        Transport &host) {
  if (settings.shareGpu)
    shareGpu(place.rank);
  Placement placement =
      placeRank(settings.job.placement, place.rank, place.localRank, place.localSize, &host);
  Device &device = *placement.device;
  Transport &transport = placement.deviceTransport ? *placement.deviceTransport : host;
  auto stream = device.createStream(StreamKind::Communication, "bench");
  int n = transport.getSize();
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto world = transport.createCommunicator(ranks, "bench");
  DataType type = *parseDataType(settings.type);
  Reduction reduction = settings.reduction == "sum"   ? Reduction::Sum
                        : settings.reduction == "max" ? Reduction::Max
                                                      : Reduction::Min;
  const char *reductionName = collective.reduces ? settings.reduction.c_str() : "none";
  if (transport.getRank() == 0)
    printf("# gridloom bench %s, %s\n"
           "%14s %13s %6s %7s %11s %8s %8s %7s\n%14s %13s %6s %7s %11s %8s %8s\n",
           collective.name, describe(settings, transport).c_str(), "#         size", "count",
           "type", "redop", "time", "algbw", "busbw", "#wrong", "#          (B)", "(elements)", "",
           "", "(us)", "(GB/s)", "(GB/s)");
  int64_t inParts = collective.inParts(n), outParts = collective.outParts(n);
  bool isSum = collective.reduces && reduction == Reduction::Sum;
  Numbers numbers = isSum ? Numbers::forSum(type, n) : Numbers();
  uint32_t sequence = 0;
  for (uint64_t bytes = settings.begin; bytes <= settings.end; bytes *= settings.factor) {
    int64_t count = int64_t(bytes / sizeOf(type)) / std::max(inParts, outParts);
    Setup setup{{*world, *stream, type, reduction, size_t(count), nullptr, nullptr, numbers},
                Operand(device, transport, type, {count * inParts}),
                Operand(device, transport, type, {count * outParts})};
    setup.in = setup.input.get();
    setup.out = setup.output.get();
    for (int64_t i = 0; i < setup.input.host.getNumElements(); ++i)
      setElement(setup.input.host, i, numbers.get(transport.getRank(), i));
    setup.input.upload(*stream);
    double time = measure(collective, setup, settings, sequence);
    std::string wrong =
        settings.check ? std::to_string(countWrong(collective, setup, sequence)) : "N/A";
    size_t size = std::max(setup.input.host.getNumBytes(), setup.output.host.getNumBytes());
    double bandwidth = double(size) / time * 1e-3;
    if (transport.getRank() == 0) {
      printf("%14zu %13lld %6s %7s %11.2f %8.3f %8.3f %7s\n", size, static_cast<long long>(count),
             settings.type.c_str(), reductionName, time, bandwidth,
             bandwidth * collective.busFactor(n), wrong.c_str());
      flushOutput();
    }
    if (settings.check && wrong != "0")
      throw Error(ErrorCode::Internal, std::string(collective.name) + " of " +
                                           std::to_string(count) + " elements gave " + wrong +
                                           " wrong ones");
  }
}

//===----------------------------------------------------------------------===//
// Collectives as steps of a plan
//===----------------------------------------------------------------------===//

/// Times a collective between empty kernels: both streams wait for each other, as in a plan.
class StepTimer {
public:
  explicit StepTimer(Device &device)
      : compute(device.createStream(StreamKind::Compute, "compute")), ready(device.createEvent()),
        done(device.createEvent()) {}

  /// Seconds per call on the slowest rank: the lowest decile of many short rounds, since other work
  /// on the machine lengthens some rounds and spares others.
  double time(const Collective &collective, const Call &call, const StepTiming &timing) {
    double once = run(collective, call, 2); // warm-up: connects and touches memory
    once = std::min(once, run(collective, call, 2));
    int calls = int(std::clamp(timing.seconds / timing.turns / once, 1.0, 200.0));
    std::vector<double> times;
    double passed = 0; // equal on all ranks, like all times
    while (int(times.size()) < timing.turns && (times.size() < 5 || passed < 4 * timing.seconds)) {
      times.push_back(run(collective, call, calls));
      passed += calls * times.back();
    }
    auto decile = times.begin() + ptrdiff_t(times.size() / 10);
    std::nth_element(times.begin(), decile, times.end());
    return *decile;
  }

private:
  double run(const Collective &collective, const Call &call, int calls) {
    getLargest(call, 0); // a barrier
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      compute->enqueueHost([] {});
      compute->record(*ready);
      call.stream.wait(*ready);
      collective.enqueue(call, ++sequence);
      call.stream.record(*done);
      compute->wait(*done);
    }
    call.stream.synchronize();
    compute->synchronize();
    std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return getLargest(call, passed.count() / calls);
  }

  /// The maximum of `number` over all ranks.
  double getLargest(const Call &call, double number) {
    call.world.allReduce(call.stream, &number, &number, 1, DataType::F64, Reduction::Max,
                         {"all_reduce", ++sequence, "the slowest time"});
    call.stream.synchronize();
    return number;
  }

  std::unique_ptr<Stream> compute;
  std::unique_ptr<Event> ready, done;
  uint32_t sequence = 0;
};

std::vector<CollectiveTime> gridloom::rt::timeCollectives(Device &device, Transport &transport,
                                                          std::span<const uint64_t> sizes,
                                                          const StepTiming &timing) {
  constexpr DataType type = DataType::F32;
  int n = transport.getSize();
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  // As in plans, operands are in memory that peers read and write.
  uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::unique_ptr<Memory> memory = transport.allocate(device, 2 * most);
  auto stream = device.createStream(StreamKind::Communication, "measure");
  auto world = transport.createCommunicator(ranks, "measure");
  world->registerMemory(*memory);
  auto *data = static_cast<std::byte *>(memory->data);
  memset(data, 0, 2 * most);
  StepTimer timer(device);
  std::vector<CollectiveTime> times;
  for (const Collective &collective : collectives)
    for (uint64_t bytes : sizes) {
      int64_t parts = std::max(collective.inParts(n), collective.outParts(n));
      size_t count = bytes / sizeOf(type) / size_t(parts);
      Call call{*world, *stream, type, Reduction::Sum, count, data, data + most};
      uint64_t used = count * size_t(parts) * sizeOf(type);
      if (count > 0)
        times.push_back({collective.name, used, timer.time(collective, call, timing)});
    }
  return times;
}

//===----------------------------------------------------------------------===//
// The verb
//===----------------------------------------------------------------------===//

static int bench(const Collective &collective, Settings settings) {
  if (settings.begin == 0)
    throw Error(ErrorCode::InvalidArgument, "-b 0: sizes begin with 1 byte or more");
  if (settings.begin > settings.end)
    throw Error(ErrorCode::InvalidArgument, "-b " + std::to_string(settings.begin) +
                                                " is above -e " + std::to_string(settings.end));
  int ranks = getGivenRanks(settings.job);
  ranks = ranks ? ranks : 2;
  PlacementOptions &placement = settings.job.placement;
  const TransportKind *kind =
      placement.transport.empty() ? nullptr : &findTransportKind(placement.transport);
  if (ranks < 2 && !(kind && kind->connectsOne()))
    throw Error(ErrorCode::InvalidArgument, "a collective needs at least 2 ranks, not 1");
  if (settings.shareGpu) {
    if (!kind || !kind->needsOwnDevices() || settings.job.inProcess || placement.gpu >= 0)
      throw Error(ErrorCode::InvalidArgument,
                  "--share-gpu is for --transport nccl, with a process for each rank and without "
                  "--device");
    settings.job.timeout = std::min<double>(settings.job.timeout, shareGpuSeconds - 10);
  }
  placement.connectsOne = ranks == 1;
  preparePlacement(settings.job, kind ? kind->getDeviceKind() : getDeviceKinds().front()->getName(),
                   ranks, "the benchmark");
  if (settings.shareGpu) {
    placement.gpu = 0;
    placement.shareGpu = true;
  }
  return runRanks(settings.job, ranks, [&](const World &place, Transport &host) {
    benchOnRank(collective, settings, place, host);
  });
}

static Verb addCollective(CLI::App &app, const Collective &collective) {
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand(collective.name, collective.summary);
  auto toBytes = CLI::AsSizeValue(/*kb_is_1000=*/false);
  // AsSizeValue takes -1 as the largest number.
  auto isCount = CLI::Range(int64_t(0), std::numeric_limits<int64_t>::max()).description("");
  verb->footer("\nExamples:\n  gridloom bench " + std::string(collective.name) +
               " -b 1K -e 64M -n 4\n      between four CPU ranks\n  gridloom bench " +
               collective.name +
               " -n 8 --transport nccl\n      between eight GPUs, as nccl-tests does");
  verb->add_option("-b,--min-bytes", settings->begin, "smallest size, at least 1")
      ->transform(toBytes)
      ->check(isCount)
      ->capture_default_str();
  verb->add_option("-e,--max-bytes", settings->end, "largest size")
      ->transform(toBytes)
      ->check(isCount)
      ->capture_default_str();
  verb->add_option("-f,--factor", settings->factor, "from one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  verb->add_option("--type", settings->type, "element type")
      ->check(CLI::IsMember({"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8"}))
      ->capture_default_str();
  if (collective.reduces)
    verb->add_option("--op", settings->reduction, "reduction")
        ->check(CLI::IsMember({"sum", "max", "min"}))
        ->capture_default_str();
  verb->add_option("--iters", settings->iterations, "timed calls per size")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--warmup", settings->warmup, "calls before them")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_flag("!--no-check", settings->check, "do not check the results");
  addRankOptions(*verb, settings->job);
  verb->add_flag("--share-gpu", settings->shareGpu,
                 "try NCCL between processes on GPU 0, for at most 60 s");
  return {verb, [settings, &collective] { return bench(collective, *settings); }};
}

std::vector<std::string> gridloom::rt::getCollectiveNames() {
  std::vector<std::string> names;
  for (const Collective &collective : collectives)
    names.push_back(collective.name);
  return names;
}

std::vector<Verb> gridloom::rt::addCollectives(CLI::App &app) {
  std::vector<Verb> verbs;
  for (const Collective &collective : collectives)
    verbs.push_back(addCollective(app, collective));
  return verbs;
}
