//===- TransportHarness.h - jobs of threads and processes -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs a function on every rank of a job, over each kind of transport, and returns each rank's
// outcome. To add a transport to the suite, add a function here.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_TRANSPORTHARNESS_H
#define GRIDLOOM_TEST_RUNTIME_TRANSPORTHARNESS_H

#include "runtime/comm/local/LocalTransport.h"
#include "runtime/core/Error.h"
#include "runtime/device/Device.h"

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gridloom::rt::test {

/// A stream that runs work immediately, in the caller's thread.
class InlineStream final : public Stream {
public:
  void record(Event &) override {}
  void wait(Event &) override {}
  void enqueueHost(std::function<void()> work) override {
    if (error)
      return;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }
  void synchronize() override {
    if (error)
      std::rethrow_exception(error);
  }

private:
  std::exception_ptr error;
};

/// The device that holds this rank's operands; null: host memory.
inline thread_local Device *rankDevice = nullptr;

/// Allocates the memory of this rank's operands; null: the device does.
inline thread_local Transport *rankMemory = nullptr;

/// A stream of this rank.
class RankStream {
public:
  RankStream() {
    if (rankDevice)
      stream = rankDevice->createStream(StreamKind::Communication, "test");
    else
      stream = std::make_unique<InlineStream>();
  }
  operator Stream &() { return *stream; }
  void synchronize() { stream->synchronize(); }

private:
  std::unique_ptr<Stream> stream;
};

/// Memory of this rank, with a copy on the host.
class RankMemory {
public:
  explicit RankMemory(size_t bytes) : host(bytes) {
    if (rankDevice)
      memory = rankMemory ? rankMemory->allocate(*rankDevice, bytes) : rankDevice->allocate(bytes);
    upload();
  }
  std::byte *data() { return memory ? static_cast<std::byte *>(memory->data) : host.data(); }
  template <typename T> T *as() { return reinterpret_cast<T *>(data()); }
  /// The host's copy, valid before upload and after download.
  std::vector<std::byte> &getHost() { return host; }
  void upload() {
    if (!memory)
      return;
    RankStream stream;
    rankDevice->copyIn(stream, memory->data, host.data(), host.size());
    stream.synchronize();
  }
  void download() {
    if (!memory)
      return;
    RankStream stream;
    rankDevice->copyOut(stream, host.data(), memory->data, host.size());
    stream.synchronize();
  }

private:
  std::vector<std::byte> host;
  std::unique_ptr<Memory> memory;
};

/// How a rank ended: success is code 0 and no text; -1 is a signal.
struct Outcome {
  int code = 0;
  std::string text;
  bool operator==(const Outcome &) const = default;
};
inline void PrintTo(const Outcome &outcome, std::ostream *os) {
  *os << "{" << outcome.code << ", \"" << outcome.text << "\"}";
}

/// The body of a rank. std::runtime_error fails the test; the code under test throws Error.
using Body = std::function<void(Transport &)>;

/// A deadline for tests that time out, long enough for ranks to meet on a busy machine.
inline constexpr std::chrono::milliseconds shortDeadline(1500);

/// Idles until the job has failed, like a rank that is alive but takes no part.
inline void idleUntilFailed(Transport &transport) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  try {
    while (std::chrono::steady_clock::now() < end) {
      transport.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (const Error &) {
    return;
  }
  throw std::runtime_error("the job did not fail");
}

struct JobOptions {
  TransportOptions transport{std::chrono::milliseconds(20000), std::chrono::milliseconds(1000)};
  size_t chunkBytes = 4096; // small, so that few elements already make many chunks
  /// Runs beside a job of processes, with their ids.
  std::function<void(const std::vector<pid_t> &)> beside;
};

inline Outcome runBody(const Body &body, const std::function<std::unique_ptr<Transport>()> &make) {
  try {
    std::unique_ptr<Transport> transport = make();
    body(*transport);
    return {};
  } catch (const Error &error) {
    return {int(error.getCode()), error.what()};
  } catch (const std::exception &error) {
    return {100, error.what()};
  }
}

/// The same with operands in memory that peers can access, as in plans.
inline Body onSharedMemory(const Body &body) {
  return [body](Transport &transport) {
    std::unique_ptr<Device> device = createCpuDevice(1);
    rankDevice = device.get();
    rankMemory = &transport;
    try {
      body(transport);
    } catch (...) {
      rankDevice = nullptr;
      rankMemory = nullptr;
      throw;
    }
    rankDevice = nullptr;
    rankMemory = nullptr;
  };
}

inline std::vector<Outcome> runThreads(int n, const JobOptions &options, const Body &body) {
  auto transports = createInProcessTransports(n, options.transport, options.chunkBytes);
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back(
        [&, rank] { outcomes[rank] = runBody(body, [&] { return std::move(transports[rank]); }); });
  for (std::thread &thread : threads)
    thread.join();
  return outcomes;
}

/// Forks `n` ranks; `make` runs in the child.
inline std::vector<Outcome>
runForked(int n, const JobOptions &options, const Body &body,
          const std::function<std::unique_ptr<Transport>(int rank)> &make) {
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int rank = 0; rank < n; ++rank) {
    int ends[2];
    if (pipe(ends) != 0)
      throw std::runtime_error("no pipe");
    pid_t child = fork();
    if (child == 0) {
      alarm(120); // ends a rank that hangs, which names it
      Outcome outcome = runBody(body, [&] { return make(rank); });
      std::string text = std::to_string(outcome.code) + " " + outcome.text;
      if (write(ends[1], text.data(), text.size()) < 0)
        _exit(1);
      _exit(0);
    }
    close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  if (options.beside)
    options.beside(children);
  std::vector<Outcome> outcomes;
  for (int rank = 0; rank < n; ++rank) {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(pipes[size_t(rank)], buffer, sizeof buffer)) > 0;)
      text.append(buffer, size_t(got));
    close(pipes[size_t(rank)]);
    int status = 0;
    waitpid(children[size_t(rank)], &status, 0);
    if (WIFSIGNALED(status))
      outcomes.push_back({-1, strsignal(WTERMSIG(status))});
    else
      outcomes.push_back({int(strtol(text.c_str(), nullptr, 10)),
                          text.substr(std::min(text.size(), text.find(' ') + 1))});
  }
  return outcomes;
}

