//===- Device.h - common parts of devices -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A device has memory, streams, events, kernels and libraries. A stream is an in-order queue:
// submissions return at once and run in order; streams run concurrently and synchronise only
// through events. Implemented by device/cpu, device/cuda, and the tests' fake device, which records
// calls.
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
  /// Runs `work` on the host in stream order, such as a blocking collective on the CPU. Not used by
  /// devices whose communication is enqueued natively (NCCL).
  virtual void enqueueHost(std::function<void()> work) = 0;
  /// Blocks until all submitted work is done; throws the first error any of it raised.
  virtual void synchronize() = 0;
  /// Writes the monotonic clock, in nanoseconds, when the stream reaches this point; valid after
  /// synchronize.
  virtual void recordTime(int64_t *nanoseconds);
  /// Marks a point of the stream, for devices whose failures leave no other trace: returns the
  /// number that readMark returns once the stream has passed it, or 0.
  virtual uint32_t mark() { return 0; }
  /// The last mark that the stream passed, even after a failure; nothing if there are no marks.
  virtual std::optional<uint32_t> readMark() const { return std::nullopt; }
  /// The native handle (cudaStream_t), or null.
  virtual void *getNative() { return nullptr; }
};

/// Work of several streams, captured once and submitted repeatedly as a whole.
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

/// The epilogue of a library call: adds a bias, with one element per column or output channel, and
/// a residual with the result's memory layout, then applies the activation.
struct Epilogue {
  bool bias = false, residual = false;
  Activation activation = Activation::None;
};

/// alpha * lhs * rhs, with strides in elements: batch..., M, K | batch..., K, N | batch..., M, N.
/// Then the epilogue. f16 and bf16 are summed in f32; their result, residual and bias may be f32.
/// With `tf32`, f32 operands may be rounded to 10 bits of mantissa. Relu of NaN is NaN.
struct MatmulProblem {
  DataType type = DataType::F32;
  std::span<const int64_t> sizes; // batch..., M, N, K
  std::span<const int64_t> lhs, rhs, out;
  double alpha = 1;
  Epilogue epilogue = {};
  uint64_t workspaceLimit = 0;
  bool tf32 = false;
  std::optional<DataType> outType = {}; // of the result, residual and bias; none: `type`
  /// The values at the rhs's address do not change, and are read several times in a run: the device
  /// may keep a copy in a layout of its own.
  bool mayPack = false;

  DataType getOutType() const { return outType.value_or(type); }
};

/// The operands of a matrix multiplication: bias and residual are null unless the epilogue has
/// them.
struct MatmulOperands {
  const void *lhs = nullptr, *rhs = nullptr, *bias = nullptr, *residual = nullptr;
};

/// A matrix multiplication resolved at load: the algorithm is chosen, the workspace known.
class MatmulPlan {
public:
  virtual ~MatmulPlan() = default;
  /// The values at a packed weight's address may have changed.
  virtual void forgetWeights() {}
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
  bool constantWeight = false; // values at the weight's address do not change
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
  /// The values at a constant weight's address may have changed.
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
  /// Nothing if the device has no memory of its own.
  virtual std::optional<DeviceMemory> getMemory() const { return std::nullopt; }
  /// Throws if kernels compiled for `arch` ("sm_90") cannot run here, or if they need CUDA
  /// `version` (12040 is 12.4; 0: unknown) and the driver is older. Returns a remark for people or
  /// "": that the driver compiles them again.
  virtual std::string checkTarget(const std::string &arch, int version) const { return ""; }
  /// Whether the host may read and write this device's memory through its pointers.
  virtual bool hasHostMemory() const { return false; }
  /// `handler` is called once, from any thread, when submitted work fails: before synchronize
  /// reports it, so that a session can abort peers' waits. Devices that cannot detect failures
  /// early never call it.
  virtual void setErrorHandler(const std::function<void(const std::string &reason)> &handler) {}

  /// Memory aligned to 64 (CPU) or 256 (CUDA) bytes; throws OutOfMemory with wanted and free bytes.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> createStream(StreamKind kind, const std::string &name) = 0;
  virtual std::unique_ptr<Event> createEvent() = 0;

  /// The files of kernels/ that hold the functions of `library` for this device, the best first. A
  /// plan may lack all but the last; if one does not load, the next is tried.
  virtual std::vector<std::string> listLibraries(const std::string &library) const {
    return {library};
  }
  /// Loads the code of kernels/<library> (CPU: a shared object; CUDA: a cubin or PTX), once per
  /// library, and finds `symbol`.
  virtual std::unique_ptr<Kernel> loadKernel(const std::string &library,
                                             std::span<const std::byte> code,
                                             const std::string &symbol) = 0;
  /// The device model and driver, as a name for files of measured choices; empty if there is
  /// nothing to tune.
  virtual std::string getTuningName() const { return ""; }
  /// The libraries used so far, each as name and version: "cuBLASLt 130100".
  virtual std::string getLibraryVersions() const { return ""; }
  /// Makes later library plans use measured choices, and measure missing ones if `cache` says so;
  /// null: use the libraries' guesses.
  virtual void setTuning(const std::shared_ptr<AutotuneCache> &cache) {}
  virtual std::unique_ptr<MatmulPlan> createMatmul(const MatmulProblem &problem) = 0;
  /// Throw Unavailable on devices without such a library, whose plans have no such calls.
  virtual std::unique_ptr<LibraryPlan> createConvolution(const ConvolutionProblem &problem);
  virtual std::unique_ptr<LibraryPlan> createAttention(const AttentionProblem &problem);

  /// Submits a kernel: pointers to inputs, then outputs.
  virtual void launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
                      std::span<void *const> pointers) = 0;
  virtual void matmul(Stream &stream, MatmulPlan &plan, const MatmulOperands &operands,
                      void *out) = 0;
  /// Submits a convolution (input, weight, bias and residual if it has them) or an attention
  /// (query, key, value, mask if it has one).
  virtual void call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
                    void *out);
  /// Copies within the device; copyIn and copyOut are host to device and back.
  virtual void copy(Stream &stream, void *to, const void *from, size_t bytes) = 0;
  virtual void copyIn(Stream &stream, void *to, const void *from, size_t bytes) = 0;
  virtual void copyOut(Stream &stream, void *to, const void *from, size_t bytes) = 0;

  /// Fills device memory with zeros.
  virtual void zero(Stream &stream, void *to, size_t bytes);

  /// Why work on this device cannot be captured; empty if it can.
  virtual std::string whyNotCapturable() const { return getName() + " has no graphs"; }
  /// Until endCapture or cancelCapture, work that this thread submits to `streams` is captured
  /// instead of run. It may wait only for events recorded during the capture, and the host may not
  /// wait.
  virtual void beginCapture(std::span<Stream *const> streams);
  /// The captured work, to be replayed on the first of the streams. Throws if the device refuses
  /// any of it; the capture has ended in either case.
  virtual std::unique_ptr<WorkGraph> endCapture();
  /// Discards the capture. Never throws.
  virtual void cancelCapture() noexcept {}
  /// Submits `graph` to `stream`, in order with the stream's other work. Replays of one graph do
  /// not overlap.
  virtual void replay(Stream &stream, WorkGraph &graph);
};

/// The monotonic clock in nanoseconds: what recordTime writes.
int64_t getMonotonicTime();

/// The CPU with `threads` intra-op threads; 0: the number of cores divided by the local ranks
/// (LOCAL_WORLD_SIZE).
std::unique_ptr<Device> createCpuDevice(unsigned threads);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_DEVICE_H
