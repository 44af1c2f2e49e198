//===- CudaGraph.cpp - work captured as a graph ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CudaGraph.h"

#include "runtime/core/Error.h"

#include <utility>

namespace gridloom::rt {

//===----------------------------------------------------------------------===//
// GraphHandles
//===----------------------------------------------------------------------===//

GraphHandles::GraphHandles(std::shared_ptr<const CudaContext> owner, cuda::Graph captured)
    : context(std::move(owner)), graph(captured) {
  const cuda::Driver &driver = context->use();
  cuda::Result result = driver.graphInstantiate(&executable, graph, driver.getGraphFlags());
  if (result == cuda::SUCCESS)
    return;
  executable = nullptr;
  discard();
  driver.fail(result, "cuGraphInstantiateWithFlags", "on", context->getName());
}

void GraphHandles::launch(CudaStream &stream) {
  const cuda::Driver &driver = context->use();
  std::lock_guard lock(mutex);
  if (!executable)
    throw Error(ErrorCode::PeerFailed, "the graph was given up when its communication failed");
  driver.check(driver.graphLaunch(executable, static_cast<cuda::StreamHandle>(stream.getNative())),
               "cuGraphLaunch", "on stream", stream.getName());
}

void GraphHandles::discard() noexcept {
  const cuda::Driver &driver = context->useQuietly();
  std::lock_guard lock(mutex);
  if (executable)
    driver.graphExecDestroy(std::exchange(executable, nullptr));
  if (graph)
    driver.graphDestroy(std::exchange(graph, nullptr));
}

//===----------------------------------------------------------------------===//
// CudaCapture
//===----------------------------------------------------------------------===//

CudaCapture::CudaCapture(const std::shared_ptr<const CudaContext> &owner,
                         std::span<Stream *const> given)
    : context(owner), meeting(owner) {
  for (Stream *stream : given)
    streams.push_back(static_cast<CudaStream *>(stream));
  CudaStream &origin = *streams.front();
  const cuda::Driver &driver = context->use();
  // Thread-local mode: other threads (a watchdog that queries events, another rank that loads) are
  // not restricted.
  driver.check(driver.streamBeginCapture(static_cast<cuda::StreamHandle>(origin.getNative()),
                                         cuda::STREAM_CAPTURE_MODE_THREAD_LOCAL),
               "cuStreamBeginCapture", "on stream", origin.getName());
  open = true;
  try {
    origin.record(meeting);
    for (size_t i = 1; i < streams.size(); ++i)
      streams[i]->wait(meeting);
  } catch (...) {
    if (cuda::Graph graph = stop())
      driver.graphDestroy(graph);
    throw;
  }
  for (CudaStream *stream : streams)
    stream->setCapture(this);
}

CudaCapture::~CudaCapture() {
  if (cuda::Graph graph = stop())
    context->useQuietly().graphDestroy(graph);
}

/// Ends the capture on all streams; null if the driver returns no graph.
cuda::Graph CudaCapture::stop() noexcept {
  for (CudaStream *stream : streams)
    stream->setCapture(nullptr);
  token = nullptr;
  if (!std::exchange(open, false))
    return nullptr;
  cuda::Graph graph = nullptr;
  auto origin = static_cast<cuda::StreamHandle>(streams.front()->getNative());
  ended = context->useQuietly().streamEndCapture(origin, &graph);
  return graph;
}

std::unique_ptr<WorkGraph> CudaCapture::end() {
  for (size_t i = 1; i < streams.size(); ++i) {
    streams[i]->record(meeting);
    streams.front()->wait(meeting);
  }
  const cuda::Driver &driver = context->use();
  cuda::Graph graph = stop();
  if (ended != cuda::SUCCESS && graph)
    driver.graphDestroy(graph);
  driver.check(ended, "cuStreamEndCapture", "on stream", streams.front()->getName());
  auto handles = std::make_shared<GraphHandles>(context, graph);
  std::vector<std::shared_ptr<GraphGuest>> entered;
  for (auto &[owner, guest] : guests) {
    guest->enter(handles);
    entered.push_back(guest);
  }
  return std::make_unique<CudaGraph>(std::move(handles), std::move(entered));
}

GraphGuest &CudaCapture::getGuest(const void *owner,
                                  const std::function<std::shared_ptr<GraphGuest>()> &make) {
  std::shared_ptr<GraphGuest> &guest = guests[owner];
  if (!guest)
    guest = make();
  return *guest;
}

cuda::DevicePointer CudaCapture::allocate(size_t bytes) {
  if (!allocations)
    allocations = std::make_unique<CudaStream>(context, StreamKind::Copy, "capture");
  const cuda::Driver &driver = context->use();
  int mode = cuda::STREAM_CAPTURE_MODE_RELAXED;
  driver.check(driver.threadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode",
               "on", context->getName());
  auto stream = static_cast<cuda::StreamHandle>(allocations->getNative());
  cuda::DevicePointer pointer = 0;
  cuda::Result result = driver.memAllocAsync(&pointer, bytes, stream);
  cuda::Result waited = result == cuda::SUCCESS ? driver.streamSynchronize(stream) : cuda::SUCCESS;
  driver.threadExchangeStreamCaptureMode(&mode);
  driver.check(result, "cuMemAllocAsync", "while capturing on", context->getName());
  driver.check(waited, "cuStreamSynchronize", "while capturing on", context->getName());
  return pointer;
}

void CudaGraph::launch(CudaStream &stream) {
  std::function<void()> submit = [&] { handles->launch(stream); };
  for (const std::shared_ptr<GraphGuest> &guest : guests)
    submit = [&stream, &guest = *guest, inner = std::move(submit)] { guest.launch(stream, inner); };
  submit();
}

} // namespace gridloom::rt
