//===- CpuDevice.h - the CPU as a device ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUDEVICE_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUDEVICE_H

#include "runtime/device/Device.h"
#include "runtime/device/cpu/CpuGraph.h"
#include "runtime/device/cpu/CpuLibrary.h"
#include "runtime/device/cpu/CpuStream.h"
#include "runtime/device/cpu/ThreadPool.h"

#include <map>

namespace gridloom::rt {

/// The CPU. Each stream has a thread; all streams share one pool of intra-op threads.
class CpuDevice : public Device {
public:
  explicit CpuDevice(unsigned threads);

  std::string getName() const override { return "cpu"; }
  std::string getKind() const override { return "cpu"; }
  bool hasHostMemory() const override { return true; }
  void setErrorHandler(const std::function<void(const std::string &)> &handler) override;
  std::unique_ptr<Memory> allocate(size_t bytes) override;
  std::unique_ptr<Stream> createStream(StreamKind kind, const std::string &name) override;
  std::unique_ptr<Event> createEvent() override;
  std::vector<std::string> listLibraries(const std::string &library) const override;
  std::unique_ptr<Kernel> loadKernel(const std::string &library, std::span<const std::byte> code,
                                     const std::string &symbol) override;
  std::unique_ptr<MatmulPlan> createMatmul(const MatmulProblem &problem) override;
  std::unique_ptr<LibraryPlan> createConvolution(const ConvolutionProblem &problem) override;
  void launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
              std::span<void *const> pointers) override;
  void matmul(Stream &stream, MatmulPlan &plan, const MatmulOperands &operands, void *out) override;
  void call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
            void *out) override;
  void copy(Stream &stream, void *to, const void *from, size_t bytes) override;
  void copyIn(Stream &stream, void *to, const void *from, size_t bytes) override;
  void copyOut(Stream &stream, void *to, const void *from, size_t bytes) override;

  std::string whyNotCapturable() const override { return ""; }
  void beginCapture(std::span<Stream *const> streams) override;
  std::unique_ptr<WorkGraph> endCapture() override;
  void cancelCapture() noexcept override;
  void replay(Stream &stream, WorkGraph &graph) override;

private:
  std::shared_ptr<CpuErrorSink> errors = std::make_shared<CpuErrorSink>();
  ThreadPool pool;
  struct Loaded {
    const std::byte *code;
    size_t bytes;
    std::weak_ptr<CpuLibrary> library;
  };
  std::map<std::string, Loaded> libraries;
  std::shared_ptr<CpuGraph> capture; // in progress
  std::vector<Stream *> capturedStreams;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUDEVICE_H
