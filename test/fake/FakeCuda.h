//===- FakeCuda.h - a CUDA driver without a GPU -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// libfake_cuda exports the driver's entry points over host memory; libfake_cublaslt and
// libfake_nccl run on its streams. Tests set it up and question it through the functions below.
//
// It proves more than a GPU would show: for every byte of device memory it keeps who touched it
// last and which events order that (vector clocks), so that a missing event wait is found on every
// run, whatever the timing. What it finds wrong it keeps as a finding: races, use after free,
// double frees, misused handles. It also runs streams in an adversarial order, so that what is not
// ordered gives wrong numbers too.
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
  Eager,       // as soon as it can
  Random,      // only when a caller waits; the streams' turns are drawn from the seed
  NewestFirst, // likewise; of the streams that can run, the one made last
  OldestFirst, // likewise; the one made first
};

struct Options {
  int devices = 2;
  size_t memoryBytes = size_t(64) << 30; // of each device
  int architecture = 90;
  int driverVersion = 13000;
  Schedule schedule = Schedule::Eager;
  uint64_t seed = 1;
  /// All ordinals are one GPU, by their UUIDs.
  bool oneGpu = false;
  /// Device `device` breaks with `error` instead of running its kernel number `kernels` (from 0).
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
  int stream = -1; // in the order of creation, from 0
  std::string name;
  std::string detail;
};

/// What a launch got.
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

/// The host function that stands for a kernel.
struct KernelFunction {
  size_t numPointers = 0;
  std::function<std::vector<Access>(const Launch &)> accesses;
  std::function<void(const Launch &)> run;
};

/// Forgets everything and starts over. What is still alive is dropped without a finding.
GRIDLOOM_FAKE_EXPORT void reset(const Options &options = {});

/// Kernel `symbol` of any module runs `function`.
GRIDLOOM_FAKE_EXPORT void registerKernel(const std::string &symbol, KernelFunction function);

/// A stand-in for a cubin of `architecture` with kernels `symbols`: an ELF header and their names.
GRIDLOOM_FAKE_EXPORT std::vector<std::byte> makeCubin(int architecture,
                                                      const std::vector<std::string> &symbols);

/// Has the call `name` (a symbol: "cuMemAlloc_v2") after `skip` more return `result`, once.
GRIDLOOM_FAKE_EXPORT void failCall(const std::string &name, int result, int skip = 0);

/// All calls so far whose names begin with `prefix`.
GRIDLOOM_FAKE_EXPORT std::vector<Call> getCalls(const std::string &prefix = "");

/// What was found wrong since the last call of this, one line each.
GRIDLOOM_FAKE_EXPORT std::vector<std::string> takeFindings();

/// What is alive now: "memory of 64 bytes on device 0", "event".
GRIDLOOM_FAKE_EXPORT std::vector<std::string> findLeaks();

/// The priority of stream number `stream`.
GRIDLOOM_FAKE_EXPORT int getStreamPriority(int stream);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKECUDA_H
