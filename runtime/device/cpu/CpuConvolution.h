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

/// A convolution of f32 by oneDNN, fast with the channels last. oneDNN reads weights in an order of
/// its own, into which they are brought by every call, or, if they never change, by the first. Each
/// image is computed by itself, and with fewer images than threads in parts of the result's rows.
class CpuConvolution : public LibraryPlan {
public:
  /// `threads` is the pool's number. Throws Unavailable for other types than f32, an activation or
  /// a residual, and where oneDNN has no such convolution.
  CpuConvolution(const ConvolutionProblem &problem, int64_t threads);
  ~CpuConvolution() override;
  /// `inputs` are input, weight and, if the epilogue says so, bias.
  void run(ThreadPool &pool, std::span<const void *const> inputs, void *out);
  void forgetWeights() override;

private:
  struct Parts;
  std::unique_ptr<Parts> parts;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUCONVOLUTION_H
