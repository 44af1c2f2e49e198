//===- TransportConformanceTest.cpp - contract of every transport ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Values are small integers, so that every order of summation gives the same and the expectation is
// exact; one test uses random floats and asks for equal bits on all ranks instead.
//
//===----------------------------------------------------------------------===//
#include "AllTypes.h"
#include "DeviceTransportHarness.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <random>

using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

namespace {

/// What a rank has published is read by others as far as there is room; the rest is unknown, which
/// is not "nothing".
TEST(ProgressBoardTest, FullBoardSaysThatItDoesNotKnow) {
  auto hosts = createInProcessTransports(2);
  std::shared_ptr<ProgressBoard> boards[2];
  std::thread other([&] { boards[1] = hosts[1]->getProgressBoard(); });
  boards[0] = hosts[0]->getProgressBoard();
  other.join();
  constexpr int many = 300;
  for (uint64_t i = 0; i < many; ++i)
    boards[0]->publish(0, "group" + std::to_string(i), i + 1);
  int known = 0;
  for (uint64_t i = 0; i < many; ++i)
    if (std::optional<uint64_t> count = boards[1]->read(0, "group" + std::to_string(i))) {
      EXPECT_EQ(*count, i + 1);
      ++known;
    }
  EXPECT_GE(known, 200);
  EXPECT_LT(known, many);
  EXPECT_EQ(boards[1]->read(0, "more"), std::nullopt);
  EXPECT_EQ(boards[0]->read(1, "group0"), 0u);
}

void store(DataType type, void *data, size_t i, double value) {
  auto put = [&](auto number) {
    memcpy(static_cast<char *>(data) + i * sizeof number, &number, sizeof number);
  };
  switch (type) {
  case DataType::F32:
    return put(float(value));
  case DataType::F64:
    return put(value);
  case DataType::F16:
    return put(_Float16(float(value)));
  case DataType::BF16: // exact for the values used here
    return put(uint16_t(std::bit_cast<uint32_t>(float(value)) >> 16));
  case DataType::I8:
    return put(int8_t(int64_t(value)));
  case DataType::I16:
    return put(int16_t(value));
  case DataType::I32:
    return put(int32_t(value));
  case DataType::I64:
    return put(int64_t(value));
  case DataType::U8:
    return put(uint8_t(int64_t(value)));
  case DataType::Bool:
    return put(uint8_t(value != 0));
  case DataType::U16:
    return put(uint16_t(value));
  case DataType::U32:
    return put(uint32_t(value));
  case DataType::U64:
    return put(uint64_t(value));
  case DataType::F8E4M3FN: // only moved
  case DataType::F8E5M2:
  case DataType::F8E4M3FNUZ:
  case DataType::F8E5M2FNUZ:
    return put(uint8_t(int64_t(value)));
  }
}

/// Operand element i of `rank`: products of eight stay exact in f16, sums fit in i8.
double operand(DataType type, Reduction reduction, int rank, size_t i) {
  if (type == DataType::Bool)
    return (size_t(rank) + i) % 3 != 0;
  if (reduction == Reduction::Prod)
    return 1 + int(size_t(rank) + i) % 2;
  int value = int((size_t(rank) * 5 + i * 3) % 11);
  bool isUnsigned = type == DataType::U8 || type == DataType::U16 || type == DataType::U32 ||
                    type == DataType::U64;
  return isUnsigned ? value : value - 4;
}

double reduceExactly(DataType type, Reduction reduction, int n, size_t i) {
  double result = operand(type, reduction, 0, i);
  for (int rank = 1; rank < n; ++rank) {
    double value = operand(type, reduction, rank, i);
    result = reduction == Reduction::Sum   ? result + value
             : reduction == Reduction::Max ? std::max(result, value)
             : reduction == Reduction::Min ? std::min(result, value)
                                           : result * value;
  }
  return result;
}

/// A typed array whose end is guarded.
class Array {
public:
  Array(DataType type, size_t count) : type(type), count(count), memory(count * sizeOf(type) + 64) {
    std::fill(memory.getHost().begin(), memory.getHost().end(), std::byte{0x5a});
  }
  void set(size_t i, double value) { store(type, memory.getHost().data(), i, value); }
  /// What was set, where the rank's operands lie.
  void *data() {
    memory.upload();
    return memory.data();
  }
  void expect(Array &other, const std::string &what) {
    memory.download();
    const std::vector<std::byte> &bytes = memory.getHost(), &wanted = other.memory.getHost();
    if (bytes == wanted)
      return;
    size_t at =
        size_t(std::mismatch(bytes.begin(), bytes.end(), wanted.begin()).first - bytes.begin());
    throw std::runtime_error(what + " of " + std::to_string(count) + " " +
                             std::string(nameOf(type)) + " differs at element " +
                             std::to_string(at / sizeOf(type)));
  }

private:
  DataType type;
  size_t count;
  RankMemory memory;
};

template <typename Value> Array makeArray(DataType type, size_t count, const Value &value) {
  Array array(type, count);
  for (size_t i = 0; i < count; ++i)
    array.set(i, value(i));
  return array;
}

std::vector<int> allRanks(const Transport &transport) {
  std::vector<int> ranks(static_cast<size_t>(transport.getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::unique_ptr<Communicator> makeWorld(Transport &transport, const std::string &name = "world") {
  return transport.createCommunicator(allRanks(transport), name);
}

/// 0, 1, odd, one chunk and a bit, many chunks and a bit; or vectors and a tail.
std::vector<size_t> getCounts(DataType type, const Kind &kind) {
  size_t chunk = 4096 / sizeOf(type);
  if (kind.isSlow)
    return {0, 1, 7, 261};
  return {0, 1, 7, chunk + 1, chunk * 9 + 13};
}

std::vector<DataType> getReducedTypes(const Kind &kind) {
  std::vector<DataType> types(std::begin(allTypes), std::end(allTypes));
  if (!kind.reducesShortIntegers)
    std::erase_if(types,
                  [](DataType type) { return type == DataType::I16 || type == DataType::U16; });
  return types;
}

class TransportTest : public testing::TestWithParam<Kind> {
protected:
  std::vector<Outcome> run(int n, const Body &body, const JobOptions &options = {}) {
    return GetParam().run(n, options, body);
  }
  void runAll(const Body &body, std::vector<int> sizes = {1, 2, 3, 4, 5, 7, 8}) {
    if (GetParam().isSlow)
      sizes = {2, 5};
    for (int n : sizes)
      EXPECT_THAT(run(n, body), Each(Outcome{})) << n << " ranks";
  }
};

/// What a transport that checks its members' calls does.
class CheckingTransportTest : public TransportTest {};

/// What only a process can suffer alone.
class ProcessTransportTest : public TransportTest {};

} // namespace

TEST_P(TransportTest, AllReduce) {
  runAll([kind = GetParam()](Transport &transport) {
    auto world = makeWorld(transport);
    RankStream stream;
    int n = world->getSize();
    uint32_t sequence = 0;
    for (DataType type : getReducedTypes(kind))
      for (Reduction reduction : allReductions)
        for (size_t count : getCounts(type, kind)) {
          Array in = makeArray(
              type, count, [&](size_t i) { return operand(type, reduction, world->getRank(), i); });
          Array expected = makeArray(
              type, count, [&](size_t i) { return reduceExactly(type, reduction, n, i); });
          Array out(type, count);
          OpContext op{"all_reduce", ++sequence, "node"};
          world->allReduce(stream, in.data(), out.data(), count, type, reduction, op);
          stream.synchronize();
          out.expect(expected, "all_reduce");
          world->allReduce(stream, in.data(), in.data(), count, type, reduction, op);
          stream.synchronize();
          in.expect(expected, "all_reduce in place");
        }
  });
}

TEST_P(TransportTest, ReduceScatter) {
  runAll([kind = GetParam()](Transport &transport) {
    auto world = makeWorld(transport);
    RankStream stream;
    int n = world->getSize();
    uint32_t sequence = 0;
    for (DataType type : getReducedTypes(kind))
      for (Reduction reduction : allReductions)
        for (size_t count : getCounts(type, kind)) {
          Array in = makeArray(type, count * size_t(n), [&](size_t i) {
            return operand(type, reduction, world->getRank(), i);
          });
          Array expected = makeArray(type, count, [&](size_t i) {
            return reduceExactly(type, reduction, n, i + count * size_t(world->getRank()));
          });
          Array out(type, count);
          world->reduceScatter(stream, in.data(), out.data(), count, type, reduction,
                               {"reduce_scatter", ++sequence, "node"});
          stream.synchronize();
          out.expect(expected, "reduce_scatter");
        }
  });
}

TEST_P(TransportTest, AllGatherAllToAllBroadcast) {
  runAll([kind = GetParam()](Transport &transport) {
    auto world = makeWorld(transport);
    RankStream stream;
    int n = world->getSize(), rank = world->getRank();
    uint32_t sequence = 0;
    auto value = [](DataType type, int from, int to, size_t i) {
      return operand(type, Reduction::Sum, from * 3 + to, i);
    };
    for (DataType type : allTypes)
      for (size_t count : getCounts(type, kind)) {
        size_t total = count * size_t(n);
        Array part = makeArray(type, count, [&](size_t i) { return value(type, rank, 0, i); });
        Array gathered = makeArray(
            type, total, [&](size_t i) { return value(type, int(i / count), 0, i % count); });
        Array out(type, total);
        world->allGather(stream, part.data(), out.data(), count, type,
                         {"all_gather", ++sequence, "node"});
        stream.synchronize();
        out.expect(gathered, "all_gather");

        Array parts = makeArray(
            type, total, [&](size_t i) { return value(type, rank, int(i / count), i % count); });
        Array exchanged = makeArray(
            type, total, [&](size_t i) { return value(type, int(i / count), rank, i % count); });
        world->allToAll(stream, parts.data(), out.data(), count, type,
                        {"all_to_all", ++sequence, "node"});
        stream.synchronize();
        out.expect(exchanged, "all_to_all");

        for (int root : {0, n - 1}) {
          Array sent = makeArray(type, count, [&](size_t i) { return value(type, root, 9, i); });
          Array own = makeArray(type, count, [&](size_t i) { return value(type, rank, 9, i); });
          Array received(type, count);
          OpContext op{"broadcast", ++sequence, "node"};
          world->broadcast(stream, own.data(), received.data(), count, type, root, op);
          stream.synchronize();
          received.expect(sent, "broadcast");
          world->broadcast(stream, own.data(), own.data(), count, type, root, op);
          stream.synchronize();
          own.expect(sent, "broadcast in place");
        }
        world->barrier(stream, {"barrier", ++sequence, ""});
        stream.synchronize();
      }
  });
}

/// Values of two types that are staged, that are not, and that fill a stage only together.
TEST_P(TransportTest, ManyValuesInOneGather) {
  runAll([](Transport &transport) {
    auto world = makeWorld(transport);
    RankStream stream;
    const size_t n = size_t(world->getSize());
    uint32_t sequence = 0;
    for (const auto &counts : {std::vector<size_t>(12, 60),
                               {9000, 1, 20011, 0, 2},
                               {9000},
                               {250, 60, 250, 1, 250, 60, 250, 60, 250, 60, 250, 60}}) {
      std::vector<Array> ins, outs, expected;
      std::vector<GatheredValue> values;
      for (size_t v = 0; v < counts.size(); ++v) {
        DataType type = v % 2 ? DataType::I64 : DataType::F16;
        size_t count = counts[v];
        auto of = [v](int r, size_t i) { return operand(DataType::F16, Reduction::Sum, r, i + v); };
        ins.push_back(makeArray(type, count, [&](size_t i) { return of(world->getRank(), i); }));
        outs.emplace_back(type, count * n);
        expected.push_back(
            makeArray(type, count * n, [&](size_t i) { return of(int(i / count), i % count); }));
      }
      for (size_t v = 0; v < counts.size(); ++v)
        values.push_back({ins[v].data(), outs[v].data(),
                          counts[v] * sizeOf(v % 2 ? DataType::I64 : DataType::F16)});
      world->allGatherMany(stream, values, {"all_gather", ++sequence, "node"});
      stream.synchronize();
      for (size_t v = 0; v < counts.size(); ++v)
        outs[v].expect(expected[v], "all_gather of many");
    }
  });
}

TEST_P(TransportTest, SendAndReceiveBothWaysAtOnce) {
  runAll(
      [](Transport &transport) {
        auto world = makeWorld(transport);
        int n = world->getSize(), rank = world->getRank();
        int next = (rank + 1) % n, previous = (rank + n - 1) % n;
        const size_t counts[] = {0, 1, 7, 1025, 9000, 3};
        auto value = [](int from, size_t message, size_t i) {
          return operand(DataType::I32, Reduction::Sum, from, i + message);
        };
        // NCCL's calls are made by one thread and keep its order, so there the two are one call.
        for (size_t message = 0; transport.getName() == "nccl" && message < std::size(counts);
             ++message) {
          auto make = [&](int from) {
            return makeArray(DataType::I32, counts[message],
                             [&, from](size_t i) { return value(from, message, i); });
          };
          Array in = make(rank), expected = make(previous), out(DataType::I32, counts[message]);
          RankStream stream;
          world->sendRecv(stream, in.data(), next, out.data(), previous, counts[message],
                          DataType::I32, /*receiveFirst=*/rank == 0,
                          {"permute", uint32_t(message), "cut"});
          stream.synchronize();
          out.expect(expected, "sendRecv");
        }
        if (transport.getName() == "nccl")
          return;
        std::string failure;
        std::thread sender([&, device = rankDevice] {
          rankDevice = device;
          RankStream stream;
          for (size_t message = 0; message < std::size(counts); ++message) {
            Array in = makeArray(DataType::I32, counts[message],
                                 [&](size_t i) { return value(rank, message, i); });
            // Sender and receiver stand in different programs: their numbers need not agree.
            world->send(stream, in.data(), counts[message], DataType::I32, next,
                        {"send", uint32_t(10 + rank), "cut"});
            try {
              stream.synchronize();
            } catch (const std::exception &error) {
              failure = error.what();
            }
          }
        });
        RankStream stream;
        for (size_t message = 0; message < std::size(counts); ++message) {
          Array expected = makeArray(DataType::I32, counts[message],
                                     [&](size_t i) { return value(previous, message, i); });
          Array out(DataType::I32, counts[message]);
          world->recv(stream, out.data(), counts[message], DataType::I32, previous,
                      {"recv", uint32_t(20 + rank), "cut"});
          stream.synchronize();
          out.expect(expected, "recv");
        }
        sender.join();
        if (!failure.empty())
          throw std::runtime_error(failure);
      },
      {2, 3, 4, 8});
}

TEST_P(TransportTest, StepsOfAPermutation) {
  runAll(
      [](Transport &transport) {
        auto world = makeWorld(transport);
        RankStream stream;
        int n = world->getSize(), rank = world->getRank();
        for (uint32_t step = 0; step < 3; ++step) {
          auto value = [&](int from) {
            return [from](size_t i) { return double(from * 5 + i % 9); };
          };
          Array in = makeArray(DataType::F32, 77, value(rank));
          Array expected = makeArray(DataType::F32, 77, value((rank + n - 1) % n));
          Array out(DataType::F32, 77);
          world->sendRecv(stream, in.data(), (rank + 1) % n, out.data(), (rank + n - 1) % n, 77,
                          DataType::F32, /*receiveFirst=*/rank == 0, {"permute", step, "/halo"});
          stream.synchronize();
          out.expect(expected, "permute");
        }
      },
      {2, 3, 4, 8});
}

TEST_P(TransportTest, EveryRankGetsTheSameBits) {
  runAll(
      [](Transport &transport) {
        auto world = makeWorld(transport);
        RankStream stream;
        std::mt19937 random(unsigned(17 + transport.getRank()));
        std::normal_distribution<float> normal;
        for (size_t count : {3, 1000, 1027, 20011}) {
          RankMemory in(count * 4), out(count * 4), all(count * 4 * size_t(world->getSize()));
          for (size_t i = 0; i < count; ++i) {
            float x = normal(random) * std::exp2(float(random() % 40) - 20);
            memcpy(in.getHost().data() + i * 4, &x, 4);
          }
          in.upload();
          world->allReduce(stream, in.data(), out.data(), count, DataType::F32, Reduction::Sum,
                           {"all_reduce", 1, ""});
          world->allGather(stream, out.data(), all.data(), count, DataType::F32,
                           {"all_gather", 2, ""});
          stream.synchronize();
          out.download();
          all.download();
          for (size_t i = 0; i < all.getHost().size(); ++i)
            if (all.getHost()[i] != out.getHost()[i % (count * 4)])
              throw std::runtime_error("the sum differs between ranks at " + std::to_string(i / 4));
        }
      },
      {2, 3, 5, 8});
}

TEST_P(TransportTest, CommunicatorsAreIndependent) {
  EXPECT_THAT(
      run(4,
          [](Transport &transport) {
            int rank = transport.getRank();
            std::vector<int> row{rank / 2 * 2, rank / 2 * 2 + 1}, column{rank % 2, rank % 2 + 2};
            std::vector<std::unique_ptr<Communicator>> communicators;
            communicators.push_back(makeWorld(transport));
            communicators.push_back(transport.createCommunicator(row, "row"));
            communicators.push_back(transport.createCommunicator(column, "column"));
            communicators.push_back(makeWorld(transport, "again"));
            std::vector<std::string> failures(communicators.size());
            std::vector<std::thread> threads;
            for (size_t c = 0; c < communicators.size(); ++c) {
              threads.emplace_back([&, c, device = rankDevice] {
                rankDevice = device;
                try {
                  RankStream stream;
                  Communicator &comm = *communicators[c];
                  Array in = makeArray(DataType::I64, 700, [&](size_t) { return rank; });
                  Array out(DataType::I64, 700);
                  int64_t expected = c == 1 ? row[0] + row[1] : c == 2 ? column[0] + column[1] : 6;
                  Array sum =
                      makeArray(DataType::I64, 700, [&](size_t) { return double(expected); });
                  for (uint32_t i = 0; i < 20; ++i) {
                    comm.allReduce(stream, in.data(), out.data(), 700, DataType::I64,
                                   Reduction::Sum, {"all_reduce", i, "node"});
                    stream.synchronize();
                    out.expect(sum, "communicator " + std::to_string(c));
                  }
                } catch (const std::exception &error) {
                  failures[c] = error.what();
                }
              });
              if (transport.getName() == "nccl") // wants one order of calls on all ranks
                threads.back().join();
            }
            for (std::thread &thread : threads)
              if (thread.joinable())
                thread.join();
            for (const std::string &failure : failures)
              if (!failure.empty())
                throw std::runtime_error(failure);
          }),
      Each(Outcome{}));
}

TEST_P(TransportTest, CommunicatorsAreMadeAgain) {
  EXPECT_THAT(run(3,
                  [](Transport &transport) {
                    RankStream stream;
                    for (int i = 0; i < 50; ++i) {
                      auto world = makeWorld(transport, "round " + std::to_string(i));
                      Array value =
                          makeArray(DataType::I32, 1, [&](size_t) { return transport.getRank(); });
                      Array sum = makeArray(DataType::I32, 1, [](size_t) { return 3; });
                      void *data = value.data();
                      world->allReduce(stream, data, data, 1, DataType::I32, Reduction::Sum,
                                       {"all_reduce", 1, ""});
                      stream.synchronize();
                      value.expect(sum, "all_reduce");
                    }
                  }),
              Each(Outcome{}));
}

TEST_P(CheckingTransportTest, GroupsAreChecked) {
  EXPECT_THAT(run(2,
                  [](Transport &transport) {
                    std::vector<std::vector<int>> wrong{
                        {1, 0}, {0, 0}, {0, 2}, {1 - transport.getRank()}, {}};
                    for (const std::vector<int> &ranks : wrong)
                      try {
                        transport.createCommunicator(ranks, "wrong");
                        throw std::runtime_error("a wrong group was accepted");
                      } catch (const Error &error) {
                        if (error.getCode() != ErrorCode::InvalidArgument)
                          throw;
                      }
                    RankStream stream;
                    auto world = makeWorld(transport);
                    RankMemory x(4);
                    for (int peer : {-1, 2, transport.getRank()})
                      try {
                        world->send(stream, x.data(), 1, DataType::F32, peer, {"send", 1, ""});
                        throw std::runtime_error("a wrong peer was accepted");
                      } catch (const Error &) {
                      }
                  }),
              Each(Outcome{}));
}

//===----------------------------------------------------------------------===//
// Disagreement
//===----------------------------------------------------------------------===//

using Step = std::function<void(Communicator &, Stream &, void *)>;

namespace {
struct Disagreement {
  const char *name;
  Step first, second; // of rank 0 and of the others
  std::vector<std::string> words;
};
} // namespace

static std::vector<Disagreement> getDisagreements() {
  auto reduce = [](size_t count, DataType type, Reduction reduction, uint32_t sequence) -> Step {
    return [=](Communicator &comm, Stream &stream, void *data) {
      comm.allReduce(stream, data, data, count, type, reduction,
                     {"all_reduce", sequence, "/layer/MatMul"});
    };
  };
  auto broadcast = [](int root) -> Step {
    return [=](Communicator &comm, Stream &stream, void *data) {
      comm.broadcast(stream, data, data, 4, DataType::F32, root, {"broadcast", 1, "/cond"});
    };
  };
  Step gather = [](Communicator &comm, Stream &stream, void *data) {
    comm.allGather(stream, data, static_cast<char *>(data) + 4096, 8, DataType::F32,
                   {"all_gather", 1, "/layer/Gather"});
  };
  Step plain = reduce(8, DataType::F32, Reduction::Sum, 1);
  return {
      {"kind", plain, gather, {"all_reduce #1", "all_gather #1", "/layer/MatMul", "/layer/Gather"}},
      {"count", plain, reduce(9, DataType::F32, Reduction::Sum, 1), {"with 8 f32", "with 9 f32"}},
      {"chunks",
       plain,
       reduce(9000, DataType::F32, Reduction::Sum, 1),
       {"with 8 f32", "with 9000 f32"}},
      {"type", plain, reduce(8, DataType::I32, Reduction::Sum, 1), {"with 8 f32", "with 8 i32"}},
      {"reduction", plain, reduce(8, DataType::F32, Reduction::Max, 1), {"f32, sum", "f32, max"}},
      {"order",
       plain,
       reduce(8, DataType::F32, Reduction::Sum, 2),
       {"all_reduce #1", "all_reduce #2"}},
      {"root", broadcast(0), broadcast(1), {"from member 0", "from member 1"}},
  };
}

TEST_P(CheckingTransportTest, DisagreementNamesBothSides) {
  for (const Disagreement &disagreement : getDisagreements()) {
    std::vector<Outcome> outcomes = run(3, [&](Transport &transport) {
      auto world = makeWorld(transport);
      RankMemory data(80000);
      RankStream stream;
      (transport.getRank() == 0 ? disagreement.first : disagreement.second)(*world, stream,
                                                                            data.data());
      stream.synchronize();
    });
    for (const Outcome &outcome : outcomes) {
      EXPECT_EQ(outcome.code, int(ErrorCode::InvalidArgument))
          << disagreement.name << ": " << outcome.text;
      EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 0 calls"), HasSubstr("calls")))
          << disagreement.name;
      for (const std::string &word : disagreement.words)
        EXPECT_THAT(outcome.text, HasSubstr(word)) << disagreement.name;
    }
  }
}

TEST_P(CheckingTransportTest, TransfersOfDifferentSizesDisagree) {
  // More than a channel holds: a smaller message may be on its way before its receiver looks.
  std::vector<Outcome> outcomes = run(2, [](Transport &transport) {
    auto world = makeWorld(transport);
    RankMemory data(1200000);
    RankStream stream;
    if (transport.getRank() == 0)
      world->send(stream, data.data(), 300000, DataType::F32, 1, {"send", 1, "/cut"});
    else
      world->recv(stream, data.data(), 8, DataType::F32, 0, {"recv", 2, "/cut"});
    stream.synchronize();
  });
  EXPECT_EQ(outcomes[1].code, int(ErrorCode::InvalidArgument));
  for (const Outcome &outcome : outcomes)
    EXPECT_THAT(outcome.text,
                AllOf(HasSubstr("rank 0 calls send #1"), HasSubstr("rank 1 calls recv #2"),
                      HasSubstr("300000 f32"), HasSubstr("8 f32")));
}

TEST_P(CheckingTransportTest, NamesOfCommunicatorsDisagree) {
  std::vector<Outcome> outcomes = run(2, [](Transport &transport) {
    makeWorld(transport, transport.getRank() == 0 ? "data" : "model");
  });
  for (const Outcome &outcome : outcomes)
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("named data"), HasSubstr("named model")));
}

//===----------------------------------------------------------------------===//
// Failure
//===----------------------------------------------------------------------===//

/// All-reduces until something breaks; `before` runs ahead of call number 5.
static Body reduceUntil(const std::function<void(Transport &)> &before) {
  return [before](Transport &transport) {
    auto world = makeWorld(transport);
    RankStream stream;
    RankMemory data(12000);
    for (uint32_t i = 1; i < 1000; ++i) {
      if (i == 5)
        before(transport);
      world->allReduce(stream, data.data(), data.data(), 3000, DataType::F32, Reduction::Sum,
                       {"all_reduce", i, "/encoder/0/MatMul"});
      stream.synchronize();
    }
  };
}

/// That a rank notices long before the deadline of 20 s; a busy machine takes more than the second
/// that is promised.
static Body noticing(const Body &body) {
  return [=](Transport &transport) {
    auto begin = std::chrono::steady_clock::now();
    try {
      body(transport);
    } catch (...) {
      auto passed = std::chrono::steady_clock::now() - begin;
      if (passed > std::chrono::seconds(8))
        throw std::runtime_error(
            "noticed only after " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()) +
            " ms");
      throw;
    }
  };
}

