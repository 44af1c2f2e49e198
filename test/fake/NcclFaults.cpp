//===- NcclFaults.cpp - a plan on fake GPUs, each call failing ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
//   nccl-faults PLAN [--faults N | --every] [--seed S]
//
// Runs a plan for GPUs with all ranks in this process, on the fake driver and the fake NCCL.
// Without a fault all ranks must end well, the calls that each communicator's ranks make must be
// the same in the same order, and the order over all communicators must be without a circle. Then,
// once for each of N calls of one rank drawn from the seed (--every: for each of its calls), that
// call fails, or is accepted and never done: every rank must end with an error that names an
// operation, in time, and nothing may be left alive. Prints a line for each part; the first
// violation ends it with 1.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/local/LocalTransport.h"
#include "runtime/core/Error.h"
#include "runtime/core/Placement.h"
#include "runtime/core/Session.h"
#include "test/fake/FakeCuda.h"
#include "test/fake/FakeNccl.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>

using namespace gridloom;
using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Fault {
  int rank, number;
  fake::NcclFault kind;
};

/// One rank: loads, runs, and waits for all others, so that a failure anywhere reaches all ranks.
void runRank(const std::shared_ptr<const Plan> &plan, const PlacementOptions &placing, int rank,
             Transport *host) {
  int size = plan->getMesh().getNumRanks();
  try {
    Placement placement = placeRank(placing, rank, rank, size, host);
    Transport *transport = placement.deviceTransport ? placement.deviceTransport.get() : host;
    Session session(plan, *placement.device, transport);
    for (const Argument &input : plan->getEntry("main").specialisations.front().inputs) {
      HostArray array = HostArray::allocate(input.type, input.shape); // zeros are valid indices
      session.bind(input.name, array);
    }
    session.run();
    session.gatherText("");
  } catch (const Error &error) {
    if (host)
      host->abort(error.what());
    throw;
  }
}

/// Runs all ranks; returns each rank's error, "" for none.
std::vector<std::string> runAll(const std::shared_ptr<const Plan> &plan,
                                const std::optional<Fault> &fault, milliseconds deadline,
                                uint64_t seed) {
  int size = plan->getMesh().getNumRanks();
  fake::Options fakes;
  fakes.devices = size;
  fakes.schedule = fake::Schedule::Random;
  fakes.seed = seed;
  fakes.hangMilliseconds = 60000;
  fake::reset(fakes);
  fake::resetNccl();
  if (fault)
    fake::failNcclCall(fault->rank, fault->number, fault->kind);
  PlacementOptions placing;
  placing.limits.deadline = deadline;
  placing.prepare(plan->getTargetKind(), size, /*inProcess=*/true, plan->getFolder().string());
  // With so many rank threads, NCCL must notice a lost operation, not the ranks' own barriers.
  auto hosts = createInProcessTransports(size, {milliseconds(60000)});
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        runRank(plan, placing, rank, hosts[size_t(rank)].get());
      } catch (const std::exception &error) {
        errors[size_t(rank)] = error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &finding : fake::takeFindings())
    throw Violation("finding: " + finding);
  for (const std::string &leak : fake::findLeaks())
    throw Violation("leaked " + leak);
  return errors;
}

/// All ranks of a communicator must have made the same calls in the same order.
void checkProjections(int ranks) {
  std::map<int, std::map<int, std::vector<std::string>>> calls; // communicator, rank
  std::map<int, std::set<int>> members;
  std::set<int> communicators;
  size_t operations = 0;
  for (const fake::NcclLogEntry &entry : fake::getNcclLog()) {
    communicators.insert(entry.communicator);
    members[entry.communicator].insert(entry.rank);
    if (!entry.isTransfer)
      calls[entry.communicator][entry.rank].push_back(entry.what);
    ++operations;
  }
  for (const auto &[communicator, byRank] : calls)
    for (const auto &[rank, list] : byRank)
      if (list != byRank.begin()->second || byRank.size() != members[communicator].size())
        throw Violation("ranks " + std::to_string(byRank.begin()->first) + " and " +
                        std::to_string(rank) + " of communicator " + std::to_string(communicator) +
                        " make different calls");
  for (const std::string &cycle : fake::findNcclCycles())
    throw Violation("circle: " + cycle);
  std::printf("ranks %d communicators %zu calls %zu\n", ranks, communicators.size(), operations);
}

