//===- CudaMeasure.h - time work on a GPU -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDAMEASURE_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDAMEASURE_H

#include "runtime/device/cuda/CudaStream.h"

namespace gridloom::rt {

/// Device memory for a measurement, filled with numbers between 0.005 and 2 in each of f32, f16 and
/// bf16.
class ScratchMemory {
public:
  ScratchMemory(CudaStream &stream, std::shared_ptr<const CudaContext> context, size_t bytes);
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory &) = delete;
  ScratchMemory &operator=(const ScratchMemory &) = delete;
  void *get() const { return reinterpret_cast<void *>(static_cast<uintptr_t>(pointer)); }

private:
  std::shared_ptr<const CudaContext> context;
  cuda::DevicePointer pointer = 0;
};

/// The shortest time of `submit` on `stream` over several rounds, in microseconds; `what` names it
/// in errors.
double measureMicroseconds(CudaStream &stream, const std::shared_ptr<const CudaContext> &context,
                           const std::string &what, const std::function<void()> &submit);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDAMEASURE_H
