//===- GpuHarness.h - tests on fake GPUs ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_GPUHARNESS_H
#define GRIDLOOM_TEST_FAKE_GPUHARNESS_H

#include "runtime/comm/nccl/NcclTransport.h"
#include "runtime/core/Error.h"
#include "test/fake/FakeCuda.h"
#include "test/fake/FakeNccl.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace gridloom::rt::test {

/// Makes the runtime use the fakes. A test must end without findings and live objects; one that
/// plants a fault takes its findings itself.
class FakeGpus : public testing::Test {
protected:
  void SetUp() override {
    setenv("GRIDLOOM_CUDA_DRIVER", GRIDLOOM_FAKE_CUDA, 1);
    setenv("GRIDLOOM_CUBLASLT", GRIDLOOM_FAKE_CUBLASLT, 1);
    setenv("GRIDLOOM_CUDNN", GRIDLOOM_FAKE_CUDNN, 1);
    setenv("GRIDLOOM_NCCL", GRIDLOOM_FAKE_NCCL, 1);
    fake::reset();
    fake::resetNccl();
  }
  void TearDown() override {
    EXPECT_THAT(fake::takeFindings(), testing::IsEmpty());
    EXPECT_THAT(fake::findLeaks(), testing::IsEmpty());
  }
};

/// The message of the Error with `code` that `body` throws. The test fails if it throws nothing,
/// another error, or more than one line.
template <typename Body> std::string catchError(ErrorCode code, Body body) {
  try {
    body();
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

/// Runs `body(rank)` on a thread for each rank; returns the ranks' errors ("" for none).
inline std::vector<std::string> runRanks(int size, const std::function<void(int)> &body) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception &error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return errors;
}

/// Connects ranks of one process for NCCL: broadcasts between threads, and reports a failure to
/// all.
class ThreadExchange {
public:
  void operator()(std::span<std::byte> bytes, std::span<const int> ranks, const std::string &name,
                  int rank) {
    std::unique_lock lock(mutex);
    std::string key = name;
    for (int member : ranks)
      key += " " + std::to_string(member);
    uint64_t turn = turns[{key, rank}]++;
    key += " #" + std::to_string(turn);
    if (rank == ranks.front()) {
      values[key].assign(bytes.begin(), bytes.end());
      changed.notify_all();
      return;
    }
    changed.wait(lock, [&] { return values.count(key) > 0; });
    std::copy(values[key].begin(), values[key].end(), bytes.begin());
  }

  NcclOptions makeOptions(int rank, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
    NcclOptions options;
    options.transport.deadline = deadline;
    options.exchange = [this, rank](std::span<std::byte> bytes, std::span<const int> ranks,
                                    const std::string &name) { (*this)(bytes, ranks, name, rank); };
    options.abortPeers = [this, rank](const std::string &reason) {
      std::lock_guard lock(mutex);
      if (failure.empty())
        failure = "rank " + std::to_string(rank) + " failed: " + reason;
    };
    options.checkPeers = [this] {
      std::lock_guard lock(mutex);
      if (!failure.empty())
        throw Error(ErrorCode::PeerFailed, failure);
    };
    return options;
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<std::string, int>, uint64_t> turns;
  std::map<std::string, std::vector<std::byte>> values;
  std::string failure;
};

/// A ProgressBoard shared by threads.
class ThreadBoard final : public ProgressBoard {
public:
  void publish(int rank, const std::string &communicator, uint64_t count) override {
    std::lock_guard lock(mutex);
    counts[{communicator, rank}] = count;
  }
  std::optional<uint64_t> read(int rank, const std::string &communicator) override {
    std::lock_guard lock(mutex);
    return counts[{communicator, rank}];
  }

private:
  std::mutex mutex;
  std::map<std::pair<std::string, int>, uint64_t> counts;
};

/// Waits for a stream whose work may have failed, as sessions do before they free memory.
inline void drain(Stream &stream) {
  try {
    stream.synchronize();
  } catch (const Error &) { // NOLINT(bugprone-empty-catch): the cause was thrown before
  }
}

/// Copies `values` to new memory of `device` and waits.
template <typename T>
std::unique_ptr<Memory> upload(Device &device, Stream &stream, const std::vector<T> &values) {
  auto memory = device.allocate(values.size() * sizeof(T));
  device.copyIn(stream, memory->data, values.data(), memory->bytes);
  stream.synchronize();
  return memory;
}

/// `count` elements at `data`, after the work on `stream`.
template <typename T>
std::vector<T> download(Device &device, Stream &stream, const void *data, size_t count) {
  std::vector<T> values(count);
  device.copyOut(stream, values.data(), data, count * sizeof(T));
  stream.synchronize();
  return values;
}

} // namespace gridloom::rt::test

#endif // GRIDLOOM_TEST_FAKE_GPUHARNESS_H