inline std::vector<Outcome> runProcesses(int n, const JobOptions &options, const Body &body) {
  std::shared_ptr<Segment> segment = Segment::create(n, options.chunkBytes);
  return runForked(n, options, body, [&](int rank) {
    return createLocalTransport(segment, rank, options.transport);
  });
}

/// Processes that share only the job's name, as under torchrun.
inline std::vector<Outcome> runStrangers(int n, const JobOptions &options, const Body &body) {
  static int jobs = 0;
  std::string job = "test-" + std::to_string(getpid()) + "-" + std::to_string(jobs++);
  return runForked(n, options, body,
                   [&](int rank) { return joinLocalTransport(job, rank, n, options.transport); });
}

/// A kind of transport under test.
struct Kind {
  std::string name;
  std::function<std::vector<Outcome>(int n, const JobOptions &options, const Body &body)> run;
  /// Kernels are interpreted: use fewer and smaller operands.
  bool isSlow = false;
  bool reducesShortIntegers = true; // i16, u16
};
inline void PrintTo(const Kind &kind, std::ostream *os) { *os << kind.name; }

inline std::vector<Outcome> runSharingThreads(int n, const JobOptions &options, const Body &body) {
  return runThreads(n, options, onSharedMemory(body));
}
inline std::vector<Outcome> runSharingProcesses(int n, const JobOptions &options,
                                                const Body &body) {
  return runProcesses(n, options, onSharedMemory(body));
}

inline const Kind threadsKind{"Threads", runThreads};
inline const Kind processesKind{"Processes", runProcesses};
inline const Kind strangersKind{"Strangers", runStrangers};
inline const Kind sharingThreadsKind{"SharingThreads", runSharingThreads};
inline const Kind sharingProcessesKind{"SharingProcesses", runSharingProcesses};

} // namespace gridloom::rt::test

#endif // GRIDLOOM_TEST_RUNTIME_TRANSPORTHARNESS_H
