//===- CudaGraph.h - work captured as a graph -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Captures the work of several streams between two points as one CUDA graph, which the driver
// submits at once: a step costs the host one call, and the GPU has no gaps between kernels.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDAGRAPH_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDAGRAPH_H

#include "runtime/device/cuda/CudaStream.h"

#include <map>

namespace gridloom::rt {

/// The driver's handles of one graph.
class GraphHandles {
public:
  GraphHandles(std::shared_ptr<const CudaContext> context, cuda::Graph graph);
  ~GraphHandles() { discard(); }
  GraphHandles(const GraphHandles &) = delete;
  GraphHandles &operator=(const GraphHandles &) = delete;

  void launch(CudaStream &stream);
  /// Destroys the graph; called from any thread. A replay in progress continues; later ones throw.
  void discard() noexcept;

private:
  std::shared_ptr<const CudaContext> context;
  std::mutex mutex;
  cuda::Graph graph = nullptr;
  cuda::GraphExec executable = nullptr;
};

/// A library that must know about its work in a graph (NCCL).
class GraphGuest {
public:
  virtual ~GraphGuest() = default;
  /// Called once, when the graph has been created from the capture.
  virtual void enter(const std::shared_ptr<GraphHandles> &graph) = 0;
  /// Calls `submit`, which submits the graph to `stream`; throws instead if the library's part can
  /// no longer run.
  virtual void launch(CudaStream &stream, const std::function<void()> &submit) = 0;
};

/// A capture in progress: owns its streams' submissions until it is ended or destroyed.
class CudaCapture {
public:
  CudaCapture(const std::shared_ptr<const CudaContext> &context, std::span<Stream *const> streams);
  ~CudaCapture();
  CudaCapture(const CudaCapture &) = delete;
  CudaCapture &operator=(const CudaCapture &) = delete;

  std::unique_ptr<WorkGraph> end();
  /// Expires when the capture ends.
  const std::shared_ptr<const int> &getToken() const { return token; }
  /// The guest of `owner`, created by `make` in the first call.
  GraphGuest &getGuest(const void *owner, const std::function<std::shared_ptr<GraphGuest>()> &make);
  /// Device memory that is allocated immediately: allocations on captured streams would become part
  /// of the graph. Free it like memory of cuMemAllocAsync.
  cuda::DevicePointer allocate(size_t bytes);

private:
  cuda::Graph stop() noexcept;

  std::shared_ptr<const CudaContext> context;
  std::vector<CudaStream *> streams;
  CudaEvent meeting;
  std::unique_ptr<CudaStream> allocations; // for `allocate`, created on first use
  std::map<const void *, std::shared_ptr<GraphGuest>> guests;
  cuda::Result ended = cuda::SUCCESS; // what cuStreamEndCapture returned
  bool open = false;
  std::shared_ptr<const int> token = std::make_shared<const int>(0);
};

class CudaGraph final : public WorkGraph {
public:
  CudaGraph(std::shared_ptr<GraphHandles> handles, std::vector<std::shared_ptr<GraphGuest>> guests)
      : handles(std::move(handles)), guests(std::move(guests)) {}

  void launch(CudaStream &stream);

private:
  std::shared_ptr<GraphHandles> handles;
  std::vector<std::shared_ptr<GraphGuest>> guests;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDAGRAPH_H
