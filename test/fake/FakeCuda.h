//===- FakeCuda.h - a CUDA driver without a GPU -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// libfake_cuda exports the driver's entry points over host memory; libfake_cublaslt and
// libfake_nccl run on its streams. Tests configure and inspect it through the functions below.
//
// It checks more than a GPU would: for every byte of device memory it records the last accesses and
// the events that order them (vector clocks), so that a missing event wait is found on every run,
// whatever the timing. Errors are kept as findings: races, use after free, double frees, misused
// handles. It can also run streams in an adversarial order, so that unordered work gives wrong
// results.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKECUDA_H
#define GRIDLOOM_TEST_FAKE_FAKECUDA_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#define GRIDLOOM_FAKE_EXPORT __attribute__((visibility("default")))

namespace gridloom::fake {

/// When submitted work runs.
enum class Schedule {
  Eager,       // as soon as possible
  Random,      // only while a caller waits; a random stream takes each turn
  NewestFirst, // likewise; of the streams that can run, the newest
  OldestFirst, // likewise; the oldest
};

struct Options {
  int devices = 2;
  size_t memoryBytes = size_t(64) << 30; // per device
  int architecture = 90;
  int driverVersion = 13000;
  Schedule schedule = Schedule::Eager;
  uint64_t seed = 1;
  /// All ordinals are one GPU: they have the same UUID.
  bool oneGpu = false;
  /// Device `device` fails with `error` instead of running its kernel number `kernels` (from 0).
  struct Fault {
    int device = -1;
    int kernels = 0;
    int error = 719;
  } fault = {};
  /// A wait that makes no progress for this long ends as an error and a finding.
  int hangMilliseconds = 20000;
};

/// One call of an entry point.
struct Call {
  int device = -1;
  int stream = -1; // numbered by creation, from 0
  std::string name;
  std::string detail;
};

/// The parameters of a launch.
struct Launch {
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t sharedBytes = 0;
  std::vector<void *> pointers;
};

/// A range of device memory that an operation reads or writes.
struct Access {
  const void *data = nullptr;
  size_t bytes = 0;
  bool write = false;
};

/// The host function in place of a kernel.
struct KernelFunction {
  size_t numPointers = 0;
  std::function<std::vector<Access>(const Launch &)> accesses;
  std::function<void(const Launch &)> run;
};

/// Forgets everything and starts over. Objects that are still alive are dropped without a finding.
GRIDLOOM_FAKE_EXPORT void reset(const Options &options = {});

/// Kernel `symbol` of any module runs `function`.
GRIDLOOM_FAKE_EXPORT void registerKernel(const std::string &symbol, KernelFunction function);

/// A stand-in for a cubin of `architecture` with kernels `symbols`: an ELF header and their names.
GRIDLOOM_FAKE_EXPORT std::vector<std::byte> makeCubin(int architecture,
                                                      const std::vector<std::string> &symbols);

/// After `skip` more calls of `name` (a symbol: "cuMemAlloc_v2"), one call returns `result`.
GRIDLOOM_FAKE_EXPORT void failCall(const std::string &name, int result, int skip = 0);

/// All calls so far whose names begin with `prefix`.
GRIDLOOM_FAKE_EXPORT std::vector<Call> getCalls(const std::string &prefix = "");

/// Findings since the last call of this function, one line each.
GRIDLOOM_FAKE_EXPORT std::vector<std::string> takeFindings();

/// Objects that are alive now: "memory of 64 bytes on device 0", "event".
GRIDLOOM_FAKE_EXPORT std::vector<std::string> findLeaks();

/// The priority of stream number `stream`.
GRIDLOOM_FAKE_EXPORT int getStreamPriority(int stream);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKECUDA_H
