//===- NcclFailureTest.cpp - failures of jobs on several GPUs -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/runtime/NcclHarness.h"

#include <atomic>
#include <latch>

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

using NcclFailureTest = NcclTransportTest;

TEST_F(NcclFailureTest, PlantedWrongCountIsFoundAndFailsTheRun) {
  auto errors = runJob(2, [&](Rank &rank) {
    auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
    rank.world->allReduce(*rank.stream, memory->data, memory->data, rank.number ? 8 : 16,
                          DataType::F32, Reduction::Sum, context);
    rank.stream->synchronize();
  });
  EXPECT_THAT(errors, Each(HasSubstr("all_reduce #12 (onnx node /encoder/0/MatMul) failed on "
                                     "communicator world of ranks 0, 1: invalid usage")));
  EXPECT_THAT(fake::takeFindings(), Contains(AllOf(HasSubstr("ncclAllReduce of 8 elements"),
                                                   HasSubstr("ncclAllReduce of 16 elements"))));
}

TEST_F(NcclFailureTest, PlantedSwappedOrderIsFoundAndFailsTheRun) {
  auto errors = runJob(2, [&](Rank &rank) {
    auto memory = upload(rank.device, *rank.stream, std::vector<float>(32, 1.0f));
    auto reduce = [&] {
      rank.world->allReduce(*rank.stream, memory->data, memory->data, 16, DataType::F32,
                            Reduction::Sum, context);
    };
    auto gather = [&] {
      auto *values = static_cast<float *>(memory->data);
      rank.world->allGather(*rank.stream, values + ptrdiff_t{16} * rank.number, values, 16,
                            DataType::F32, {"all_gather", 13, "/encoder/1/MatMul"});
    };
    rank.number ? gather() : reduce();
    rank.number ? reduce() : gather();
    rank.stream->synchronize();
  });
  EXPECT_THAT(errors, Each(HasSubstr("invalid usage")));
  EXPECT_THAT(fake::takeFindings(), Contains(HasSubstr("where rank")));
}

TEST_F(NcclFailureTest, PlantedSwappedCommunicatorsAreACycle) {
  // Both ranks make the same calls on each communicator, but in another order across communicators:
  // with one kernel at a time on a GPU they would wait for each other.
  auto run = [&](bool swapped) {
    restart({});
    runJob(
        2,
        [&](Rank &rank) {
          auto other = rank.transport.createCommunicator(makeRanks(2), "other");
          auto stream = rank.device.createStream(StreamKind::Communication, "other");
          auto first = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
          auto second = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
          auto onWorld = [&] {
            rank.world->allReduce(*rank.stream, first->data, first->data, 16, DataType::F32,
                                  Reduction::Sum, context);
          };
          auto onOther = [&] {
            other->allReduce(*stream, second->data, second->data, 16, DataType::F32, Reduction::Sum,
                             context);
          };
          bool otherFirst = swapped && rank.number == 1;
          otherFirst ? onOther() : onWorld();
          otherFirst ? onWorld() : onOther();
          drain(*rank.stream); // if swapped, both wait for each other until the deadline
          drain(*stream);
        },
        patience);
    return fake::findNcclCycles();
  };
  EXPECT_THAT(run(false), IsEmpty());
  EXPECT_THAT(run(true),
              Contains(AllOf(HasSubstr("of communicator 0"), HasSubstr("of communicator 1"))));
}

TEST_F(NcclFailureTest, MissingRankEndsAtTheDeadlineAndIsNamed) {
  auto board = std::make_shared<ThreadBoard>();
  std::atomic<bool> over = false;
  auto errors = runJob(
      3,
      [&](Rank &rank) {
        auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
        rank.world->barrier(*rank.stream, {"barrier", 11, ""});
        rank.stream->synchronize();
        if (rank.number == 1) {
          while (!over) // alive, but makes no call
            std::this_thread::sleep_for(1ms);
          return;
        }
        try {
          rank.world->allReduce(*rank.stream, memory->data, memory->data, 16, DataType::F32,
                                Reduction::Sum, context);
          rank.stream->synchronize();
        } catch (...) {
          over = true;
          throw;
        }
      },
      patience, board);
  for (int rank : {0, 2})
    EXPECT_THAT(
        errors[size_t(rank)],
        AllOf(HasSubstr("all_reduce #12 (onnx node /encoder/0/MatMul) made no progress for"),
              HasSubstr("(deadline 1500 ms) on communicator world of ranks 0, 1, 2"),
              HasSubstr("; missing: rank 1")))
        << rank;
  EXPECT_THAT(fake::takeFindings(), IsEmpty());
}

