//===- CudaDevice.h - an NVIDIA GPU as a device -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDADEVICE_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDADEVICE_H

#include "runtime/device/Device.h"
#include "runtime/device/cuda/CuBlasLt.h"
#include "runtime/device/cuda/CudaGraph.h"
#include "runtime/device/cuda/MapPtx.h"

#include <map>

namespace gridloom::rt {

struct CudaOptions {
  /// Empty: environment variable GRIDLOOM_CUDA_DRIVER, else libcuda.so.1.
  std::string driverPath;
  /// Empty: environment variable GRIDLOOM_CUBLASLT, else libcublasLt.so.13, then .12.
  std::string cublasLtPath;
  /// Empty: environment variable GRIDLOOM_CUDNN, else libcudnn.so.9.
  std::string cudnnPath;
};

class CuDnn;
class CudaModule;

/// GPU `ordinal` through the driver API. Nothing synchronises the whole device: streams do not
/// synchronise with the default stream, and waits are for one stream or event. Only ~Memory waits
/// for the GPU's pending work (cuMemFree does), when a session is closed.
///
/// Kernels take exactly their pointers as parameters, in order. Streams, memory and other objects
/// may outlive the device.
class CudaDevice final : public Device {
public:
  /// Throws Unavailable if there is no driver or no such GPU.
  explicit CudaDevice(int ordinal, const CudaOptions &options = {});
  ~CudaDevice() override;

  std::string getName() const override { return context->getName(); }
  std::string getKind() const override { return "cuda"; }
  std::optional<DeviceMemory> getMemory() const override;
  std::string checkTarget(const std::string &arch, int version) const override;
  std::unique_ptr<Memory> allocate(size_t bytes) override;
  std::unique_ptr<Stream> createStream(StreamKind kind, const std::string &name) override;
  std::unique_ptr<Event> createEvent() override;
  std::vector<std::string> listLibraries(const std::string &library) const override;
  /// `code` is a cubin, a fat binary or PTX text. Throws InvalidPlan if this GPU cannot run it or
  /// it has no `symbol`.
  std::unique_ptr<Kernel> loadKernel(const std::string &library, std::span<const std::byte> code,
                                     const std::string &symbol) override;
  std::string getTuningName() const override;
  std::string getLibraryVersions() const override;
  void setTuning(const std::shared_ptr<AutotuneCache> &cache) override { tuning = cache; }
  /// f32, f64, f16 and bf16. The rows or columns of the output and of each operand must be
  /// contiguous (stride 1). Where cuBLASLt deviates from MatmulProblem (relu of NaN is zero) or
  /// lacks something (bias in f64), a kernel of the runtime follows it; then the output must be
  /// dense.
  std::unique_ptr<MatmulPlan> createMatmul(const MatmulProblem &problem) override;
  /// f32, f16 and bf16.
  std::unique_ptr<LibraryPlan> createConvolution(const ConvolutionProblem &problem) override;
  /// f16 and bf16, rows contiguous.
  std::unique_ptr<LibraryPlan> createAttention(const AttentionProblem &problem) override;
  void launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
              std::span<void *const> pointers) override;
  void matmul(Stream &stream, MatmulPlan &plan, const MatmulOperands &operands, void *out) override;
  void call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
            void *out) override;
  void copy(Stream &stream, void *to, const void *from, size_t bytes) override;
  void copyIn(Stream &stream, void *to, const void *from, size_t bytes) override;
  void copyOut(Stream &stream, void *to, const void *from, size_t bytes) override;
  void zero(Stream &stream, void *to, size_t bytes) override;

  std::string whyNotCapturable() const override { return context->use().whyNotCapturable(); }
  void beginCapture(std::span<Stream *const> streams) override;
  std::unique_ptr<WorkGraph> endCapture() override;
  void cancelCapture() noexcept override { capture.reset(); }
  void replay(Stream &stream, WorkGraph &graph) override;

  /// Submits out[i] = map(in[i]) for `count` elements of `type`; `columns` is for AddBias. Loads
  /// the kernel at the first call or in prepareMap.
  void map(CudaStream &stream, MapKind kind, DataType type, const void *in, void *out, size_t count,
           size_t columns = 0);
  void prepareMap(MapKind kind, DataType type) { getMap(kind, type); }

  const std::shared_ptr<const CudaContext> &getContext() const { return context; }

private:
  Kernel &getMap(MapKind kind, DataType type);

  std::shared_ptr<const CudaContext> context;
  const std::shared_ptr<const CuDnn> &getCuDnn();

  std::string cublasLtPath, cudnnPath;
  std::shared_ptr<const CuBlasLt> cublasLt;
  std::shared_ptr<AutotuneCache> tuning;
  std::shared_ptr<const CuDnn> cudnn;
  std::map<std::string, std::weak_ptr<CudaModule>> modules;
  std::map<std::string, std::unique_ptr<Kernel>> maps; // by name
  std::unique_ptr<CudaCapture> capture;
};

/// The number of GPUs that this process sees. Throws Unavailable if there is no driver.
int countCudaDevices(const CudaOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDADEVICE_H
