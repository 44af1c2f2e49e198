//===- DeviceTransportHarness.h - jobs of ranks on fake GPUs ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_DEVICETRANSPORTHARNESS_H
#define GRIDLOOM_TEST_RUNTIME_DEVICETRANSPORTHARNESS_H

#include "TransportHarness.h"

#include "runtime/core/Placement.h"
#include "test/fake/FakeCuda.h"
#include "test/fake/FakeNccl.h"

namespace gridloom::rt::test {

/// Runs `body` on threads whose devices are fake GPUs joined by `transport`. Findings fail a rank.
inline std::vector<Outcome> runOnGpus(const std::string &transport, int n,
                                      const JobOptions &options, const Body &body) {
  setenv("GRIDLOOM_CUDA_DRIVER", GRIDLOOM_FAKE_CUDA, 1);
  setenv("GRIDLOOM_NCCL", GRIDLOOM_FAKE_NCCL, 1);
  fake::Options fakes;
  fakes.devices = transport == "loopback" ? 1 : n;
  fakes.schedule = fake::Schedule::Random;
  fakes.seed = 3;
  fake::reset(fakes);
  fake::resetNccl();
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  {
    PlacementOptions placing;
    placing.transport = transport;
    placing.limits = options.transport;
    placing.prepare("cuda", n, /*inProcess=*/true, "the test");
    auto hosts = createInProcessTransports(n, options.transport);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < n; ++rank)
      threads.emplace_back([&, rank] {
        std::unique_ptr<Transport> host = std::move(hosts[size_t(rank)]);
        try {
          Placement placement = placeRank(placing, rank, rank, n, host.get());
          rankDevice = placement.device.get();
          outcomes[size_t(rank)] = runBody(body, [&] {
            return placement.deviceTransport ? std::move(placement.deviceTransport)
                                             : std::move(host);
          });
        } catch (const std::exception &error) {
          outcomes[size_t(rank)] = {100, error.what()};
        }
        rankDevice = nullptr;
      });
    for (std::thread &thread : threads)
      thread.join();
  }
  for (const std::string &finding : fake::takeFindings())
    outcomes[0] = {101, finding};
  for (const std::string &leak : fake::findLeaks())
    outcomes[0] = {102, "leaked " + leak};
  return outcomes;
}

inline std::vector<Outcome> runLoopback(int n, const JobOptions &options, const Body &body) {
  return runOnGpus("loopback", n, options, body);
}
inline std::vector<Outcome> runNccl(int n, const JobOptions &options, const Body &body) {
  return runOnGpus("nccl", n, options, body);
}

/// Runs `body` on threads whose CPU devices are joined by `transport`.
inline std::vector<Outcome> runOnCpus(const std::string &transport, int n,
                                      const JobOptions &options, const Body &body) {
  PlacementOptions placing;
  placing.transport = transport;
  placing.threads = 1;
  placing.limits = options.transport;
  placing.prepare("cpu", n, /*inProcess=*/true, "the test");
  auto hosts = createInProcessTransports(n, options.transport, options.chunkBytes);
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Transport> host = std::move(hosts[size_t(rank)]);
      Placement placement;
      outcomes[size_t(rank)] = runBody(body, [&] {
        placement = placeRank(placing, rank, rank, n, host.get());
        return placement.deviceTransport ? std::move(placement.deviceTransport) : std::move(host);
      });
    });
  for (std::thread &thread : threads)
    thread.join();
  return outcomes;
}

/// Every registered transport between CPU ranks.
inline std::vector<Kind> getRegisteredCpuKinds() {
  std::vector<Kind> kinds;
  for (const TransportKind *kind : getTransportKinds())
    if (kind->getDeviceKind() == "cpu")
      kinds.push_back({kind->getName(), [name = kind->getName()](int n, const JobOptions &options,
                                                                 const Body &body) {
                         return runOnCpus(name, n, options, body);
                       }});
  return kinds;
}

inline const Kind loopbackKind{"Loopback", runLoopback, /*isSlow=*/true};
inline const Kind ncclKind{"Nccl", runNccl, /*isSlow=*/true, /*reducesShortIntegers=*/false};

} // namespace gridloom::rt::test

#endif // GRIDLOOM_TEST_RUNTIME_DEVICETRANSPORTHARNESS_H
