//===- NcclTransportTest.cpp - GPUs connected by NCCL ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/Reduce.h"
#include "support/NarrowFloat.h"
#include "test/runtime/NcclHarness.h"

#include <atomic>
#include <cmath>
#include <dlfcn.h>
#include <filesystem>
#include <latch>
#include <limits>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

/// A copy of a library, which the loader treats as another library.
struct TemporaryCopy {
  explicit TemporaryCopy(const char *library) {
    static int count = 0;
    path = testing::TempDir() + "gridloom-" + std::to_string(getpid()) + "-" +
           std::to_string(count++) + ".so";
    std::filesystem::copy_file(library, path);
  }
  TemporaryCopy(const TemporaryCopy &) = delete;
  TemporaryCopy &operator=(const TemporaryCopy &) = delete;
  ~TemporaryCopy() { std::filesystem::remove(path); }
  std::string path;
};

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

TEST_F(NcclTransportTest, MissingLibraryIsOneLine) {
  CudaDevice device(0);
  ThreadExchange exchange;
  NcclOptions options = exchange.makeOptions(0);
  options.library = "/nowhere/libnccl.so.2";
  EXPECT_THAT(catchError(ErrorCode::Unavailable,
                         [&] { createNcclTransport(device, 0, 1, std::move(options)); }),
              StartsWith("/nowhere/libnccl.so.2 not found: NCCL, which connects GPUs, is not "
                         "installed; install libnccl2"));
}

TEST_F(NcclTransportTest, OldLibraryIsRefusedWithBothVersions) {
  fake::resetNccl({21703});
  EXPECT_THAT(catchError(ErrorCode::Unavailable, [] { NcclLibrary library; }),
              AllOf(HasSubstr("is NCCL 2.17.3, 2.18.0 or newer is needed")));
}

