//===- Device.h - common parts of devices -----------------------*- C++ -*-===//
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
#include <optional>
#include <span>
#include <string>

namespace gridloom::rt {

class AutotuneCache;

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
  /// Has the device note how far the stream is, for devices whose failures leave no other trace;
  /// returns the number that readMark gives from when the stream gets here, or 0.
  virtual uint32_t mark() { return 0; }
  /// The last mark that the stream got to, also after a failure; nothing where there are no marks.
  virtual std::optional<uint32_t> readMark() const { return std::nullopt; }
  /// The native handle (cudaStream_t), or null.
  virtual void *getNative() { return nullptr; }
};

/// Work of several streams, captured once and submitted as a whole again and again.
class WorkGraph {
public:
  virtual ~WorkGraph() = default;
};

/// A loaded kernel.
class Kernel {
public:
  virtual ~Kernel() = default;
};

/// The launch parameters of a kernel; CPU uses rows and grain, CUDA the rest.
struct LaunchShape {
  int64_t rows = 1;
  int64_t grain = 1;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t sharedBytes = 0;
};

/// Gelu is the tanh form; relu of NaN is NaN.
enum class Activation { None, Relu, Gelu };

/// The epilogue of a library call: a bias, of one element per column or output channel, and a
/// residual, with the result's memory layout, are added, and the activation is last.
struct Epilogue {
  bool bias = false, residual = false;
  Activation activation = Activation::None;
};

/// alpha * lhs * rhs, with strides in elements: batch..., M, K | batch..., K, N | batch..., M, N.
/// Then a residual that lies as the result does, a bias per column, and an activation. f16 and bf16
/// are summed in f32; their result, residual and bias may be f32. With `tf32`, f32 operands may be
/// rounded to 10 bits of mantissa. Relu of NaN is NaN.
struct MatmulProblem {
  DataType type = DataType::F32;
  std::span<const int64_t> sizes; // batch..., M, N, K
  std::span<const int64_t> lhs, rhs, out;
  double alpha = 1;
  Epilogue epilogue = {};
  uint64_t workspaceLimit = 0;
  bool tf32 = false;
  std::optional<DataType> outType = {}; // of the result, residual and bias; none: `type`

  DataType getOutType() const { return outType.value_or(type); }
};

/// The operands of a matrix multiplication: bias and residual are null unless its epilogue has
/// them.
struct MatmulOperands {
  const void *lhs = nullptr, *rhs = nullptr, *bias = nullptr, *residual = nullptr;
};

/// A matrix multiplication resolved at load: the algorithm is chosen, the workspace known.
class MatmulPlan {
public:
  virtual ~MatmulPlan() = default;
};

/// A convolution, with strides in elements: N, C, spatial... | O, C / groups, window... | N, O,
/// positions...; then the epilogue, whose activation is none or relu.
struct ConvolutionProblem {
  DataType type = DataType::F32;
  std::span<const int64_t> input, inputStrides, weight, weightStrides, output, outputStrides;
  std::span<const int64_t> strides, low, high, dilations; // by spatial dimension
  int64_t groups = 1;
  Epilogue epilogue = {};
  bool tf32 = false;           // f32 factors may be rounded to TF32
  bool constantWeight = false; // the weight's address tells its values
  uint64_t workspaceLimit = 0;
};

/// softmax(scale * query * key^T + mask) * value over batch, heads; strides in elements.
struct AttentionProblem {
  DataType type = DataType::F16;
  DataType maskType = DataType::F16;
  std::span<const int64_t> sizes;      // batch, heads, queries, keys, depth, value depth
  std::span<const int64_t> query, key; // batch, heads, queries or keys, depth
  std::span<const int64_t> value, out; // batch, heads, keys or queries, value depth
  std::span<const int64_t> mask;       // batch, heads, queries, keys; empty: no mask
  double scale = 1;
  bool causal = false; // a query sees the keys up to its own index
  uint64_t workspaceLimit = 0;
};

/// A convolution or attention resolved at load.
class LibraryPlan {
public:
  virtual ~LibraryPlan() = default;
  /// The values at a constant weight's address may be others from now on.
  virtual void forgetWeights() {}
};

struct DeviceMemory {
  uint64_t free = 0, total = 0; // bytes
};

