//===- LocalTransportTest.cpp - shared memory of the local transport ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the conformance suite does not cover: operands in shared memory on only some ranks, where
// that memory is and when it is freed, and the CPU time of a waiting rank.
//
//===----------------------------------------------------------------------===//
#include "TransportHarness.h"

#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::Each;
using testing::HasSubstr;

namespace {

/// `count` floats, in shared memory or not.
struct Floats {
  Floats(Transport &transport, Device &device, bool shared, size_t count)
      : memory(shared ? transport.allocate(device, count * 4) : device.allocate(count * 4)),
        values(static_cast<float *>(memory->data), count) {}
  std::unique_ptr<Memory> memory;
  std::span<float> values;
};

/// Runs all collectives on one rank with operands of `count` elements for each member. `isShared`
/// says whether operand 0 (inputs) and 1 (outputs) are in shared memory. Returns all outputs.
std::vector<float> runAll(Transport &transport, size_t count,
                          const std::function<bool(int operand)> &isShared) {
  std::vector<int> ranks(size_t(transport.getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto world = transport.createCommunicator(ranks, "world");
  auto device = createCpuDevice(1);
  auto stream = device->createStream(StreamKind::Communication, "test");
  size_t n = ranks.size(), all = n * count;
  Floats in(transport, *device, isShared(0), all), out(transport, *device, isShared(1), all);
  std::vector<float> results;
  uint32_t sequence = 0;
  auto next = [&](auto call) {
    // Values whose sum depends on the order of summation.
    for (size_t i = 0; i < all; ++i)
      in.values[i] = 1.0f / float(1 + (i * 7 + size_t(transport.getRank()) * 13 + sequence) % 101);
    std::fill(out.values.begin(), out.values.end(), -1.0f);
    call(OpContext{"", ++sequence, ""});
    stream->synchronize();
    results.insert(results.end(), out.values.begin(), out.values.end());
  };
  float *from = in.values.data(), *to = out.values.data();
  next([&](OpContext op) {
    world->allReduce(*stream, from, to, all, DataType::F32, Reduction::Sum, op);
  });
  next([&](OpContext op) {
    memcpy(to, from, all * 4);
    world->allReduce(*stream, to, to, all, DataType::F32, Reduction::Sum, op);
  });
  next([&](OpContext op) { world->allGather(*stream, from, to, count, DataType::F32, op); });
  next([&](OpContext op) {
    world->reduceScatter(*stream, from, to, count, DataType::F32, Reduction::Sum, op);
  });
  next([&](OpContext op) { world->allToAll(*stream, from, to, count, DataType::F32, op); });
  next([&](OpContext op) { world->broadcast(*stream, from, to, all, DataType::F32, 1, op); });
  return results;
}

/// Results must equal those of private memory bit by bit, whichever operands are in shared memory.
TEST(LocalMemoryTest, ResultsDoNotDependOnWhereOperandsLie) {
  constexpr int n = 3;
  // Chunks are 4 KiB: below the size that peers read in place, and several chunks and a rest.
  for (size_t count : {200, 7001}) {
    std::vector<std::vector<float>> expected(n);
    // One bit for each operand of each rank.
    for (unsigned shared = 0; shared < 1u << (2 * n); ++shared) {
      auto outcomes = runThreads(n, {}, [&](Transport &transport) {
        int rank = transport.getRank();
        auto results = runAll(transport, count, [&](int operand) {
          return (shared >> (2 * rank + operand)) % 2 != 0;
        });
        if (shared == 0)
          expected[size_t(rank)] = results;
        else if (memcmp(results.data(), expected[size_t(rank)].data(), results.size() * 4) != 0)
          throw std::runtime_error("other results");
      });
      ASSERT_THAT(outcomes, Each(Outcome{})) << count << " elements, shared " << shared;
    }
  }
}

/// The line of /proc/self/maps for the mapping that holds `address`.
std::string findMapping(const void *address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 && uintptr_t(address) >= begin &&
        uintptr_t(address) < end)
      return line;
  }
  return "";
}

uint64_t getHeldBytes(const Segment &segment) {
  struct stat status = {};
  fstat(segment.getFd(), &status);
  return uint64_t(status.st_blocks) * 512;
}

/// An unnamed file disappears with the last process that maps it, however that ends.
TEST(LocalMemoryTest, HasNoNameAndIsGivenBack) {
  constexpr size_t bytes = 8 << 20;
  std::shared_ptr<Segment> segment = Segment::create(2);
  std::thread other([&] { createLocalTransport(segment, 1); });
  auto transport = createLocalTransport(segment, 0);
  other.join();
  auto device = createCpuDevice(1);
  uint64_t before = getHeldBytes(*segment);
  std::unique_ptr<Memory> memory = transport->allocate(*device, bytes);
  EXPECT_EQ(memory->bytes, bytes);
  EXPECT_THAT(findMapping(memory->data), HasSubstr("/memfd:gridloom (deleted)"));
  EXPECT_GE(getHeldBytes(*segment), before + bytes); // reserved now, not at the first touch
  memset(memory->data, 1, bytes);
  memory.reset();
  EXPECT_LT(getHeldBytes(*segment), before + bytes / 2);
  // A reused region is zeroed.
  memory = transport->allocate(*device, bytes);
  EXPECT_EQ(static_cast<const char *>(memory->data)[bytes - 1], 0);
}

TEST(LocalMemoryTest, MoreThanTheMachineHasIsRefused) {
  auto transports = createInProcessTransports(2);
  auto device = createCpuDevice(1);
  try {
    transports[0]->allocate(*device, size_t(1) << 50);
    FAIL() << "1 PiB";
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), ErrorCode::OutOfMemory);
    EXPECT_THAT(error.what(), HasSubstr("takes 1125899906842624 bytes of shared memory"));
    EXPECT_THAT(error.what(), HasSubstr("; cut the model among more machines"));
  }
}