TEST_F(NcclTransportTest, RanksOfACommunicatorAreChecked) {
  CudaDevice device(0);
  ThreadExchange exchange;
  auto transport = createNcclTransport(device, 0, 2, exchange.makeOptions(0));
  for (std::vector<int> ranks : {std::vector{1, 0}, {0, 2}, {1}, {0, 0}, {}})
    EXPECT_THAT(catchError(ErrorCode::InvalidArgument,
                           [&] { transport->createCommunicator(ranks, "model"); }),
                StartsWith("communicator model must name ranks of 0 to 1 in ascending order"));
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// How the fakes behave: the size of the job, the schedule, the number of polls until a call is
/// enqueued.
struct Behaviour {
  int size;
  fake::Schedule schedule;
  int polls;
};

class NcclOperationTest : public NcclTransportTest, public testing::WithParamInterface<Behaviour> {
protected:
  void SetUp() override {
    NcclTransportTest::SetUp();
    fake::NcclSettings settings;
    settings.polls = GetParam().polls;
    restart(settings, GetParam().schedule);
  }
  int getSize() const { return GetParam().size; }
  void run(const std::function<void(Rank &)> &body) {
    EXPECT_THAT(runJob(getSize(), body), Each(""));
  }
};

template <typename T> std::vector<T> makeValues(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = T((7 * rank + 3 * int(i)) % 11 - 2);
  return values;
}

TEST_P(NcclOperationTest, AllReduce) {
  struct Case {
    Reduction reduction;
    std::function<float(float, float)> combine;
  };
  const Case cases[] = {{Reduction::Sum, std::plus<float>()},
                        {Reduction::Prod, std::multiplies<float>()},
                        {Reduction::Max, [](float x, float y) { return std::max(x, y); }},
                        {Reduction::Min, [](float x, float y) { return std::min(x, y); }}};
  run([&](Rank &rank) {
    for (const Case &one : cases) {
      std::vector<float> expected = makeValues<float>(0, 33);
      for (int peer = 1; peer < getSize(); ++peer) {
        std::vector<float> more = makeValues<float>(peer, 33);
        std::transform(expected.begin(), expected.end(), more.begin(), expected.begin(),
                       one.combine);
      }
      auto in = upload(rank.device, *rank.stream, makeValues<float>(rank.number, 33));
      auto out = rank.device.allocate(in->bytes);
      rank.world->allReduce(*rank.stream, in->data, out->data, 33, DataType::F32, one.reduction,
                            context);
      EXPECT_EQ(download<float>(rank.device, *rank.stream, out->data, 33), expected);
      rank.world->allReduce(*rank.stream, in->data, in->data, 33, DataType::F32, one.reduction,
                            context);
      EXPECT_EQ(download<float>(rank.device, *rank.stream, in->data, 33), expected);
    }
  });
}

TEST_P(NcclOperationTest, AllGatherAndReduceScatter) {
  run([&](Rank &rank) {
    auto size = size_t(getSize());
    auto in = upload(rank.device, *rank.stream, makeValues<int64_t>(rank.number, 5));
    auto all = rank.device.allocate(5 * size * sizeof(int64_t));
    auto part = rank.device.allocate(in->bytes);
    rank.world->allGather(*rank.stream, in->data, all->data, 5, DataType::I64, context);
    rank.world->reduceScatter(*rank.stream, all->data, part->data, 5, DataType::I64, Reduction::Sum,
                              context);
    std::vector<int64_t> gathered;
    for (int peer = 0; peer < getSize(); ++peer)
      for (int64_t value : makeValues<int64_t>(peer, 5))
        gathered.push_back(value);
    EXPECT_EQ(download<int64_t>(rank.device, *rank.stream, all->data, gathered.size()), gathered);
    std::vector<int64_t> reduced = makeValues<int64_t>(rank.number, 5);
    for (int64_t &value : reduced)
      value *= getSize();
    EXPECT_EQ(download<int64_t>(rank.device, *rank.stream, part->data, 5), reduced);
  });
}

void checkAllToAll(Rank &rank, int size) {
  std::vector<int16_t> in, expected;
  for (int peer = 0; peer < size; ++peer)
    for (int i = 0; i < 3; ++i) {
      in.push_back(int16_t(1000 * rank.number + 10 * peer + i));
      expected.push_back(int16_t(1000 * peer + 10 * rank.number + i));
    }
  auto from = upload(rank.device, *rank.stream, in);
  auto to = rank.device.allocate(from->bytes);
  rank.world->allToAll(*rank.stream, from->data, to->data, 3, DataType::I16, context);
  EXPECT_EQ(download<int16_t>(rank.device, *rank.stream, to->data, in.size()), expected);
}

/// Elements of a type as floats, and back.
template <typename T> float widen(T value) { return float(value); }
template <typename T> T narrow(float value) { return T(value); }
template <typename Format> struct Narrow {
  Narrow() = default;
  explicit Narrow(float value) : bits(Format::store(value)) {}
  explicit operator float() const { return Format::load(bits); }
  uint16_t bits = 0;
};

/// Max and min over all ranks of operands with NaN, infinities and zeros of both signs, compared
/// with the host's: as on every transport, NaN propagates.
template <typename T> void checkNan(Rank &rank, int size, DataType type, bool inPlace) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = INFINITY;
  const float numbers[] = {0.0f, -1.0f, 2.5f, -nan, infinity, nan, -infinity, 0.0f, -7.0f};
  constexpr size_t each = 9;
  std::vector<std::vector<T>> all(static_cast<size_t>(size));
  for (int other = 0; other < size; ++other)
    for (size_t i = 0; i < each * size_t(size); ++i)
      all[size_t(other)].push_back(narrow<T>(numbers[(i * 5 + size_t(other) * 7) % each]));
  std::vector<const void *> inputs;
  for (const std::vector<T> &values : all)
    inputs.push_back(values.data());
  auto expect = [](const std::vector<T> &got, const T *wanted) {
    for (size_t i = 0; i < got.size(); ++i) {
      float one = widen(got[i]), other = widen(wanted[i]);
      EXPECT_TRUE(one == other || (std::isnan(one) && std::isnan(other)))
          << i << ": " << one << ", not " << other;
    }
  };
  for (Reduction reduction : {Reduction::Max, Reduction::Min}) {
    SCOPED_TRACE(std::string(nameOf(type)) + (reduction == Reduction::Max ? " max" : " min"));
    const std::vector<T> &mine = all[size_t(rank.number)];
    std::vector<T> wanted(mine.size());
    reduceOnHost(wanted.data(), inputs, wanted.size(), type, reduction);
    auto in = upload(rank.device, *rank.stream, mine);
    auto made = rank.device.allocate(in->bytes);
    void *out = inPlace ? in->data : made->data;
    rank.world->allReduce(*rank.stream, in->data, out, mine.size(), type, reduction, context);
    expect(download<T>(rank.device, *rank.stream, out, mine.size()), wanted.data());

    in = upload(rank.device, *rank.stream, mine);
    size_t begin = each * size_t(rank.number);
    out = inPlace ? static_cast<T *>(in->data) + begin : made->data;
    rank.world->reduceScatter(*rank.stream, in->data, out, each, type, reduction, context);
    expect(download<T>(rank.device, *rank.stream, out, each), wanted.data() + begin);
  }
}

