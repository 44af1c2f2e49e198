//===- CudaStream.h - streams and events of a GPU ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDASTREAM_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDASTREAM_H

#include "runtime/device/Device.h"
#include "runtime/device/cuda/CudaDriver.h"

#include <atomic>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <vector>

namespace gridloom::rt {

/// One GPU's primary context, retained while objects created on it live.
class CudaContext {
public:
  /// Throws Unavailable if the driver has no GPU `ordinal`.
  CudaContext(std::shared_ptr<const cuda::Driver> driver, int ordinal);
  CudaContext(const CudaContext &) = delete;
  CudaContext &operator=(const CudaContext &) = delete;

  /// Makes this context current on the calling thread and returns the driver.
  const cuda::Driver &use() const;
  /// As use, for destructors: ignores failure.
  const cuda::Driver &useQuietly() const noexcept {
    driver->ctxSetCurrent(context);
    return *driver;
  }
  /// "cuda:0 NVIDIA H200 (sm_90)"
  const std::string &getName() const { return name; }
  /// "NVIDIA H200"
  const std::string &getModel() const { return model; }
  int getOrdinal() const { return ordinal; }
  /// The UUID of this GPU or MIG instance; "" if the driver does not report it.
  const std::string &getUuid() const { return uuid; }
  /// 10 * major + minor of the compute capability.
  int getArchitecture() const { return architecture; }

private:
  std::shared_ptr<const cuda::Driver> driver;
  cuda::Context context = nullptr;
  cuda::DeviceNumber device = 0;
  int ordinal;
  int architecture = 0;
  std::string name, model, uuid;
};

class CudaCapture;

class CudaEvent final : public Event {
public:
  /// With `timed`, the GPU stores the time of a record, which costs a little.
  explicit CudaEvent(std::shared_ptr<const CudaContext> context, bool timed = false);
  ~CudaEvent() override;

  /// Whether the work before the last record outside of captures is done; true if there was none.
  bool isDone() const;
  cuda::EventHandle getHandle() const { return handle; }
  /// The handle to record on a stream that is in `capture`, or in none (null).
  cuda::EventHandle selectForRecord(const CudaCapture *capture);
  /// The handle to wait for on such a stream. The driver refuses to wait outside of a capture for
  /// an event last recorded in one, which happens after a failed capture: such a wait uses the last
  /// record outside of captures.
  cuda::EventHandle selectForWait(const CudaCapture *capture) const;

private:
  std::shared_ptr<const CudaContext> context;
  cuda::EventHandle handle = nullptr, captureHandle = nullptr;
  bool wasCaptured = false;         // the last record
  std::weak_ptr<const int> capture; // the capture of that record, until it ends
};

/// Pinned host memory for copies, reused in the order of its stream.
class StagingRing {
public:
  explicit StagingRing(std::shared_ptr<const CudaContext> context);
  ~StagingRing();

  /// Returns `bytes` (at most getLargest) of pinned memory that no submitted copy uses; blocks
  /// until some is free.
  std::byte *acquire(size_t bytes);
  /// Frees the last acquired memory once `stream` reaches this point.
  void release(cuda::StreamHandle stream);
  static constexpr size_t getLargest() { return capacity / 2; }

private:
  static constexpr size_t capacity = size_t(8) << 20;
  struct Segment {
    size_t begin, end;
    std::unique_ptr<CudaEvent> event;
  };

  std::shared_ptr<const CudaContext> context;
  std::byte *base = nullptr;
  size_t head = 0;
  Segment current{0, 0, nullptr};
  std::deque<Segment> inFlight;
  std::vector<std::unique_ptr<CudaEvent>> idleEvents;
};

/// Watches another library's work on a stream (NCCL), while a thread waits for the stream and after
/// it.
class StreamMonitor {
public:
  virtual ~StreamMonitor() = default;
  /// Throws if that work has failed.
  virtual void poll() = 0;
};

/// A CUDA stream; communication streams have the highest priority. One thread at a time may submit.
class CudaStream final : public Stream {
public:
  CudaStream(std::shared_ptr<const CudaContext> context, StreamKind kind, std::string name);
  /// Waits for submitted work, which uses memory of this object.
  ~CudaStream() override;

  void record(Event &event) override;
  void wait(Event &event) override;
  /// `work` must not call CUDA: it runs on one of the driver's threads.
  void enqueueHost(std::function<void()> work) override;
  void synchronize() override;
  /// The GPU takes the time, so that neither the stream nor the host waits.
  void recordTime(int64_t *nanoseconds) override;
  uint32_t mark() override;
  std::optional<uint32_t> readMark() const override;
  void *getNative() override { return handle; }

  /// Copies between host and device through pinned memory. copyIn has read `from` when it returns;
  /// copyOut has written `to` once the stream is synchronised.
  void copyIn(void *to, const void *from, size_t bytes);
  void copyOut(void *to, const void *from, size_t bytes);
  /// At least `bytes` of device memory that is shared by calls on this stream, which run one after
  /// another. It lives as long as the stream, since graphs contain its address.
  void *getWorkspace(size_t bytes);
  /// Makes synchronize poll `monitor`. Adding one again has no effect.
  void addMonitor(const std::shared_ptr<StreamMonitor> &monitor);

  /// The capture that this stream is in, or null.
  CudaCapture *getCapture() const { return capture; }
  void setCapture(CudaCapture *taker) { capture = taker; }

  const CudaContext &getContext() const { return *context; }
  const std::string &getName() const { return name; }

private:
  struct HostWork {
    CudaStream *stream;
    std::function<void()> run; // empty once abandoned
    std::mutex mutex = {};     // guards `run`
    std::atomic<bool> done = false;
  };
  static void runHostWork(void *data);
  void waitForHandle();
  std::exception_ptr pollMonitors();
  void writeTimes();
  void dropFinishedHostWork();
  void abandonHostWork();
  StagingRing &getStaging();

  std::shared_ptr<const CudaContext> context;
  std::string name;
  cuda::StreamHandle handle = nullptr;
  std::unique_ptr<StagingRing> staging;
  std::vector<cuda::DevicePointer> workspaces; // the last is the largest
  size_t workspaceBytes = 0;
  CudaCapture *capture = nullptr;
  uint32_t *reached = nullptr; // pinned: the GPU writes it
  uint32_t marks = 0;
  bool cannotMark = false; // the device does not support it: errors do not say where it was
  std::vector<std::weak_ptr<StreamMonitor>> monitors;
  std::list<HostWork> hostWork;
  struct Time {
    std::unique_ptr<CudaEvent> event;
    int64_t *nanoseconds;
  };
  std::vector<Time> times;
  std::vector<std::unique_ptr<CudaEvent>> idleTimers;
  std::mutex errorMutex;
  std::exception_ptr firstError;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDASTREAM_H