class Device {
public:
  virtual ~Device() = default;
  virtual std::string getName() const = 0;
  /// The kind of device, as DeviceKind::getName.
  virtual std::string getKind() const = 0;
  /// Nothing where the device has no memory of its own.
  virtual std::optional<DeviceMemory> getMemory() const { return std::nullopt; }
  /// Throws when kernels compiled for `arch` ("sm_90") cannot run here, or need CUDA `version`
  /// (12040 is 12.4; 0: not known) and the driver is older. Returns a remark for people, "" when
  /// there is nothing to say: that the driver compiles them anew.
  virtual std::string checkTarget(const std::string &arch, int version) const { return ""; }
  /// Whether the host may read and write this device's memory through its pointers.
  virtual bool hasHostMemory() const { return false; }
  /// `handler` is called once, from any thread, when submitted work fails: before synchronize says
  /// so, a session can stop what waits for peers. Devices that cannot tell early never call it.
  virtual void setErrorHandler(const std::function<void(const std::string &reason)> &handler) {}

  /// 64-byte (CPU) or 256-byte (CUDA) aligned memory; throws OutOfMemory naming both numbers.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> createStream(StreamKind kind, const std::string &name) = 0;
  virtual std::unique_ptr<Event> createEvent() = 0;

  /// The files of kernels/ that hold the functions of `library` for this device, the best first. A
  /// plan may lack all but the last; where one does not load, the next is tried.
  virtual std::vector<std::string> listLibraries(const std::string &library) const {
    return {library};
  }
  /// Loads the code of kernels/<library> (CPU: a shared object; CUDA: a cubin or PTX) and finds
  /// `symbol`. Code of one library is loaded once.
  virtual std::unique_ptr<Kernel> loadKernel(const std::string &library,
                                             std::span<const std::byte> code,
                                             const std::string &symbol) = 0;
  /// Names this kind of device with its driver, for files of measured choices; empty where there is
  /// nothing to choose.
  virtual std::string getTuningName() const { return ""; }
  /// The libraries that plans made so far use, each a name and a version: "cuBLASLt 130100".
  virtual std::string getLibraryVersions() const { return ""; }
  /// Has libraries' plans made from now on use measured choices, and measure what is missing if
  /// `cache` says so; null: libraries guess.
  virtual void setTuning(const std::shared_ptr<AutotuneCache> &cache) {}
  virtual std::unique_ptr<MatmulPlan> createMatmul(const MatmulProblem &problem) = 0;
  /// Devices without such a library throw Unavailable: plans for them have none of these calls.
  virtual std::unique_ptr<LibraryPlan> createConvolution(const ConvolutionProblem &problem);
  virtual std::unique_ptr<LibraryPlan> createAttention(const AttentionProblem &problem);

  /// Submits a kernel: pointers to inputs, then outputs.
  virtual void launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
                      std::span<void *const> pointers) = 0;
  virtual void matmul(Stream &stream, MatmulPlan &plan, const MatmulOperands &operands,
                      void *out) = 0;
  /// Submits a convolution (input, weight, bias and residual where present) or an attention (query,
  /// key, value, mask where present).
  virtual void call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
                    void *out);
  /// Copies within the device; copyIn and copyOut are host to device and back.
  virtual void copy(Stream &stream, void *to, const void *from, size_t bytes) = 0;
  virtual void copyIn(Stream &stream, void *to, const void *from, size_t bytes) = 0;
  virtual void copyOut(Stream &stream, void *to, const void *from, size_t bytes) = 0;

  /// Makes device memory zero.
  virtual void zero(Stream &stream, void *to, size_t bytes);

  /// Why work on this device cannot be captured; empty when it can.
  virtual std::string whyNotCapturable() const { return getName() + " has no graphs"; }
  /// Until endCapture or cancelCapture, what this thread submits to `streams` is captured instead
  /// of run. It may wait only for events recorded since, and nothing may be waited for on the host.
  virtual void beginCapture(std::span<Stream *const> streams);
  /// The captured work, ready to be submitted to the first of the streams. Throws when the device
  /// refuses any of it; nothing is being captured then.
  virtual std::unique_ptr<WorkGraph> endCapture();
  /// Drops what was captured. Never throws.
  virtual void cancelCapture() noexcept {}
  /// Submits all of `graph` in the order of `stream`: it runs after what the stream holds, and
  /// before what it is given next. One replay of a graph follows the other.
  virtual void replay(Stream &stream, WorkGraph &graph);
};

/// The monotonic clock in nanoseconds: what recordTime writes.
int64_t getMonotonicTime();

/// The CPU with `threads` intra-op threads (0: as many as cores divided by local ranks, which
/// LOCAL_WORLD_SIZE tells).
std::unique_ptr<Device> createCpuDevice(unsigned threads);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_DEVICE_H
