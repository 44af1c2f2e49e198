//===- CpuPackedMatmul.h - products with a packed weight --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUPACKEDMATMUL_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUPACKEDMATMUL_H

#include "runtime/device/Device.h"

#include <memory>

namespace gridloom::rt {

class ThreadPool;

/// Typed pointers to the operands.
template <typename T> struct MatmulPointers {
  const T *lhs = nullptr, *rhs = nullptr, *bias = nullptr, *residual = nullptr;
  T *out = nullptr;
};

/// An f32 product of a few rows with a constant weight that is read several times in a run, as in
/// recurrent layers, and is kept in oneDNN's own layout: its sgemm packs the weight, or reads it as
/// it lies, in every call.
class CpuPackedMatmul {
public:
  /// `threads` is the pool's size; each has its own columns. Null if there may be no copy of the
  /// weight, or it is of no use, as where oneDNN has no kernel for the strides or the processor.
  static std::unique_ptr<CpuPackedMatmul> create(const MatmulProblem &problem, int64_t threads);
  ~CpuPackedMatmul();
  void run(ThreadPool &pool, const MatmulPointers<float> &pointers);
  /// The values at the weight's address may have changed.
  void forgetWeights();

private:
  CpuPackedMatmul();

  struct Parts;
  std::unique_ptr<Parts> parts;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUPACKEDMATMUL_H
