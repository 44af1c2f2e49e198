//===- CpuDevice.cpp - the CPU as a device --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuDevice.h"

#include "runtime/core/Error.h"
#include "runtime/device/cpu/CpuConvolution.h"
#include "runtime/device/cpu/CpuLevel.h"
#include "runtime/device/cpu/CpuMatmul.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

using namespace gridloom::rt;

namespace {

constexpr size_t alignment = 64;

struct CpuMemory : Memory {
  explicit CpuMemory(size_t size) {
    size_t rounded = (std::max<size_t>(size, 1) + alignment - 1) / alignment * alignment;
    if (rounded >= size)
      data = std::aligned_alloc(alignment, rounded);
    if (!data)
      throw Error(ErrorCode::OutOfMemory,
                  "cannot allocate " + std::to_string(size) + " bytes of host memory");
    bytes = size;
  }
  ~CpuMemory() override { std::free(data); }
};

struct CpuKernel : Kernel {
  std::shared_ptr<CpuLibrary> library;
  CpuKernelFunction function = nullptr;
};

} // namespace

static unsigned chooseThreads(unsigned threads) {
  if (threads)
    return threads;
  unsigned ranks = 1;
  if (const char *text = std::getenv("LOCAL_WORLD_SIZE"))
    ranks = unsigned(std::clamp(std::strtol(text, nullptr, 10), 1l, 1l << 16));
  return std::max(1u, getNumUsableCores() / ranks);
}

CpuDevice::CpuDevice(unsigned threads) : pool(chooseThreads(threads), useOneLibraryThread) {}

std::unique_ptr<Device> gridloom::rt::createCpuDevice(unsigned threads) {
  return std::make_unique<CpuDevice>(threads);
}

void CpuDevice::setErrorHandler(const std::function<void(const std::string &)> &handler) {
  std::lock_guard lock(errors->mutex);
  errors->handler = handler;
  errors->reported = false;
}

std::unique_ptr<Memory> CpuDevice::allocate(size_t bytes) {
  return std::make_unique<CpuMemory>(bytes);
}

std::unique_ptr<Stream> CpuDevice::createStream(StreamKind kind, const std::string &name) {
  return std::make_unique<CpuStream>(name, errors);
}

std::unique_ptr<Event> CpuDevice::createEvent() { return std::make_unique<CpuEvent>(); }

/// Prefers the library for this CPU's level; plans may have one for a level above their own.
std::vector<std::string> CpuDevice::listLibraries(const std::string &library) const {
  std::filesystem::path path = library;
  std::string wide = path.stem().string() + "." + getCpuLevel() + path.extension().string();
  return {wide, library};
}

std::unique_ptr<Kernel> CpuDevice::loadKernel(const std::string &library,
                                              std::span<const std::byte> code,
                                              const std::string &symbol) {
  Loaded &loaded = libraries[library];
  std::shared_ptr<CpuLibrary> object = loaded.library.lock();
  if (!object || loaded.code != code.data() || loaded.bytes != code.size()) {
    object = std::make_shared<CpuLibrary>(library, code);
    loaded = {code.data(), code.size(), object};
  }
  auto kernel = std::make_unique<CpuKernel>();
  kernel->function = reinterpret_cast<CpuKernelFunction>(object->find(symbol));
  kernel->library = std::move(object);
  return kernel;
}

std::unique_ptr<MatmulPlan> CpuDevice::createMatmul(const MatmulProblem &problem) {
  return std::make_unique<CpuMatmul>(problem, pool.getNumThreads());
}

std::unique_ptr<LibraryPlan> CpuDevice::createConvolution(const ConvolutionProblem &problem) {
  return std::make_unique<CpuConvolution>(problem, pool.getNumThreads());
}

void CpuDevice::launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
                       std::span<void *const> pointers) {
  int64_t rows = shape.rows, threads = pool.getNumThreads();
  // One part per thread, but none smaller than the grain.
  int64_t grain = std::max<int64_t>(1, shape.grain);
  int64_t part = std::max(grain, (rows + threads - 1) / threads);
  static_cast<CpuStream &>(stream).launch(
      pool,
      {static_cast<CpuKernel &>(kernel).function, {pointers.begin(), pointers.end()}, rows, part});
}

void CpuDevice::matmul(Stream &stream, MatmulPlan &plan, const MatmulOperands &operands,
                       void *out) {
  auto &matmul = static_cast<CpuMatmul &>(plan);
  MatmulScratch &scratch = static_cast<CpuStream &>(stream).getScratch();
  stream.enqueueHost(
      [this, &matmul, &scratch, operands, out] { matmul.run(pool, scratch, operands, out); });
}

void CpuDevice::call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
                     void *out) {
  auto &convolution = static_cast<CpuConvolution &>(plan);
  stream.enqueueHost(
      [this, &convolution, out, inputs = std::vector<const void *>(inputs.begin(), inputs.end())] {
        convolution.run(pool, inputs, out);
      });
}

void CpuDevice::copy(Stream &stream, void *to, const void *from, size_t bytes) {
  if (to != from && bytes)
    stream.enqueueHost([=] { std::memcpy(to, from, bytes); });
}

void CpuDevice::copyIn(Stream &stream, void *to, const void *from, size_t bytes) {
  copy(stream, to, from, bytes);
}

void CpuDevice::copyOut(Stream &stream, void *to, const void *from, size_t bytes) {
  copy(stream, to, from, bytes);
}

namespace {
/// Shares the graph: a stream's thread may still be looking for work in it after this is destroyed.
struct CapturedWork : WorkGraph {
  explicit CapturedWork(std::shared_ptr<CpuGraph> graph) : graph(std::move(graph)) {}
  std::shared_ptr<CpuGraph> graph;
};
} // namespace

void CpuDevice::beginCapture(std::span<Stream *const> streams) {
  capture = std::make_shared<CpuGraph>(pool, streams);
  capturedStreams.assign(streams.begin(), streams.end());
  for (size_t i = 0; i < streams.size(); ++i)
    static_cast<CpuStream &>(*streams[i]).captureTo(capture.get(), uint32_t(i));
}

std::unique_ptr<WorkGraph> CpuDevice::endCapture() {
  std::shared_ptr<CpuGraph> ending = capture;
  cancelCapture();
  ending->finishCapture();
  return std::make_unique<CapturedWork>(std::move(ending));
}

void CpuDevice::cancelCapture() noexcept {
  for (Stream *stream : capturedStreams)
    static_cast<CpuStream &>(*stream).captureTo(nullptr);
  capturedStreams.clear();
  capture.reset();
}

void CpuDevice::replay(Stream &stream, WorkGraph &graph) {
  stream.enqueueHost([graph = static_cast<CapturedWork &>(graph).graph] { graph->run(); });
}