TEST_F(NcclFailureTest, DeadlineDoesNotCountTimeBehindComputation) {
  auto errors = runJob(
      2,
      [&](Rank &rank) {
        auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
        rank.stream->enqueueHost([] { std::this_thread::sleep_for(patience + 300ms); });
        rank.world->allReduce(*rank.stream, memory->data, memory->data, 16, DataType::F32,
                              Reduction::Sum, context);
        rank.stream->synchronize();
      },
      patience);
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclFailureTest, AsynchronousErrorEndsTheRun) {
  std::atomic<int> ready = 0;
  auto errors = runJob(2, [&](Rank &rank) {
    auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
    ++ready;
    while (ready < 2)
      std::this_thread::yield();
    if (rank.number == 1) {
      fake::setNcclError(0, 6);
      fake::setNcclError(1, 6);
      rank.stream->synchronize();
      return;
    }
    try {
      rank.world->allReduce(*rank.stream, memory->data, memory->data, 16, DataType::F32,
                            Reduction::Sum, context);
      rank.stream->synchronize();
    } catch (const Error &) {
      drain(*rank.stream);
      throw;
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("failed on communicator world of ranks 0, 1: remote process "
                                   "exited or there was a network error"));
}

TEST_F(NcclFailureTest, AbortFailsPendingAndLaterCallsAndTellsPeers) {
  ThreadExchange exchange;
  std::vector<Transport *> transports(2);
  std::atomic<int> ready = 0;
  auto errors = runRanks(2, [&](int number) {
    CudaDevice device(number);
    NcclOptions options = exchange.makeOptions(number);
    options.abortPeers = [&, number](const std::string &reason) {
      transports[size_t(1 - number)]->abort("rank " + std::to_string(number) +
                                            " gave up: " + reason);
    };
    auto transport = createNcclTransport(device, number, 2, std::move(options));
    transports[size_t(number)] = transport.get();
    auto stream = device.createStream(StreamKind::Communication, "comm");
    std::vector<int> ranks = {0, 1};
    auto world = transport->createCommunicator(ranks, "world");
    auto memory = upload(device, *stream, std::vector<float>(16, 1.0f));
    ++ready;
    while (ready < 2)
      std::this_thread::yield();
    auto reduce = [&] {
      world->allReduce(*stream, memory->data, memory->data, 16, DataType::F32, Reduction::Sum,
                       context);
      stream->synchronize();
    };
    std::string message;
    if (number == 0) {
      message = catchError(ErrorCode::PeerFailed, reduce); // rank 1 aborts while this is pending
      EXPECT_THAT(message, HasSubstr("rank 1 gave up: out of ideas"));
    } else {
      std::this_thread::sleep_for(20ms);
      transport->abort("out of ideas");
    }
    catchError(ErrorCode::PeerFailed, reduce);
    catchError(ErrorCode::PeerFailed, [&] { transport->createCommunicator(ranks, "more"); });
    drain(*stream);
    --ready;
    while (ready > 0)
      std::this_thread::yield();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(NcclFailureTest, DeadPeerIsNoticedByTheCheck) {
  ThreadExchange exchange;
  std::latch waits(1);
  std::atomic<bool> dead = false;
  auto errors = runRanks(2, [&](int number) {
    CudaDevice device(number);
    NcclOptions options = exchange.makeOptions(number);
    options.checkPeers = [&, number] {
      if (number == 0 && dead)
        throw Error(ErrorCode::PeerFailed, "rank 1 is gone");
    };
    auto transport = createNcclTransport(device, number, 2, std::move(options));
    auto stream = device.createStream(StreamKind::Communication, "comm");
    std::vector<int> ranks = {0, 1};
    auto world = transport->createCommunicator(ranks, "world");
    if (number == 1) {
      waits.wait();
      dead = true;
      transport->abort("killed");
      return;
    }
    try {
      world->barrier(*stream, {"barrier", 0, ""});
      waits.count_down();
      stream->synchronize();
    } catch (const Error &) {
      drain(*stream);
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("barrier #0"), HasSubstr("rank 1 is gone")));
}

/// A peer that leaves normally is no failure, but ranks that wait for it must stop waiting.
TEST_F(NcclFailureTest, PeerThatLeftIsNotWaitedFor) {
  ThreadExchange exchange;
  std::atomic<bool> left = false;
  auto begin = std::chrono::steady_clock::now();
  auto errors = runRanks(2, [&](int number) {
    CudaDevice device(number);
    NcclOptions options = exchange.makeOptions(number);
    options.transport.liveness = 200ms;
    options.checkPeers = [] {};
    options.checkAwaited = [&, number](std::span<const int> ranks) {
      if (ranks.size() == 1 && ranks[0] == 1 - number)
        left = true;
      throw Error(ErrorCode::PeerFailed, "rank 1 has left the job without taking part");
    };
    auto transport = createNcclTransport(device, number, 2, std::move(options));
    auto stream = device.createStream(StreamKind::Communication, "comm");
    std::vector<int> ranks = {0, 1};
    auto world = transport->createCommunicator(ranks, "world");
    std::this_thread::sleep_for(500ms); // while idle, a peer may leave
    if (number == 1) {
      while (!left)
        std::this_thread::yield();
      transport->abort("left");
      return;
    }
    try {
      world->barrier(*stream, {"barrier", 0, ""});
      stream->synchronize();
    } catch (const Error &) {
      drain(*stream);
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("barrier #0"), HasSubstr("rank 1 has left the job")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

TEST_F(NcclFailureTest, DeadPeerIsNoticedWhileConnecting) {
  ThreadExchange exchange;
  CudaDevice device(0);
  NcclOptions options = exchange.makeOptions(0);
  options.checkPeers = [] {
    if (fake::countNcclCalls(0) > 0)
      throw Error(ErrorCode::PeerFailed, "rank 1 is gone");
  };
  auto transport = createNcclTransport(device, 0, 2, std::move(options));
  std::vector<int> ranks = {0, 1};
  EXPECT_THAT(
      catchError(ErrorCode::PeerFailed, [&] { transport->createCommunicator(ranks, "world"); }),
      StartsWith("connecting rank 0 on communicator world of ranks 0, 1: rank 1 is gone"));
}

TEST_F(NcclFailureTest, FailedComputationClosesWithoutWaitingForPeers) {
  // A normal close waits for the peer, which here waits for this rank to be gone.
  ThreadExchange exchange;
  std::latch gone(1);
  bool soon = false;
  auto errors = runRanks(2, [&](int number) {
    CudaDevice device(number);
    auto transport = createNcclTransport(device, number, 2, exchange.makeOptions(number));
    auto stream = device.createStream(StreamKind::Communication, "comm");
    auto world = transport->createCommunicator(makeRanks(2), "world");
    if (number == 1) {
      world->barrier(*stream, {"barrier", 3, "node"});
      gone.wait();
      transport->abort("over");
      drain(*stream);
      return;
    }
    auto start = std::chrono::steady_clock::now();
    try {
      auto last = std::move(transport);
      auto first = std::move(world);
      throw Error(ErrorCode::Internal, "planted");
    } catch (const Error &) {
      soon = std::chrono::steady_clock::now() - start < 9s;
      gone.count_down();
      throw;
    }
  });
  EXPECT_THAT(errors, ElementsAre("planted", ""));
  EXPECT_TRUE(soon) << "it waited for its peer";
}

/// A kernel of one communicator is queued behind one of another that waits for a missing rank.
/// Aborting only the first communicator with ncclCommAbort would hang.
TEST_F(NcclFailureTest, AbortEndsKernelsBehindThoseOfOtherCommunicators) {
  for (int version : {22809, 22105})
    for (bool otherFirst : {false, true}) {
      fake::Options options;
      options.devices = 2;
      options.hangMilliseconds = 3000;
      fake::reset(options);
      fake::resetNccl({version});
      std::latch submitted(1);
      auto start = std::chrono::steady_clock::now();
      auto errors = runJob(2, [&](Rank &rank) {
        auto other = rank.transport.createCommunicator(makeRanks(2), "other");
        auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
        if (rank.number == 1) {
          submitted.wait();
          rank.transport.abort("out of ideas");
          return;
        }
        Communicator *first = rank.world.get(), *second = other.get();
        if (otherFirst)
          std::swap(first, second);
        for (Communicator *each : {first, second})
          each->allReduce(*rank.stream, memory->data, memory->data, 16, DataType::F32,
                          Reduction::Sum, context);
        submitted.count_down();
        rank.stream->synchronize();
      });
      EXPECT_THAT(errors[0], HasSubstr("rank 1 failed: out of ideas"));
      EXPECT_LT(std::chrono::steady_clock::now() - start, 2500ms);
      EXPECT_THAT(fake::takeFindings(), IsEmpty()) << version << otherFirst;
    }
}

TEST_F(NcclFailureTest, FailureIsSeenWhileAnAbortHangs) {
  fake::NcclSettings settings;
  settings.holdsAborts = true;
  restart(settings);
  ThreadExchange exchange;
  CudaDevice device(0);
  auto transport = createNcclTransport(device, 0, 1, exchange.makeOptions(0));
  std::vector<int> ranks = {0};
  auto world = transport->createCommunicator(ranks, "world");
  std::thread rescue([] { // otherwise a check that waits for the abort would hang
    std::this_thread::sleep_for(3s);
    fake::releaseNcclAborts();
  });
  auto start = std::chrono::steady_clock::now();
  transport->abort("out of ideas");
  while (fake::getCalls("ncclCommAbort").empty())
    std::this_thread::sleep_for(1ms);
  catchError(ErrorCode::PeerFailed, [&] { transport->check(); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  rescue.join();
}

/// Fails a rank whose ncclCommAbort hangs.
void hangInAbort() {
  fake::NcclSettings settings;
  settings.holdsAborts = true;
  fake::resetNccl(settings);
  ThreadExchange exchange;
  CudaDevice device(0);
  NcclOptions options = exchange.makeOptions(0);
  options.abortLimit = 200ms;
  auto transport = createNcclTransport(device, 0, 1, std::move(options));
  std::vector<int> ranks = {0};
  auto world = transport->createCommunicator(ranks, "world");
  transport->abort("out of ideas");
}

TEST_F(NcclFailureTest, AbortThatHangsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(hangInAbort(), testing::ExitedWithCode(70),
              "^error: rank 0: out of ideas; aborting NCCL took longer than 200 ms, so the process "
              "ends\n$");
}

/// Rank 1 does not take part in a setup call of all ranks; the others' errors must name it.
void expectCulprit(const std::function<void(Rank &)> &setup) {
  auto board = std::make_shared<ThreadBoard>();
  std::atomic<int> failed = 0;
  auto errors = runJob(
      3,
      [&](Rank &rank) {
        if (rank.number == 1) {
          while (failed < 1)
            std::this_thread::sleep_for(1ms);
          return;
        }
        try {
          setup(rank);
        } catch (...) {
          ++failed;
          throw;
        }
      },
      patience, board);
  EXPECT_THAT(errors, Contains(AllOf(HasSubstr("did not finish within 1500 ms"),
                                     HasSubstr("; missing: rank 1"))));
  fake::takeFindings(); // abandoned splits and registrations
}

TEST_F(NcclFailureTest, MissingRankOfASplitIsNamed) {
  expectCulprit([](Rank &rank) {
    std::vector<int> some = {0, 2};
    rank.transport.split(some, "some");
  });
}

TEST_F(NcclFailureTest, MissingRankOfALaterCommunicatorIsNamed) {
  // If the board went on from the counts of an earlier "group", rank 1 would seem to have arrived.
  auto board = std::make_shared<ThreadBoard>();
  std::atomic<bool> over = false;
  auto errors = runJob(
      2,
      [&](Rank &rank) {
        auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
        for (int round = 0; round < 2; ++round) {
          auto group = rank.transport.createCommunicator(makeRanks(2), "group");
          for (int i = 0; i < 3 && !(round == 1 && rank.number == 1); ++i) {
            group->barrier(*rank.stream, {"barrier", uint32_t(i), ""});
            try {
              rank.stream->synchronize();
            } catch (...) {
              over = true;
              throw;
            }
          }
          while (round == 1 && !over)
            std::this_thread::sleep_for(1ms);
        }
      },
      patience, board);
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("barrier #0 made no progress"), HasSubstr("; missing: rank 1")));
}

/// The board does not answer: the missing rank is unknown. It is asked once, without holding the
/// lock that calls need.
TEST_F(NcclFailureTest, SlowBoardHoldsUpNobody) {
  struct SlowBoard : ProgressBoard {
    void publish(int, const std::string &, uint64_t) override {}
    std::optional<uint64_t> read(int, const std::string &) override {
      ++reads;
      reading = true;
      for (int i = 0; i < 3000 && !seen; ++i)
        std::this_thread::sleep_for(1ms);
      return std::nullopt;
    }
    std::atomic<int> reads = 0;
    std::atomic<bool> reading = false, seen = false;
  };
  auto board = std::make_shared<SlowBoard>();
  std::atomic<bool> over = false;
  auto errors = runJob(
      3,
      [&](Rank &rank) {
        auto memory = upload(rank.device, *rank.stream, std::vector<float>(16, 1.0f));
        if (rank.number != 0) {
          while (!over)
            std::this_thread::sleep_for(1ms);
          return;
        }
        auto reduce = [&] {
          rank.world->allReduce(*rank.stream, memory->data, memory->data, 16, DataType::F32,
                                Reduction::Sum, context);
        };
        reduce();
        while (!board->reading)
          std::this_thread::sleep_for(1ms);
        auto start = std::chrono::steady_clock::now();
        reduce();
        EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
        board->seen = true;
        try {
          rank.stream->synchronize();
        } catch (...) {
          over = true;
          throw;
        }
      },
      patience, board);
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("made no progress"), HasSubstr("; rank 0 waits for ranks 1, 2")));
  EXPECT_EQ(board->reads, 1);
}

TEST_F(NcclFailureTest, ConnectingEndsAtTheDeadline) {
  ThreadExchange exchange;
  CudaDevice device(0);
  auto transport = createNcclTransport(device, 0, 2, exchange.makeOptions(0, 100ms));
  std::vector<int> ranks = {0, 1};
  EXPECT_THAT(catchError(ErrorCode::DeadlineExceeded,
                         [&] { transport->createCommunicator(ranks, "world"); }),
              AllOf(StartsWith("connecting rank 0 did not finish within 100 ms on communicator "
                               "world of ranks 0, 1"),
                    HasSubstr("rank 0 waits for rank 1")));
}

TEST_F(NcclFailureTest, TwoRanksOnOneGpuAreRefused) {
  ThreadExchange exchange;
  auto errors = runRanks(2, [&](int number) {
    CudaDevice device(0);
    auto transport = createNcclTransport(device, number, 2, exchange.makeOptions(number, 300ms));
    std::vector<int> ranks = {0, 1};
    transport->createCommunicator(ranks, "world");
  });
  EXPECT_THAT(errors, Contains(HasSubstr("invalid usage")));
}

TEST_F(NcclFailureTest, PlantedUseAfterDestroyIsFound) {
  // Calls the library directly: our classes rule this out.
  NcclLibrary library;
  CudaDevice device(0);
  device.getContext()->use();
  auto stream = device.createStream(StreamKind::Communication, "comm");
  auto memory = device.allocate(64);
  nccl::UniqueId id;
  library.getUniqueId(&id);
  nccl::Config config;
  nccl::Comm comm = nullptr;
  library.commInitRankConfig(&comm, 1, id, 0, &config);
  library.commDestroy(comm);
  EXPECT_NE(library.allReduce(memory->data, memory->data, 1, 7, 0, comm, stream->getNative()),
            nccl::SUCCESS);
  EXPECT_THAT(fake::takeFindings(),
              ElementsAre("ncclAllReduce after the communicator was destroyed"));
}

} // namespace