TEST_P(ProcessTransportTest, KilledRankFailsAll) {
  std::vector<Outcome> outcomes = run(4, noticing(reduceUntil([](Transport &transport) {
                                        if (transport.getRank() == 2)
                                          raise(SIGKILL);
                                      })));
  EXPECT_EQ(outcomes[2].code, -1);
  for (int rank : {0, 1, 3}) {
    const Outcome &outcome = outcomes[size_t(rank)];
    EXPECT_EQ(outcome.code, int(ErrorCode::PeerFailed)) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 2 died"), HasSubstr("all_reduce #5"),
                                    HasSubstr("onnx node /encoder/0/MatMul")));
  }
}

TEST_P(ProcessTransportTest, KilledPeerFailsTransfer) {
  std::vector<Outcome> outcomes = run(3, noticing([](Transport &transport) {
                                        auto world = makeWorld(transport);
                                        RankStream stream;
                                        std::vector<float> data(9000);
                                        if (transport.getRank() == 0)
                                          raise(SIGKILL);
                                        // Rank 2 waits for a living rank, which waits for the dead
                                        // one.
                                        world->recv(stream, data.data(), data.size(), DataType::F32,
                                                    transport.getRank() - 1, {"recv", 0, "/cut"});
                                        stream.synchronize();
                                      }));
  for (int rank : {1, 2}) {
    EXPECT_EQ(outcomes[size_t(rank)].code, int(ErrorCode::PeerFailed));
    EXPECT_THAT(outcomes[size_t(rank)].text,
                AllOf(HasSubstr("rank 0 died"), HasSubstr("recv #0"), HasSubstr("/cut")));
  }
}