TEST_P(NcclOperationTest, NanPassesThroughMaxAndMin) {
  for (bool inPlace : {false, true})
    run([&](Rank &rank) {
      checkNan<float>(rank, getSize(), DataType::F32, inPlace);
      checkNan<double>(rank, getSize(), DataType::F64, inPlace);
      checkNan<Narrow<Half>>(rank, getSize(), DataType::F16, inPlace);
      checkNan<Narrow<BFloat>>(rank, getSize(), DataType::BF16, inPlace);
    });
}

TEST_P(NcclOperationTest, PeersReadNoPooledMemory) {
  run([&](Rank &rank) {
    constexpr size_t count = 16;
    size_t all = count * size_t(getSize());
    rank.world->reserveReduction(count, count, DataType::F16, Reduction::Max);
    rank.world->reserveReduction(all, count, DataType::F32, Reduction::Min);
    auto in = upload(rank.device, *rank.stream, std::vector<float>(all, 0));
    auto out = rank.device.allocate(count * sizeof(float));
    rank.world->reduceScatter(*rank.stream, in->data, out->data, count, DataType::F32,
                              Reduction::Min, context);
    rank.world->allReduce(*rank.stream, in->data, in->data, count, DataType::F16, Reduction::Max,
                          context);
    rank.stream->synchronize();
  });
  EXPECT_THAT(fake::getCalls("cuMemAllocAsync"), IsEmpty());
}

TEST_P(NcclOperationTest, AllToAll) {
  run([&](Rank &rank) { checkAllToAll(rank, getSize()); });
  EXPECT_EQ(fake::getCalls("ncclAlltoAll").size(), size_t(getSize()));
}

TEST_P(NcclOperationTest, AllToAllOfAnOlderLibraryIsOneGroup) {
  setenv("GRIDLOOM_NCCL", GRIDLOOM_FAKE_NCCL_OLD_PATH, 1);
  run([&](Rank &rank) { checkAllToAll(rank, getSize()); });
  EXPECT_THAT(fake::getCalls("ncclAlltoAll"), IsEmpty());
  EXPECT_EQ(fake::getCalls("ncclSend").size(), size_t(getSize() * getSize()));
  EXPECT_EQ(fake::getCalls("ncclGroupEnd").size(), size_t(getSize()));
}

TEST_P(NcclOperationTest, BroadcastFromEveryRoot) {
  run([&](Rank &rank) {
    for (int root = 0; root < getSize(); ++root) {
      auto in = upload(rank.device, *rank.stream, makeValues<uint8_t>(rank.number, 9));
      rank.world->broadcast(*rank.stream, in->data, in->data, 9, DataType::Bool, root, context);
      EXPECT_EQ(download<uint8_t>(rank.device, *rank.stream, in->data, 9),
                makeValues<uint8_t>(root, 9));
    }
  });
}

TEST_P(NcclOperationTest, PipelineOfSendsAndReceives) {
  // Each rank receives from the previous one and sends to the next, on two streams.
  run([&](Rank &rank) {
    auto recvStream = rank.device.createStream(StreamKind::Communication, "recv");
    auto recvs = rank.transport.createCommunicator(makeRanks(getSize()), "recv");
    auto event = rank.device.createEvent();
    auto buffer = upload(rank.device, *rank.stream, makeValues<float>(rank.number, 7));
    for (int round = 0; round < 3; ++round) {
      if (rank.number > 0)
        recvs->recv(*recvStream, buffer->data, 7, DataType::F32, rank.number - 1,
                    {"recv", uint32_t(round), "stage"});
      recvStream->record(*event);
      rank.stream->wait(*event);
      if (rank.number + 1 < getSize())
        recvs->send(*rank.stream, buffer->data, 7, DataType::F32, rank.number + 1,
                    {"send", uint32_t(round), "stage"});
      rank.stream->record(*event);
      recvStream->wait(*event);
    }
    recvStream->synchronize();
    EXPECT_EQ(download<float>(rank.device, *rank.stream, buffer->data, 7), makeValues<float>(0, 7));
  });
}

