//===- CpuConvolution.h - convolutions on the CPU ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUCONVOLUTION_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUCONVOLUTION_H

#include "runtime/device/Device.h"

#include <memory>

namespace gridloom::rt {

class ThreadPool;

/// An f32 convolution by oneDNN, fast with channels last, on AVX2 by way of copies with the
/// channels in blocks. oneDNN reads weights in its own layout: they are reordered in every call, or
/// once if they are constant. Images are computed one at a time; unless the threads divide them
/// evenly, each in parts along the result's rows, or its channels if the weights are larger.
class CpuConvolution : public LibraryPlan {
public:
  /// `threads` is the pool's size. Throws Unavailable for types other than f32, an activation or a
  /// residual, and if oneDNN does not support the convolution.
  CpuConvolution(const ConvolutionProblem &problem, int64_t threads);
  ~CpuConvolution() override;
  /// `inputs`: input, weight and, if the epilogue has one, bias.
  void run(ThreadPool &pool, std::span<const void *const> inputs, void *out);
  void forgetWeights() override;

private:
  struct Parts;
  std::unique_ptr<Parts> parts;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUCONVOLUTION_H