TEST_P(ProcessTransportTest, StoppedRankMeetsTheDeadline) {
  JobOptions options;
  options.transport.deadline = shortDeadline;
  options.beside = [](const std::vector<pid_t> &children) {
    siginfo_t info;
    for (int rank : {0, 2})
      waitid(P_PID, id_t(children[size_t(rank)]), &info, WEXITED | WNOWAIT);
    kill(children[1], SIGCONT); // back from the dead: it must not go on as if nothing were
  };
  std::vector<Outcome> outcomes = run(3, reduceUntil([](Transport &transport) {
                                        if (transport.getRank() == 1)
                                          raise(SIGSTOP);
                                      }),
                                      options);
  for (const Outcome &outcome : outcomes) {
    EXPECT_EQ(outcome.code, int(ErrorCode::DeadlineExceeded)) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("missing rank 1"), HasSubstr("1500 ms"),
                                    HasSubstr("all_reduce #5"), HasSubstr("/encoder/0/MatMul")));
  }
}

TEST_P(CheckingTransportTest, SilentRankMeetsTheDeadline) {
  JobOptions options;
  options.transport.deadline = shortDeadline;
  std::vector<Outcome> outcomes = run(3, noticing(reduceUntil([](Transport &transport) {
                                        if (transport.getRank() == 0)
                                          idleUntilFailed(transport);
                                      })),
                                      options);
  for (const Outcome &outcome : outcomes) {
    EXPECT_EQ(outcome.code, int(ErrorCode::DeadlineExceeded)) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("missing rank 0"), HasSubstr("all_reduce #5")));
  }
}

