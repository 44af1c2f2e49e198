//===- CpuMatmul.h - matrix multiplication on the CPU -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// f32 uses oneDNN's sgemm, which runs single-threaded; the work is split over the rank's pool here.
// Products of few rows with a weight that is read several times in a run use a packed copy of it.
// f16 and bf16 are converted to f32 first: they save memory, not time. f64 and integers use plain
// loops, which are exact and serve as a reference.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUMATMUL_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUMATMUL_H

#include "runtime/device/cpu/CpuPackedMatmul.h"

#include <string>
#include <utility>
#include <vector>

namespace gridloom::rt {

class ThreadPool;

/// A matrix for BLAS: its rows are `ld` elements apart, or if transposed its columns are.
struct BlasOperand {
  bool transposed = false;
  int64_t ld = 1;
};

/// Where a matrix lies: its rows are `ld` floats apart, from `data` on.
struct BlasMatrix {
  const float *data;
  int64_t ld;
};

/// Buffers for 16-bit floats converted to f32; shared by calls that run one after another.
struct MatmulScratch {
  std::vector<float> lhs, rhs, bias, residual, out;
};

class CpuMatmul : public MatmulPlan {
public:
  /// `threads` is the pool's size. Throws InvalidPlan if neither of an operand's last two strides
  /// is 1 or its rows overlap.
  CpuMatmul(const MatmulProblem &problem, int64_t threads);
  void run(ThreadPool &pool, MatmulScratch &scratch, const MatmulOperands &operands,
           void *out) const;
  void forgetWeights() override;

private:
  struct Offsets {
    int64_t lhs, rhs, out;
  };
  Offsets getOffsets(int64_t batch) const;
  void runSgemm(ThreadPool &pool, const MatmulPointers<float> &pointers) const;
  bool isBetterSwapped(int64_t rows, int64_t columns) const;
  void runSgemmPart(MatmulPointers<float> pointers, int64_t rowBegin, int64_t rowEnd,
                    int64_t columnBegin, int64_t columnEnd, uint64_t call) const;
  /// The operands of a part of the product, copied where that is faster. `call` is the number of
  /// the product: a thread's copies last for one.
  std::pair<BlasMatrix, BlasMatrix> spreadOperands(BlasMatrix lhs, BlasMatrix rhs, int64_t rows,
                                                   int64_t columns, uint64_t call) const;
  template <typename Narrow>
  void runNarrow(ThreadPool &pool, MatmulScratch &scratch, const MatmulOperands &operands,
                 void *out) const;
  void runFloats(ThreadPool &pool, const MatmulPointers<float> &pointers) const;
  /// One past the last element that a matrix's strides reach.
  int64_t getReach(const std::vector<int64_t> &batch, const int64_t *strides, int64_t rows,
                   int64_t columns) const;
  template <typename T> void runLoops(ThreadPool &pool, const MatmulPointers<T> &pointers) const;

  DataType type, outType;
  std::vector<int64_t> batchSizes, lhsBatch, rhsBatch, outBatch;
  int64_t numBatches = 1, m = 0, n = 0, k = 0;
  int64_t lhsStrides[2], rhsStrides[2], outStrides[2]; // rows, columns
  double alpha = 1;
  BlasOperand lhsBlas, rhsBlas, outBlas;
  std::unique_ptr<CpuPackedMatmul> packed;
};

/// Keeps oneDNN from starting threads when called from this thread.
void useOneLibraryThread();

/// The same within a scope.
class OneLibraryThread {
public:
  OneLibraryThread();
  ~OneLibraryThread();
  OneLibraryThread(const OneLibraryThread &) = delete;
  OneLibraryThread &operator=(const OneLibraryThread &) = delete;

private:
  int before = 0; // number of threads; 0: the library has no setting
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUMATMUL_H