bool namesOperation(const std::string &error) {
  constexpr const char *names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                   "broadcast",  "permute",    "send #",         "recv #",
                                   "connecting", "registering"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char *name) { return error.find(name) != std::string::npos; });
}

void checkFault(const std::shared_ptr<const Plan> &plan, const Fault &fault, uint64_t seed) {
  bool isLost = fault.kind == fake::NcclFault::Lost;
  // A lost operation is noticed only at the deadline.
  milliseconds deadline(isLost ? 1500 : 30000);
  auto begin = steady_clock::now();
  std::string what = "call " + std::to_string(fault.number) + " of rank " +
                     std::to_string(fault.rank) + (isLost ? " is lost" : " fails");
  std::vector<std::string> errors;
  try {
    errors = runAll(plan, fault, deadline, seed);
  } catch (const Violation &violation) {
    throw Violation(what + ": " + violation.what());
  }
  auto passed = steady_clock::now() - begin;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (!namesOperation(errors[rank]))
      throw Violation(what + ": rank " + std::to_string(rank) + " says '" + errors[rank] + "'");
    if (errors[rank].find('\n') != std::string::npos)
      throw Violation(what + ": more than one line: " + errors[rank]);
  }
  if (passed > milliseconds(50000))
    throw Violation(what + ": noticed only after " +
                    std::to_string(std::chrono::duration_cast<milliseconds>(passed).count()) +
                    " ms");
}

int run(int argc, char **argv) {
  std::string folder;
  int faults = 0;
  bool every = false;
  uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--every")
      every = true;
    else if (argument == "--faults" && i + 1 < argc)
      faults = int(std::strtol(argv[++i], nullptr, 10));
    else if (argument == "--seed" && i + 1 < argc)
      seed = std::strtoull(argv[++i], nullptr, 10);
    else
      folder = argument;
  }
  setenv("GRIDLOOM_CUDA_DRIVER", GRIDLOOM_FAKE_CUDA, 1);
  setenv("GRIDLOOM_CUBLASLT", GRIDLOOM_FAKE_CUBLASLT, 1);
  setenv("GRIDLOOM_NCCL", GRIDLOOM_FAKE_NCCL, 1);
  auto plan = Plan::load(folder);
  int ranks = plan->getMesh().getNumRanks();
  for (const std::string &error : runAll(plan, std::nullopt, milliseconds(60000), seed))
    if (!error.empty())
      throw Violation("without a fault: " + error);
  checkProjections(ranks);

  std::mt19937_64 random(seed);
  int rank = int(random() % uint64_t(ranks)), calls = fake::countNcclCalls(rank);
  std::vector<int> numbers(static_cast<size_t>(calls));
  for (int i = 0; i < calls; ++i)
    numbers[size_t(i)] = i;
  if (!every) {
    std::shuffle(numbers.begin(), numbers.end(), random);
    numbers.resize(std::min(numbers.size(), size_t(faults)));
  }
  int lost = 0;
  for (int number : numbers) {
    // Waiting for a deadline takes time: only a few calls are lost, the others fail.
    bool isLost = number % 8 == 3;
    lost += isLost;
    checkFault(plan, {rank, number, isLost ? fake::NcclFault::Lost : fake::NcclFault::Error},
               seed + uint64_t(number));
  }
  std::printf("faults %zu of %d calls of rank %d, %d lost\n", numbers.size(), calls, rank, lost);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