TEST_P(CheckingTransportTest, LeavingFailsThoseWhoWait) {
  std::vector<Outcome> outcomes = run(3, noticing(reduceUntil([](Transport &transport) {
                                        if (transport.getRank() == 0)
                                          throw std::invalid_argument("own trouble");
                                      })));
  EXPECT_EQ(outcomes[0].text, "own trouble");
  for (int rank : {1, 2}) {
    EXPECT_EQ(outcomes[size_t(rank)].code, int(ErrorCode::PeerFailed));
    EXPECT_THAT(outcomes[size_t(rank)].text,
                AllOf(HasSubstr("rank 0 has left"), HasSubstr("all_reduce #5")));
  }
}

TEST_P(CheckingTransportTest, AbortWakesEverybody) {
  std::vector<Outcome> outcomes =
      run(4, noticing(reduceUntil([](Transport &transport) {
            if (transport.getRank() == 3) {
              std::this_thread::sleep_for(std::chrono::milliseconds(100)); // until they wait for it
              transport.abort("weights.onnx is truncated");
            }
          })));
  for (const Outcome &outcome : outcomes) {
    EXPECT_EQ(outcome.code, int(ErrorCode::PeerFailed)) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 3"), HasSubstr("weights.onnx is truncated")));
  }
}

TEST_P(CheckingTransportTest, AbsentRankFailsCreation) {
  JobOptions options;
  options.transport.deadline = shortDeadline;
  std::vector<Outcome> outcomes = run(
      3,
      [](Transport &transport) {
        if (transport.getRank() == 1)
          idleUntilFailed(transport);
        else
          makeWorld(transport, "world");
      },
      options);
  for (int rank : {0, 2}) {
    EXPECT_EQ(outcomes[size_t(rank)].code, int(ErrorCode::DeadlineExceeded));
    EXPECT_THAT(outcomes[size_t(rank)].text,
                AllOf(HasSubstr("missing rank 1"), HasSubstr("group world {0,1,2}")));
  }
}

