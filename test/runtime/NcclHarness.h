//===- NcclHarness.h - tests of ranks that NCCL connects --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_NCCLHARNESS_H
#define GRIDLOOM_TEST_RUNTIME_NCCLHARNESS_H

#include "runtime/comm/nccl/NcclLibrary.h"
#include "test/fake/GpuHarness.h"

#include <numeric>

namespace gridloom::rt::test {

inline constexpr OpContext context{"all_reduce", 12, "/encoder/0/MatMul"};

/// The objects that a rank's test body uses.
struct Rank {
  int number;
  CudaDevice &device;
  Transport &transport;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> world;
};

inline std::vector<int> makeRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// A deadline for tests that time out, long enough to connect on a busy machine.
inline constexpr std::chrono::milliseconds patience{1500};

/// Runs `body` on `size` connected ranks. Returns each rank's error.
inline std::vector<std::string>
runJob(int size, const std::function<void(Rank &)> &body,
       std::chrono::milliseconds deadline = std::chrono::seconds(20),
       std::shared_ptr<ProgressBoard> board = nullptr) {
  ThreadExchange exchange;
  return runRanks(size, [&](int number) {
    CudaDevice device(number);
    NcclOptions options = exchange.makeOptions(number, deadline);
    options.progress = board;
    auto transport = createNcclTransport(device, number, size, std::move(options));
    Rank rank{number, device, *transport, device.createStream(StreamKind::Communication, "comm"),
              transport->createCommunicator(makeRanks(size), "world")};
    body(rank);
  });
}

class NcclTransportTest : public FakeGpus {
protected:
  void SetUp() override {
    FakeGpus::SetUp();
    restart({});
  }
  void restart(const fake::NcclSettings &settings, fake::Schedule schedule = fake::Schedule::Eager,
               uint64_t seed = 1) {
    fake::Options options;
    options.devices = 4;
    options.schedule = schedule;
    options.seed = seed;
    fake::reset(options);
    fake::resetNccl(settings);
  }
};

} // namespace gridloom::rt::test

#endif // GRIDLOOM_TEST_RUNTIME_NCCLHARNESS_H
