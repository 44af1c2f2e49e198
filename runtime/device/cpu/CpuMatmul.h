//===- CpuMatmul.h - matrix multiplication on the CPU -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// f32 goes to oneDNN's sgemm, called with one thread inside and split over the rank's pool by us.
// f16 and bf16 are converted to f32 and go there too: they save memory, not time. f64 and integers
// go to plain loops, which are exact and there to check with.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUMATMUL_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUMATMUL_H

#include "runtime/device/Device.h"

#include <string>
#include <vector>

namespace gridloom::rt {

class ThreadPool;

/// A matrix as BLAS sees it: the rows lie `ld` apart, or the columns do and it is read transposed.
struct BlasOperand {
  bool transposed = false;
  int64_t ld = 1;
};

/// Matrices of 16-bit floats as f32; calls that run one after another share them.
struct MatmulScratch {
  std::vector<float> lhs, rhs, bias, residual, out;
};

/// The operands as elements of one type.
template <typename T> struct MatmulPointers {
  const T *lhs = nullptr, *rhs = nullptr, *bias = nullptr, *residual = nullptr;
  T *out = nullptr;
};

class CpuMatmul : public MatmulPlan {
public:
  /// Throws InvalidPlan when neither of an operand's last two strides is 1 or its rows overlap.
  explicit CpuMatmul(const MatmulProblem &problem);
  void run(ThreadPool &pool, MatmulScratch &scratch, const MatmulOperands &operands,
           void *out) const;

private:
  struct Offsets {
    int64_t lhs, rhs, out;
  };
  Offsets getOffsets(int64_t batch) const;
  void runSgemm(ThreadPool &pool, const MatmulPointers<float> &pointers) const;
  void runSgemmPart(MatmulPointers<float> pointers, int64_t rowBegin, int64_t rowEnd,
                    int64_t columnBegin, int64_t columnEnd) const;
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
};

/// Keeps oneDNN from starting threads of its own when called from this thread.
void useOneLibraryThread();

/// The same for as long as it lives.
class OneLibraryThread {
public:
  OneLibraryThread();
  ~OneLibraryThread();
  OneLibraryThread(const OneLibraryThread &) = delete;
  OneLibraryThread &operator=(const OneLibraryThread &) = delete;

private:
  int before = 0; // threads; 0: the library has none of its own
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUMATMUL_H