static std::string getName(const testing::TestParamInfo<Kind> &info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Local, TransportTest,
                         testing::Values(threadsKind, processesKind, strangersKind), getName);
INSTANTIATE_TEST_SUITE_P(Shared, TransportTest,
                         testing::Values(sharingThreadsKind, sharingProcessesKind), getName);
INSTANTIATE_TEST_SUITE_P(Registered, TransportTest, testing::ValuesIn(getRegisteredCpuKinds()),
                         getName);
INSTANTIATE_TEST_SUITE_P(Gpu, TransportTest, testing::Values(loopbackKind, ncclKind), getName);
INSTANTIATE_TEST_SUITE_P(Local, CheckingTransportTest,
                         testing::Values(threadsKind, processesKind, strangersKind), getName);
INSTANTIATE_TEST_SUITE_P(Shared, CheckingTransportTest,
                         testing::Values(sharingThreadsKind, sharingProcessesKind), getName);
INSTANTIATE_TEST_SUITE_P(Gpu, CheckingTransportTest, testing::Values(loopbackKind), getName);
INSTANTIATE_TEST_SUITE_P(Local, ProcessTransportTest, testing::Values(processesKind, strangersKind),
                         getName);
INSTANTIATE_TEST_SUITE_P(Shared, ProcessTransportTest, testing::Values(sharingProcessesKind),
                         getName);