/// What two ranks of a process report whose files may have `bytes`, and the signal that ended it.
std::pair<std::string, int> addUpLimited(rlim_t bytes) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    rlimit limit{bytes, bytes};
    std::string text;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
      text = "no limit";
    try {
      for (const Outcome &outcome : runThreads(2, {}, [](Transport &transport) {
             runAll(transport, 20000, [](int) { return true; });
           }))
        text += outcome.text;
    } catch (const Error &error) {
      text = error.what();
    }
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  for (char byte; read(ends[0], &byte, 1) == 1;)
    text += byte;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {text, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

/// The segment is as large as files may be.
TEST(LocalMemoryTest, FilesMayHaveALimit) {
  EXPECT_EQ(addUpLimited(rlim_t(64) << 20), std::pair(std::string(), 0));
  auto [text, signal] = addUpLimited(512 << 10);
  EXPECT_EQ(signal, 0);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("the local transport holds at most 524288 bytes of "
                                             "all ranks together"),
                                   HasSubstr("raise the limit of file sizes (ulimit -f)")));
  EXPECT_THAT(addUpLimited(4096),
              testing::Pair(testing::AllOf(HasSubstr("the memory that ranks share is a file of"),
                                           HasSubstr("and files may have 4096 (ulimit -f)")),
                            0));
}

double getSeconds(const timeval &time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; }

double getUsedSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return getSeconds(used.ru_utime) + getSeconds(used.ru_stime);
}

/// All-reduces `calls` times, each after `before`. Throws if this process used more than 30 % of a
/// core, or if it took less than a second.
Body cheaply(int calls, const std::function<void(Transport &)> &before) {
  return [=](Transport &transport) {
    std::vector<int> ranks(size_t(transport.getSize()));
    std::iota(ranks.begin(), ranks.end(), 0);
    auto world = transport.createCommunicator(ranks, "world");
    auto device = createCpuDevice(2);
    auto stream = device->createStream(StreamKind::Communication, "test");
    auto memory = transport.allocate(*device, 40000);
    memset(memory->data, 0, memory->bytes);
    auto begin = std::chrono::steady_clock::now();
    double used = getUsedSeconds();
    for (int i = 1; i <= calls; ++i) {
      before(transport);
      world->allReduce(*stream, memory->data, memory->data, 10000, DataType::F32, Reduction::Sum,
                       {"all_reduce", uint32_t(i), ""});
      stream->synchronize();
    }
    used = getUsedSeconds() - used;
    std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (passed.count() < 1)
      throw std::runtime_error("nobody waited");
    if (used > 0.3 * passed.count())
      throw std::runtime_error("used " + std::to_string(used) + " s in " +
                               std::to_string(passed.count()) + " s");
  };
}

TEST(LocalWaitTest, StoppedPeerCostsNoProcessorTime) {
  JobOptions options;
  options.beside = [](const std::vector<pid_t> &children) {
    siginfo_t info;
    waitid(P_PID, id_t(children[1]), &info, WSTOPPED | WNOWAIT);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    kill(children[1], SIGCONT);
  };
  EXPECT_THAT(runProcesses(3, options,
                           cheaply(1,
                                   [](Transport &transport) {
                                     if (transport.getRank() == 1)
                                       raise(SIGSTOP);
                                   })),
              Each(Outcome{}));
}

TEST(LocalWaitTest, SlowPeerCostsNoProcessorTime) {
  EXPECT_THAT(runProcesses(3, {},
                           cheaply(60,
                                   [](Transport &transport) {
                                     if (transport.getRank() == 1)
                                       std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                   })),
              Each(Outcome{}));
}

} // namespace
