//===- Device.h - the interface every device implements ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A device has memory, streams, events, kernels and a library for matrix multiplication. A stream
// is an in-order queue: submissions return at once and run in order; streams run beside each other
// and meet only through events. device/cpu and device/cuda implement this, and so does the fake
// device that tests check call sequences with.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_DEVICE_H
#define GRIDLOOM_RUNTIME_DEVICE_DEVICE_H

#include "runtime/core/DataType.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace gridloom::rt {

/// Device memory. The pointer is the device's; only CPU memory may be read through it.
struct Memory {
  virtual ~Memory() = default;
  void *data = nullptr;
  size_t bytes = 0;
};

enum class StreamKind { Compute, Communication, Copy };

class Event {
public:
  virtual ~Event() = default;
};

/// An in-order queue of work.
class Stream {
public:
  virtual ~Stream() = default;
  virtual void record(Event &event) = 0;
  virtual void wait(Event &event) = 0;
  /// Runs `work` in the stream's order on the host: a blocking collective on the CPU. Devices whose
  /// communication is enqueued natively (NCCL) never need it.
  virtual void enqueueHost(std::function<void()> work) = 0;
  /// Blocks until all submitted work is done; throws the first error any of it raised.
  virtual void synchronize() = 0;
  /// Writes the monotonic clock, in nanoseconds, when the stream gets here; valid after
  /// synchronize.
  virtual void recordTime(int64_t *nanoseconds);
  /// The native handle (cudaStream_t), or null.
  virtual void *getNative() { return nullptr; }
};

/// A loaded kernel.
class Kernel {
public:
  virtual ~Kernel() = default;
};

/// How a kernel is launched; CPU uses rows and grain, CUDA the rest.
struct LaunchShape {
  int64_t rows = 1;
  int64_t grain = 1;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t sharedBytes = 0;
};

/// alpha * lhs * rhs, with strides in elements: batch..., M, K | batch..., K, N | batch..., M, N.
struct MatmulProblem {
  DataType type = DataType::F32;
  std::span<const int64_t> sizes; // batch..., M, N, K
  std::span<const int64_t> lhs, rhs, out;
  double alpha = 1;
  bool bias = false;
  uint64_t workspaceLimit = 0;
};

/// A matrix multiplication resolved at load: the algorithm is chosen, the workspace known.
class MatmulPlan {
public:
  virtual ~MatmulPlan() = default;
};

class Device {
public:
  virtual ~Device() = default;
  virtual std::string getName() const = 0;
  /// Whether the host may read and write this device's memory through its pointers.
  virtual bool hasHostMemory() const { return false; }
  /// `handler` is called once, from any thread, when submitted work fails: before synchronize says
  /// so, a session can stop what waits for peers. Devices that cannot tell early never call it.
  virtual void setErrorHandler(const std::function<void(const std::string &reason)> &handler) {}

  /// 64-byte (CPU) or 256-byte (CUDA) aligned memory; throws OutOfMemory naming both numbers.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> createStream(StreamKind kind, const std::string &name) = 0;
  virtual std::unique_ptr<Event> createEvent() = 0;

  /// Loads the code of kernels/<library> (CPU: a shared object; CUDA: a cubin or PTX) and finds
  /// `symbol`. Code of one library is loaded once.
  virtual std::unique_ptr<Kernel> loadKernel(const std::string &library,
                                             std::span<const std::byte> code,
                                             const std::string &symbol) = 0;
  virtual std::unique_ptr<MatmulPlan> createMatmul(const MatmulProblem &problem) = 0;

  /// Submits a kernel: pointers to inputs, then outputs.
  virtual void launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
                      std::span<void *const> pointers) = 0;
  virtual void matmul(Stream &stream, MatmulPlan &plan, const void *lhs, const void *rhs,
                      const void *bias, void *out) = 0;
  /// Copies within the device; copyIn and copyOut are host to device and back.
  virtual void copy(Stream &stream, void *to, const void *from, size_t bytes) = 0;
  virtual void copyIn(Stream &stream, void *to, const void *from, size_t bytes) = 0;
  virtual void copyOut(Stream &stream, void *to, const void *from, size_t bytes) = 0;
};

/// The monotonic clock in nanoseconds: what recordTime writes.
int64_t getMonotonicTime();

/// The CPU with `threads` intra-op threads (0: as many as cores divided by local ranks, which
/// LOCAL_WORLD_SIZE tells).
std::unique_ptr<Device> createCpuDevice(unsigned threads);

/// GPU `ordinal`; throws Unavailable with one line when there is no driver or no such GPU.
std::unique_ptr<Device> createCudaDevice(int ordinal);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_DEVICE_H
