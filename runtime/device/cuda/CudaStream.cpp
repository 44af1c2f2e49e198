//===- CudaStream.cpp - streams and events of a GPU -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CudaStream.h"

#include "runtime/core/Error.h"
#include "runtime/device/cuda/CudaGraph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace gridloom::rt {

using cuda::DevicePointer;

static DevicePointer toDevice(const void *pointer) {
  return static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(pointer));
}

//===----------------------------------------------------------------------===//
// CudaContext and CudaEvent
//===----------------------------------------------------------------------===//

CudaContext::CudaContext(std::shared_ptr<const cuda::Driver> opened, int ordinal)
    : driver(std::move(opened)), ordinal(ordinal) {
  int count = 0;
  driver->check(driver->deviceGetCount(&count), "cuDeviceGetCount", "counting the GPUs");
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorCode::Unavailable, "no GPU " + std::to_string(ordinal) +
                                            ": this machine has " + std::to_string(count) +
                                            "; check CUDA_VISIBLE_DEVICES and the number of ranks, "
                                            "or put all ranks on one with --transport loopback");
  driver->check(driver->deviceGet(&device, ordinal), "cuDeviceGet", "opening the GPU");

  char text[128] = {};
  driver->check(driver->deviceGetName(text, sizeof(text) - 1, device), "cuDeviceGetName",
                "reading the GPU's name");
  int major = 0;
  int minor = 0;
  auto readAttribute = [&](int &value, int attribute) {
    driver->check(driver->deviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute",
                  "reading the GPU's compute capability");
  };
  readAttribute(major, cuda::DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  readAttribute(minor, cuda::DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  architecture = 10 * major + minor;
  model = text;
  name =
      "cuda:" + std::to_string(ordinal) + " " + text + " (sm_" + std::to_string(architecture) + ")";
  std::array<unsigned char, 16> bytes = {};
  if (driver->deviceGetUuid && driver->deviceGetUuid(bytes.data(), device) == cuda::SUCCESS)
    for (unsigned char byte : bytes)
      for (int half : {byte >> 4, byte & 15})
        uuid += "0123456789abcdef"[half];
  // Never released: the last release would reset the context, in which cuBLASLt, cuDNN and NCCL
  // keep memory and modules for the process's next session.
  driver->check(driver->devicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain",
                "opening", name);
}

const cuda::Driver &CudaContext::use() const {
  driver->check(driver->ctxSetCurrent(context), "cuCtxSetCurrent", "switching to", name);
  return *driver;
}

CudaEvent::CudaEvent(std::shared_ptr<const CudaContext> owner, bool timed)
    : context(std::move(owner)) {
  const cuda::Driver &driver = context->use();
  unsigned flags = timed ? cuda::EVENT_DEFAULT : cuda::EVENT_DISABLE_TIMING;
  driver.check(driver.eventCreate(&handle, flags), "cuEventCreate", "making an event on",
               context->getName());
}

CudaEvent::~CudaEvent() {
  const cuda::Driver &driver = context->useQuietly();
  driver.eventDestroy(handle);
  if (captureHandle)
    driver.eventDestroy(captureHandle);
}

cuda::EventHandle CudaEvent::selectForRecord(const CudaCapture *taker) {
  wasCaptured = taker != nullptr;
  if (!taker)
    return handle;
  capture = taker->getToken();
  const cuda::Driver &driver = context->use();
  if (!captureHandle)
    driver.check(driver.eventCreate(&captureHandle, cuda::EVENT_DISABLE_TIMING), "cuEventCreate",
                 "making an event on", context->getName());
  return captureHandle;
}

cuda::EventHandle CudaEvent::selectForWait(const CudaCapture *taker) const {
  return wasCaptured && (taker || !capture.expired()) ? captureHandle : handle;
}

bool CudaEvent::isDone() const {
  const cuda::Driver &driver = context->use();
  cuda::Result result = driver.eventQuery(handle);
  if (result == cuda::ERROR_NOT_READY)
    return false;
  driver.check(result, "cuEventQuery", "asking for an event of", context->getName());
  return true;
}

//===----------------------------------------------------------------------===//
// StagingRing
//===----------------------------------------------------------------------===//

StagingRing::StagingRing(std::shared_ptr<const CudaContext> owner) : context(std::move(owner)) {
  const cuda::Driver &driver = context->use();
  void *pinned = nullptr;
  driver.check(driver.memHostAlloc(&pinned, capacity, cuda::MEMHOSTALLOC_PORTABLE),
               "cuMemHostAlloc", "reserving pinned memory for copies to and from",
               context->getName());
  base = static_cast<std::byte *>(pinned);
}

StagingRing::~StagingRing() { context->useQuietly().memFreeHost(base); }

std::byte *StagingRing::acquire(size_t bytes) {
  constexpr size_t alignment = 64;
  size_t begin = head + bytes <= capacity ? head : 0;
  size_t end = begin + bytes;
  auto overlaps = [&](const Segment &segment) {
    return segment.begin < end && begin < segment.end;
  };
  const cuda::Driver &driver = context->use();
  while (std::any_of(inFlight.begin(), inFlight.end(), overlaps)) {
    Segment &oldest = inFlight.front();
    driver.check(driver.eventSynchronize(oldest.event->getHandle()), "cuEventSynchronize",
                 "waiting for a copy of", context->getName());
    idleEvents.push_back(std::move(oldest.event));
    inFlight.pop_front();
  }
  current = {begin, end, nullptr};
  head = (end + alignment - 1) / alignment * alignment;
  return base + begin;
}

void StagingRing::release(cuda::StreamHandle stream) {
  if (idleEvents.empty())
    idleEvents.push_back(std::make_unique<CudaEvent>(context));
  current.event = std::move(idleEvents.back());
  idleEvents.pop_back();
  const cuda::Driver &driver = context->use();
  driver.check(driver.eventRecord(current.event->getHandle(), stream), "cuEventRecord",
               "after a copy of", context->getName());
  inFlight.push_back(std::move(current));
}

//===----------------------------------------------------------------------===//
// CudaStream
//===----------------------------------------------------------------------===//

CudaStream::CudaStream(std::shared_ptr<const CudaContext> owner, StreamKind kind,
                       std::string streamName)
    : context(std::move(owner)), name(std::move(streamName)) {
  const cuda::Driver &driver = context->use();
  int least = 0;
  int greatest = 0;
  driver.check(driver.ctxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange",
               "making stream", name);
  // A ready collective must not queue behind a grid of thousands of blocks.
  int priority = kind == StreamKind::Communication ? greatest : least;
  driver.check(driver.streamCreateWithPriority(&handle, cuda::STREAM_NON_BLOCKING, priority),
               "cuStreamCreateWithPriority", "making stream", name);
}

CudaStream::~CudaStream() {
  const cuda::Driver &driver = context->useQuietly();
  for (DevicePointer workspace : workspaces)
    driver.memFreeAsync(workspace, handle);
  driver.streamSynchronize(handle);
  if (reached)
    driver.memFreeHost(reached);
  staging.reset();
  driver.streamDestroy(handle);
}

void CudaStream::record(Event &event) {
  const cuda::Driver &driver = context->use();
  driver.check(driver.eventRecord(static_cast<CudaEvent &>(event).selectForRecord(capture), handle),
               "cuEventRecord", "on stream", name);
}

void CudaStream::wait(Event &event) {
  const cuda::Driver &driver = context->use();
  driver.check(
      driver.streamWaitEvent(handle, static_cast<CudaEvent &>(event).selectForWait(capture), 0),
      "cuStreamWaitEvent", "on stream", name);
}

void CudaStream::runHostWork(void *data) {
  auto *work = static_cast<HostWork *>(data);
  {
    std::lock_guard running(work->mutex);
    try {
      if (work->run)
        work->run();
    } catch (...) {
      std::lock_guard lock(work->stream->errorMutex);
      if (!work->stream->firstError)
        work->stream->firstError = std::current_exception();
    }
  }
  work->done.store(true, std::memory_order_release);
}

void CudaStream::dropFinishedHostWork() {
  // The list owns the work, since the driver drops host functions if the GPU has failed.
  while (!hostWork.empty() && hostWork.front().done.load(std::memory_order_acquire))
    hostWork.pop_front();
}

/// Drops work that has not begun: the objects that it uses may be destroyed by then.
void CudaStream::abandonHostWork() {
  for (HostWork &work : hostWork) {
    std::lock_guard lock(work.mutex);
    work.run = nullptr;
  }
}

void CudaStream::enqueueHost(std::function<void()> work) {
  dropFinishedHostWork();
  HostWork &entry = hostWork.emplace_back();
  entry.stream = this;
  entry.run = std::move(work);
  const cuda::Driver &driver = context->use();
  cuda::Result result = driver.launchHostFunc(handle, runHostWork, &entry);
  if (result != cuda::SUCCESS) {
    hostWork.pop_back();
    driver.fail(result, "cuLaunchHostFunc", "on stream", name);
  }
}

StagingRing &CudaStream::getStaging() {
  if (!staging)
    staging = std::make_unique<StagingRing>(context);
  return *staging;
}

void CudaStream::copyIn(void *to, const void *from, size_t bytes) {
  StagingRing &ring = getStaging();
  const cuda::Driver &driver = context->use();
  for (size_t done = 0; done < bytes;) {
    size_t part = std::min(bytes - done, StagingRing::getLargest());
    std::byte *pinned = ring.acquire(part);
    std::memcpy(pinned, static_cast<const std::byte *>(from) + done, part);
    driver.check(driver.memcpyHtoDAsync(toDevice(to) + done, pinned, part, handle),
                 "cuMemcpyHtoDAsync", "on stream", name);
    ring.release(handle);
    done += part;
  }
}

void CudaStream::copyOut(void *to, const void *from, size_t bytes) {
  StagingRing &ring = getStaging();
  const cuda::Driver &driver = context->use();
  for (size_t done = 0; done < bytes;) {
    size_t part = std::min(bytes - done, StagingRing::getLargest());
    std::byte *pinned = ring.acquire(part);
    driver.check(driver.memcpyDtoHAsync(pinned, toDevice(from) + done, part, handle),
                 "cuMemcpyDtoHAsync", "on stream", name);
    std::byte *target = static_cast<std::byte *>(to) + done;
    enqueueHost([target, pinned, part] { std::memcpy(target, pinned, part); });
    ring.release(handle);
    done += part;
  }
}

uint32_t CudaStream::mark() {
  const cuda::Driver &driver = context->use();
  if (cannotMark || !driver.canWriteValues())
    return 0;
  if (!reached) {
    void *pinned = nullptr;
    driver.check(driver.memHostAlloc(&pinned, sizeof(uint32_t), cuda::MEMHOSTALLOC_PORTABLE),
                 "cuMemHostAlloc", "making marks of stream", name);
    reached = new (pinned) uint32_t(0);
  }
  cuda::Result result = driver.streamWriteValue32(handle, toDevice(reached), marks + 1,
                                                  cuda::STREAM_WRITE_VALUE_DEFAULT);
  cannotMark = result == cuda::ERROR_NOT_SUPPORTED;
  if (cannotMark)
    return 0;
  driver.check(result, "cuStreamWriteValue32", "on stream", name);
  return ++marks;
}

std::optional<uint32_t> CudaStream::readMark() const {
  if (!reached || cannotMark)
    return std::nullopt;
  return std::atomic_ref(*reached).load(std::memory_order_acquire);
}

void *CudaStream::getWorkspace(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  if (bytes > workspaceBytes) {
    // Powers of two: all outgrown workspaces together are no larger than the one in use.
    size_t larger = std::bit_ceil(bytes);
    const cuda::Driver &driver = context->use();
    DevicePointer workspace = 0;
    if (capture)
      workspace = capture->allocate(larger);
    else
      driver.check(
          driver.memAllocAsync(&workspace, larger, handle), "cuMemAllocAsync",
          ("reserving " + std::to_string(larger) + " bytes of workspace on stream").c_str(), name);
    workspaces.push_back(workspace);
    workspaceBytes = larger;
  }
  return reinterpret_cast<void *>(static_cast<uintptr_t>(workspaces.back()));
}

void CudaStream::addMonitor(const std::shared_ptr<StreamMonitor> &monitor) {
  std::erase_if(monitors, [](const auto &known) { return known.expired(); });
  for (const auto &known : monitors)
    if (known.lock() == monitor)
      return;
  monitors.push_back(monitor);
}

void CudaStream::waitForHandle() {
  using namespace std::chrono;
  const cuda::Driver &driver = context->use();
  if (monitors.empty()) {
    driver.check(driver.streamSynchronize(handle), "cuStreamSynchronize", "waiting for stream",
                 name);
    return;
  }
  // Poll, since NCCL has no time limit: a blocking wait would outlast a peer's death. After a
  // failure its kernels are aborted and end soon; wait for that, since they use memory that the
  // caller would free.
  constexpr auto drainLimit = seconds(5);
  std::exception_ptr failure;
  auto start = steady_clock::now();
  auto drainEnd = steady_clock::time_point::max();
  for (;;) {
    cuda::Result result = driver.streamQuery(handle);
    if (!failure) {
      failure = pollMonitors();
      if (failure)
        drainEnd = steady_clock::now() + drainLimit;
    }
    if (result == cuda::SUCCESS || steady_clock::now() > drainEnd)
      break;
    if (result != cuda::ERROR_NOT_READY) {
      if (failure)
        break;
      driver.fail(result, "cuStreamQuery", "waiting for stream", name);
    }
    if (steady_clock::now() - start < milliseconds(2))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(microseconds(50));
  }
  if (failure) {
    abandonHostWork();
    std::rethrow_exception(failure);
  }
  driver.check(driver.streamSynchronize(handle), "cuStreamSynchronize", "waiting for stream", name);
}

std::exception_ptr CudaStream::pollMonitors() {
  try {
    for (const auto &known : monitors)
      if (auto monitor = known.lock())
        monitor->poll();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void CudaStream::recordTime(int64_t *nanoseconds) {
  if (idleTimers.empty())
    idleTimers.push_back(std::make_unique<CudaEvent>(context, /*timed=*/true));
  times.push_back({std::move(idleTimers.back()), nanoseconds});
  idleTimers.pop_back();
  record(*times.back().event);
}

/// Converts GPU times to the host's clock with one more event, now that the stream is idle.
void CudaStream::writeTimes() {
  if (times.empty())
    return;
  const cuda::Driver &driver = context->use();
  CudaEvent anchor(context, /*timed=*/true);
  record(anchor);
  driver.check(driver.eventSynchronize(anchor.getHandle()), "cuEventSynchronize", "on stream",
               name);
  int64_t now = getMonotonicTime();
  for (Time &time : times) {
    float milliseconds = 0;
    driver.check(
        driver.eventElapsedTime(&milliseconds, time.event->getHandle(), anchor.getHandle()),
        "cuEventElapsedTime", "on stream", name);
    *time.nanoseconds = now - static_cast<int64_t>(double(milliseconds) * 1e6);
    idleTimers.push_back(std::move(time.event));
  }
  times.clear();
}

void CudaStream::synchronize() {
  try {
    waitForHandle();
    writeTimes();
  } catch (...) {
    times.clear(); // their destinations may no longer exist
    throw;
  }
  dropFinishedHostWork();
  std::lock_guard lock(errorMutex);
  if (firstError)
    std::rethrow_exception(std::exchange(firstError, nullptr));
}

} // namespace gridloom::rt
