//===- CpuGraphTest.cpp - captured work on CPU streams --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/device/Device.h"
#include "runtime/device/cpu/ThreadPool.h"

#include <atomic>
#include <deque>
#include <gmock/gmock.h>
#include <random>
#include <set>
#include <thread>

using namespace gridloom::rt;

namespace {

struct Streams {
  explicit Streams(int count) : device(createCpuDevice(2)) {
    for (int i = 0; i < count; ++i) {
      owners.push_back(device->createStream(StreamKind::Compute, "s" + std::to_string(i)));
      all.push_back(owners.back().get());
    }
  }
  void synchronize() {
    for (Stream *stream : all)
      stream->synchronize();
  }
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Stream>> owners;
  std::vector<Stream *> all;
};

TEST(CpuGraphTest, RunsAgainWhatWasCaptured) {
  Streams streams(1);
  std::vector<int> order;
  streams.device->beginCapture(streams.all);
  for (int i = 0; i < 3; ++i)
    streams.all[0]->enqueueHost([&, i] { order.push_back(i); });
  auto graph = streams.device->endCapture();
  streams.synchronize();
  EXPECT_TRUE(order.empty());
  for (int run = 0; run < 2; ++run) {
    streams.all[0]->enqueueHost([&] { order.push_back(-1); });
    streams.device->replay(*streams.all[0], *graph);
  }
  streams.all[0]->enqueueHost([&] { order.push_back(9); });
  streams.synchronize();
  EXPECT_EQ(order, (std::vector<int>{-1, 0, 1, 2, -1, 0, 1, 2, 9}));
}

TEST(CpuGraphTest, CancelledCaptureLeavesStreamsAsTheyWere) {
  Streams streams(1);
  int runs = 0;
  streams.device->beginCapture(streams.all);
  streams.all[0]->enqueueHost([&] { runs += 100; });
  streams.device->cancelCapture();
  streams.all[0]->enqueueHost([&] { ++runs; });
  streams.synchronize();
  EXPECT_EQ(runs, 1);
}

/// Random work, records and waits on up to four streams: under any timing each piece runs once per
/// replay, in its stream's order and after everything it waits for.
TEST(CpuGraphTest, RandomProgramsKeepTheirOrder) {
  std::mt19937 random(5);
  for (int program = 0; program < 40; ++program) {
    int count = 1 + int(random() % 4);
    Streams streams(count);
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < 3; ++i)
      events.push_back(streams.device->createEvent());
    // The model: all pieces that must be done before a piece begins.
    struct Piece {
      std::vector<size_t> before;
      std::atomic<int> runs{0};
    };
    std::deque<Piece> pieces;
    std::atomic<int> wrong{0};
    std::vector<std::set<size_t>> known(static_cast<size_t>(count)), marked(events.size());
    streams.device->beginCapture(streams.all);
    for (int step = 0; step < 60; ++step) {
      size_t at = random() % size_t(count), event = random() % events.size();
      switch (random() % 3) {
      case 0: {
        size_t number = pieces.size();
        Piece &piece = pieces.emplace_back();
        piece.before.assign(known[at].begin(), known[at].end());
        unsigned pause = random() % 4 == 0 ? random() % 100 : 0;
        streams.all[at]->enqueueHost([&pieces, &piece, &wrong, pause] {
          if (pause)
            std::this_thread::sleep_for(std::chrono::microseconds(pause));
          int run = piece.runs + 1;
          for (size_t other : piece.before)
            wrong += pieces[other].runs != run;
          piece.runs = run;
        });
        known[at].insert(number);
        break;
      }
      case 1:
        streams.all[at]->record(*events[event]);
        marked[event] = known[at];
        break;
      default:
        streams.all[at]->wait(*events[event]);
        known[at].insert(marked[event].begin(), marked[event].end());
      }
    }
    auto graph = streams.device->endCapture();
    constexpr int runs = 20;
    for (int run = 0; run < runs; ++run)
      streams.device->replay(*streams.all[0], *graph);
    streams.all[0]->synchronize();
    EXPECT_EQ(wrong, 0) << "program " << program;
    for (const Piece &piece : pieces)
      EXPECT_EQ(piece.runs, runs) << "program " << program;
  }
}

/// Streams alternate ten thousand times, as for a collective that no work hides, where one thread
/// hands the work to itself, and for one that is hidden.
TEST(CpuGraphTest, HandsOverBothWays) {
  for (bool isHidden : {false, true}) {
    Streams streams(2);
    Stream &compute = *streams.all[0], &communication = *streams.all[1];
    std::vector<std::unique_ptr<Event>> events;
    int value = 0;
    std::atomic<int> hidden{0};
    streams.device->beginCapture(streams.all);
    for (int i = 0; i < 100; ++i) {
      Event &sent = *events.emplace_back(streams.device->createEvent());
      Event &received = *events.emplace_back(streams.device->createEvent());
      compute.enqueueHost([&value] { value = 2 * value + 1; });
      compute.record(sent);
      communication.wait(sent);
      communication.enqueueHost([&value] { value /= 2; });
      communication.record(received);
      if (isHidden)
        compute.enqueueHost([&hidden] { ++hidden; });
      compute.wait(received);
      compute.enqueueHost([&value] { ++value; });
    }
    auto graph = streams.device->endCapture();
    for (int run = 0; run < 100; ++run)
      streams.device->replay(compute, *graph);
    streams.synchronize();
    EXPECT_EQ(value, 10000);
    EXPECT_EQ(hidden, isHidden ? 10000 : 0);
  }
}

/// A failure of one stream ends the others' waits, is reported once, and is permanent.
TEST(CpuGraphTest, FailuresEndTheGraph) {
  for (size_t failing : {0u, 1u}) {
    Streams streams(2);
    auto event = streams.device->createEvent();
    std::vector<std::string> reported;
    streams.device->setErrorHandler([&](const std::string &text) { reported.push_back(text); });
    bool reached = false;
    streams.device->beginCapture(streams.all);
    streams.all[failing]->enqueueHost([] { throw Error(ErrorCode::Internal, "broken"); });
    streams.all[failing]->record(*event);
    streams.all[1 - failing]->wait(*event);
    streams.all[1 - failing]->enqueueHost([&] { reached = true; });
    auto graph = streams.device->endCapture();
    streams.device->replay(*streams.all[0], *graph);
    try {
      streams.all[0]->synchronize();
      ADD_FAILURE() << "no error";
    } catch (const Error &error) {
      EXPECT_STREQ(error.what(), "broken");
    }
    streams.device->replay(*streams.all[0], *graph);
    EXPECT_THROW(streams.all[0]->synchronize(), Error);
    EXPECT_FALSE(reached);
    streams.owners.clear(); // ends its threads
    EXPECT_EQ(reported, std::vector<std::string>{"broken"});
  }
}

/// A pool does not wait for workers without work: one worker is blocked here.
TEST(ThreadPoolTest, PiecesAreNotWaitedForWhereTheyAreDone) {
  std::atomic<bool> goOn{false};
  std::atomic<int> started{0};
  ThreadPool pool(3, [&] {
    if (++started == 2)
      while (!goOn)
        std::this_thread::yield();
  });
  while (started < 2)
    std::this_thread::yield();
  std::atomic<int> done{0};
  for (int i = 0; i < 100; ++i)
    pool.parallelFor(3, [&](int64_t) { ++done; });
  EXPECT_EQ(done, 300);
  goOn = true;
}

} // namespace