class NcclSubgroupTest : public NcclOperationTest {};

TEST_P(NcclSubgroupTest, RowsColumnsAndBarrier) {
  run([&](Rank &rank) {
    int low = rank.number / 2 * 2;
    int parity = rank.number % 2;
    std::vector<int> row = {low, low + 1}, column = {parity, parity + 2};
    auto rows = rank.transport.createCommunicator(row, "model");
    auto columns = rank.transport.createCommunicator(column, "data");
    EXPECT_EQ(rows->getRank(), parity);
    EXPECT_EQ(columns->getRank(), rank.number / 2);
    auto value = upload<float>(rank.device, *rank.stream, {float(rank.number)});
    rows->allReduce(*rank.stream, value->data, value->data, 1, DataType::F32, Reduction::Sum,
                    context);
    columns->allReduce(*rank.stream, value->data, value->data, 1, DataType::F32, Reduction::Sum,
                       context);
    EXPECT_THAT(download<float>(rank.device, *rank.stream, value->data, 1), ElementsAre(6));
    rank.world->barrier(*rank.stream, {"barrier", 0, ""});
    rank.stream->synchronize();
  });
}

INSTANTIATE_TEST_SUITE_P(Behaviours, NcclOperationTest,
                         testing::Values(Behaviour{1, fake::Schedule::Eager, 0},
                                         Behaviour{2, fake::Schedule::Eager, 0},
                                         Behaviour{3, fake::Schedule::Random, 0},
                                         Behaviour{4, fake::Schedule::NewestFirst, 0},
                                         Behaviour{2, fake::Schedule::OldestFirst, 3},
                                         Behaviour{4, fake::Schedule::Random, 2}));

INSTANTIATE_TEST_SUITE_P(Behaviours, NcclSubgroupTest,
                         testing::Values(Behaviour{4, fake::Schedule::Eager, 0},
                                         Behaviour{4, fake::Schedule::Random, 2}));

/// The world is connected once; rows and columns are split from it, and one rank is in no group.
TEST_F(NcclTransportTest, GroupsAreSplitFromTheWorld) {
  for (int polls : {0, 3}) {
    restart({22809, polls});
    EXPECT_THAT(runJob(4,
                       [&](Rank &rank) {
                         int low = rank.number / 2 * 2;
                         std::vector<int> row = {low, low + 1}, some = {0, 1, 2};
                         auto rows = rank.transport.split(row, "rows");
                         if (rank.number == 3)
                           some.clear();
                         auto three = rank.transport.split(some, "three");
                         EXPECT_EQ(three == nullptr, rank.number == 3);
                         auto value =
                             upload<float>(rank.device, *rank.stream, {float(rank.number + 1)});
                         rows->allReduce(*rank.stream, value->data, value->data, 1, DataType::F32,
                                         Reduction::Sum, context);
                         EXPECT_THAT(download<float>(rank.device, *rank.stream, value->data, 1),
                                     ElementsAre(rank.number < 2 ? 3 : 7));
                         if (!three)
                           return;
                         three->allReduce(*rank.stream, value->data, value->data, 1, DataType::F32,
                                          Reduction::Sum, context);
                         EXPECT_THAT(download<float>(rank.device, *rank.stream, value->data, 1),
                                     ElementsAre(13));
                       }),
                Each(""));
    EXPECT_EQ(fake::getCalls("ncclCommInitRankConfig").size(), 4u);
    EXPECT_EQ(fake::getCalls("ncclCommSplit").size(), 8u);
  }
}

TEST_F(NcclTransportTest, OperandsAreRegisteredWhereNcclCan) {
  auto run = [&](bool wanted) {
    EXPECT_THAT(runJob(2,
                       [&](Rank &rank) {
                         std::vector<int> ranks = {0, 1};
                         auto memory = rank.transport.allocate(rank.device, 100);
                         auto group = rank.transport.split(ranks, "model");
                         group->registerMemory(*memory);
                         EXPECT_EQ(memory->bytes, wanted ? 4096u : 100u);
                         std::vector<float> in(8, float(rank.number));
                         rank.device.copyIn(*rank.stream, memory->data, in.data(), 32);
                         group->allReduce(*rank.stream, memory->data, memory->data, 8,
                                          DataType::F32, Reduction::Sum, context);
                         EXPECT_THAT(download<float>(rank.device, *rank.stream, memory->data, 8),
                                     Each(1.0f));
                         group.reset(); // before its memory is freed
                       }),
                Each(""));
    return fake::getCalls("ncclCommWindowRegister").size();
  };
  EXPECT_EQ(run(true), 2u);
  restart({});
  setenv("GRIDLOOM_NCCL", GRIDLOOM_FAKE_NCCL_OLD_PATH, 1);
  EXPECT_EQ(run(false), 0u);
}

TEST_F(NcclTransportTest, PlantedMemoryThatGoesBeforeItsGroupIsFound) {
  runJob(2, [&](Rank &rank) {
    std::vector<int> ranks = {0, 1};
    auto group = rank.transport.split(ranks, "model");
    auto memory = rank.transport.allocate(rank.device, 100);
    group->registerMemory(*memory);
    memory.reset();
  });
  EXPECT_THAT(fake::takeFindings(), Contains(HasSubstr("memory that is still registered")));
}

/// Operations of two communicators on two streams: an older NCCL needs events between them, a newer
/// one orders them itself.
TEST_F(NcclTransportTest, OrderOfCommunicatorsIsKeptUnlessNcclIsKnownToKeepIt) {
  auto countWaits = [&] {
    EXPECT_THAT(runJob(2,
                       [&](Rank &rank) {
                         auto other = rank.transport.createCommunicator(makeRanks(2), "other");
                         auto stream = rank.device.createStream(StreamKind::Communication, "other");
                         auto first = upload(rank.device, *rank.stream, std::vector<float>(16));
                         auto second = upload(rank.device, *rank.stream, std::vector<float>(16));
                         for (int i = 0; i < 3; ++i) {
                           rank.world->allReduce(*rank.stream, first->data, first->data, 16,
                                                 DataType::F32, Reduction::Sum, context);
                           other->allReduce(*stream, second->data, second->data, 16, DataType::F32,
                                            Reduction::Sum, context);
                         }
                         rank.stream->synchronize();
                         stream->synchronize();
                       }),
                Each(""));
    return fake::getCalls("cuStreamWaitEvent").size();
  };
  // The library is already loaded, as PyTorch may have done: the setting that it read is unknown.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  EXPECT_EQ(countWaits(), 10u);
  // A copy that is not loaded yet reads the variable at its first use.
  TemporaryCopy own(GRIDLOOM_FAKE_NCCL), old(GRIDLOOM_FAKE_NCCL), late(GRIDLOOM_FAKE_NCCL);
  restart({});
  setenv("GRIDLOOM_NCCL", own.path.c_str(), 1);
  EXPECT_EQ(countWaits(), 0u);
  restart({});
  setenv("GRIDLOOM_NCCL", old.path.c_str(), 1);
  setenv("GRIDLOOM_FAKE_NCCL_VERSION", "22502", 1);
  EXPECT_EQ(countWaits(), 10u);
  unsetenv("GRIDLOOM_FAKE_NCCL_VERSION");
  restart({});
  setenv("GRIDLOOM_NCCL", own.path.c_str(), 1);
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT"); // has no effect any more
  EXPECT_EQ(countWaits(), 0u);
  restart({});
  setenv("GRIDLOOM_NCCL", late.path.c_str(), 1);
  EXPECT_EQ(countWaits(), 10u);
  restart({});
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  EXPECT_EQ(countWaits(), 10u);
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

/// Ranks that are threads open the library at once; the second must not think PyTorch loaded it.
TEST_F(NcclTransportTest, OrderIsKnownWhicheverRankOpensFirst) {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  for (int i = 0; i < 20; ++i) {
    TemporaryCopy copy(GRIDLOOM_FAKE_NCCL);
    constexpr int numRanks = 8;
    std::latch start(numRanks);
    std::atomic<int> numOrdered = 0;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < numRanks; ++rank)
      ranks.emplace_back([&] {
        start.arrive_and_wait();
        NcclLibrary library(copy.path);
        numOrdered += library.keepsOrder() ? 1 : 0;
      });
    for (std::thread &rank : ranks)
      rank.join();
    EXPECT_EQ(numOrdered, numRanks);
  }
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

/// setenv may move the environment while another thread reads it.
TEST_F(NcclTransportTest, EnvironmentIsLeftAlone) {
  std::vector<std::string> before, after;
  for (char **entry = environ; *entry; ++entry)
    before.emplace_back(*entry);
  EXPECT_THAT(runJob(2, [](Rank &) {}), Each(""));
  for (char **entry = environ; *entry; ++entry)
    after.emplace_back(*entry);
  EXPECT_EQ(before, after);
}

/// The library stays loaded: its threads and exit handlers outlive a session.
TEST_F(NcclTransportTest, LibraryIsNeverUnloaded) {
  TemporaryCopy copy(GRIDLOOM_FAKE_NCCL);
  {
    NcclLibrary library(copy.path);
  }
  EXPECT_NE(dlopen(copy.path.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST_F(NcclTransportTest, CallsNeitherSleepNorWakeTheWatchdog) {
  constexpr int calls = 200;
  restart({22809, 4});
  ThreadExchange exchange;
  CudaDevice device(0);
  NcclOptions options = exchange.makeOptions(0);
  std::atomic<int> looks = 0;
  options.checkPeers = [&] { ++looks; };
  auto transport = createNcclTransport(device, 0, 1, std::move(options));
  auto stream = device.createStream(StreamKind::Communication, "comm");
  auto world = transport->createCommunicator(makeRanks(1), "world");
  auto memory = upload(device, *stream, std::vector<float>(16, 1.0f));
  long fewest = std::numeric_limits<long>::max();    // context switches of a call
  int fewestLooks = std::numeric_limits<int>::max(); // checks during ten calls in a row
  for (int i = 0; i < calls / 10; ++i) {
    looks = 0;
    for (int call = 0; call < 10; ++call) {
      rusage before = {}, after = {};
      getrusage(RUSAGE_THREAD, &before);
      world->allReduce(*stream, memory->data, memory->data, 16, DataType::F32, Reduction::Sum,
                       context);
      getrusage(RUSAGE_THREAD, &after);
      fewest = std::min(fewest, after.ru_nvcsw - before.ru_nvcsw);
    }
    fewestLooks = std::min(fewestLooks, looks.load());
  }
  // A sleep is a voluntary context switch, and polling would sleep three times per call. On a busy
  // machine most calls have other switches, too.
  EXPECT_EQ(fewest, 0);
  // The watchdog checks every 10 ms and when new work arrives. It would check at every call only if
  // the stream were done before the next call.
  EXPECT_LE(fewestLooks, 5);
  stream->synchronize();
}

TEST_F(NcclTransportTest, CopyEnginesNeedANewLibrary) {
  restart({22703});
  CudaDevice device(0);
  ThreadExchange exchange;
  NcclOptions options = exchange.makeOptions(0);
  options.copyEngines = true;
  EXPECT_THAT(catchError(ErrorCode::Unavailable,
                         [&] { createNcclTransport(device, 0, 2, std::move(options)); }),
              AllOf(HasSubstr("since NCCL 2.28.0"), HasSubstr("this is 2.27.3")));
}

TEST_F(NcclTransportTest, RanksHaveTheSameLibrary) {
  ThreadExchange exchange;
  std::latch compared(1);
  auto errors = runRanks(2, [&](int number) {
    CudaDevice device(number);
    NcclOptions options = exchange.makeOptions(number, 100ms);
    if (number == 1)
      options.library = GRIDLOOM_FAKE_NCCL_OLD_PATH;
    else // waits in vain for rank 1, which has compared versions by then
      options.exchange = [&](std::span<std::byte> bytes, std::span<const int> ranks,
                             const std::string &name) {
        exchange(bytes, ranks, name, 0);
        compared.wait();
      };
    auto transport = createNcclTransport(device, number, 2, std::move(options));
    std::vector<int> ranks = {0, 1};
    try {
      transport->createCommunicator(ranks, "world");
    } catch (const Error &) {
      if (number == 1)
        compared.count_down();
      throw;
    }
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1 has NCCL 2.20.0, rank 0 has NCCL 2.28.9")));
}

TEST_F(NcclTransportTest, TypesAreNamedAsNcclDoes) {
  EXPECT_EQ(toNcclElements(DataType::F32, 3).type, 7);
  EXPECT_EQ(toNcclElements(DataType::BF16, 3).type, 9);
  EXPECT_EQ(toNcclElements(DataType::I16, 3).count, 6u);
  EXPECT_EQ(toNcclReduction(DataType::Bool, Reduction::Sum).operation, 2);
  EXPECT_EQ(toNcclReduction(DataType::F32, Reduction::Prod).operation, 1);
  EXPECT_EQ(toNcclReduction(DataType::F32, Reduction::Min).operation, 3);
  for (DataType type : {DataType::I16, DataType::U16})
    catchError(ErrorCode::InvalidArgument, [&] { toNcclReduction(type, Reduction::Sum); });
}

//===----------------------------------------------------------------------===//
// Order between streams
//===----------------------------------------------------------------------===//

/// A producer on the compute stream, an all_reduce on the communication stream, and a consumer on
/// the compute stream; either wait can be left out.
std::vector<std::string> runOverlapped(bool waitBefore, bool waitAfter) {
  return runJob(2, [&](Rank &rank) {
    auto compute = rank.device.createStream(StreamKind::Compute, "compute");
    auto produced = rank.device.createEvent();
    auto reduced = rank.device.createEvent();
    auto in = rank.device.allocate(64);
    auto out = rank.device.allocate(64);
    std::vector<float> values(16, float(rank.number + 1));
    rank.device.copyIn(*compute, in->data, values.data(), 64);
    compute->record(*produced);
    if (waitBefore)
      rank.stream->wait(*produced);
    rank.world->allReduce(*rank.stream, in->data, out->data, 16, DataType::F32, Reduction::Sum,
                          context);
    rank.stream->record(*reduced);
    if (waitAfter)
      compute->wait(*reduced);
    std::vector<float> result(16);
    rank.device.copyOut(*compute, result.data(), out->data, 64);
    compute->synchronize();
    rank.stream->synchronize();
    if (waitBefore && waitAfter)
      EXPECT_THAT(result, Each(3.0f));
  });
}

TEST_F(NcclTransportTest, EventsOrderCommunication) {
  for (auto schedule :
       {fake::Schedule::Eager, fake::Schedule::OldestFirst, fake::Schedule::NewestFirst})
    for (int polls : {0, 1, 4}) {
      restart({22809, polls}, schedule);
      EXPECT_THAT(runOverlapped(true, true), Each(""));
      EXPECT_THAT(fake::takeFindings(), IsEmpty());
    }
  for (uint64_t seed = 1; seed < 20; ++seed) {
    restart({}, fake::Schedule::Random, seed);
    EXPECT_THAT(runOverlapped(true, true), Each(""));
  }
}

TEST_F(NcclTransportTest, PlantedMissingWaitBeforeIsFound) {
  for (auto schedule : {fake::Schedule::Eager, fake::Schedule::Random}) {
    restart({}, schedule);
    runOverlapped(false, true);
    EXPECT_THAT(fake::takeFindings(),
                Contains(AllOf(StartsWith("race: ncclAllReduce #0 of communicator 0 on stream"),
                               HasSubstr("reads what cuMemcpyHtoDAsync_v2 on stream"))));
  }
}

TEST_F(NcclTransportTest, PlantedMissingWaitAfterIsFound) {
  for (auto schedule : {fake::Schedule::Eager, fake::Schedule::Random}) {
    restart({}, schedule);
    runOverlapped(true, false);
    EXPECT_THAT(fake::takeFindings(),
                Contains(AllOf(StartsWith("race: cuMemcpyDtoHAsync_v2 on stream"),
                               HasSubstr("reads what ncclAllReduce #0 of communicator 0"))));
  }
}

TEST_F(NcclTransportTest, PlantedPartialOverlapIsFound) {
  runJob(2, [&](Rank &rank) {
    auto memory = upload(rank.device, *rank.stream, std::vector<float>(17, 1.0f));
    auto *values = static_cast<float *>(memory->data);
    rank.world->allReduce(*rank.stream, values, values + 1, 16, DataType::F32, Reduction::Sum,
                          context);
    rank.stream->synchronize();
  });
  EXPECT_THAT(fake::takeFindings(), Contains(HasSubstr("overlap partially")));
}

} // namespace
