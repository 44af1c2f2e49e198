//===- CpuMatmul.cpp - matrix multiplication on the CPU -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuMatmul.h"

#include "runtime/core/Error.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "support/NarrowFloat.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <optional>

using namespace gridloom;
using namespace gridloom::rt;

/// Finds a function of the threading library that oneDNN is linked with; null if it is missing.
/// Debian's oneDNN uses OpenMP, other builds TBB or none. A process may contain several OpenMP
/// libraries, so look only in oneDNN's.
template <typename Function> static Function findInLibrary(const char *name) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(dnnl_sgemm), &info))
    return nullptr;
  void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library)
    return nullptr;
  auto function = reinterpret_cast<Function>(dlsym(library, name));
  dlclose(library); // RTLD_NOLOAD took a reference
  return function;
}

static void setLibraryThreads(int count) {
  static const auto set = findInLibrary<void (*)(int)>("omp_set_num_threads");
  if (set)
    set(count);
}

void gridloom::rt::useOneLibraryThread() { setLibraryThreads(1); }

OneLibraryThread::OneLibraryThread() {
  static const auto get = findInLibrary<int (*)()>("omp_get_max_threads");
  before = get ? get() : 0;
  setLibraryThreads(1);
}

OneLibraryThread::~OneLibraryThread() {
  if (before)
    setLibraryThreads(before);
}

/// Describes a rows x columns matrix with these strides for BLAS; nothing if BLAS cannot read it.
static std::optional<BlasOperand> describe(int64_t rows, int64_t columns, const int64_t *strides) {
  if (columns == 1 || strides[1] == 1) {
    int64_t ld = rows == 1 ? std::max<int64_t>(columns, 1) : strides[0];
    if (ld >= columns)
      return BlasOperand{false, ld};
  }
  if (rows == 1 || strides[0] == 1) {
    int64_t ld = columns == 1 ? std::max<int64_t>(rows, 1) : strides[1];
    if (ld >= rows)
      return BlasOperand{true, ld};
  }
  return std::nullopt;
}

static BlasOperand describeOrThrow(const char *name, int64_t rows, int64_t columns,
                                   const int64_t *strides) {
  if (std::optional<BlasOperand> operand = describe(rows, columns, strides))
    return *operand;
  throw Error(ErrorCode::InvalidPlan,
              "matmul: " + std::string(name) + " of " + std::to_string(rows) + " x " +
                  std::to_string(columns) + " has strides " + std::to_string(strides[0]) + ", " +
                  std::to_string(strides[1]) + "; one of them must be 1 and no rows may overlap");
}

static bool usesAvx2Kernels() {
  dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  return isa == dnnl_cpu_isa_avx2 || isa == dnnl_cpu_isa_avx2_vnni;
}

CpuMatmul::CpuMatmul(const MatmulProblem &problem, int64_t threads)
    : type(problem.type), outType(problem.getOutType()), alpha(problem.alpha) {
  if (problem.epilogue.activation != Activation::None)
    throw Error(ErrorCode::Unavailable, "matmul: activations are not available on the cpu");
  size_t batchRank = problem.sizes.size() - 3;
  m = problem.sizes[batchRank];
  n = problem.sizes[batchRank + 1];
  k = problem.sizes[batchRank + 2];
  for (size_t i = 0; i < batchRank; ++i) {
    batchSizes.push_back(problem.sizes[i]);
    numBatches *= problem.sizes[i];
    lhsBatch.push_back(problem.lhs[i]);
    rhsBatch.push_back(problem.rhs[i]);
    outBatch.push_back(problem.out[i]);
  }
  for (int i = 0; i < 2; ++i) {
    lhsStrides[i] = problem.lhs[batchRank + i];
    rhsStrides[i] = problem.rhs[batchRank + i];
    outStrides[i] = problem.out[batchRank + i];
  }
  switch (type) {
  case DataType::F32:
  case DataType::F16:
  case DataType::BF16:
    lhsBlas = describeOrThrow("lhs", m, k, lhsStrides);
    rhsBlas = describeOrThrow("rhs", k, n, rhsStrides);
    outBlas = describeOrThrow("out", m, n, outStrides);
    break;
  case DataType::F64:
  case DataType::I32:
  case DataType::I64:
    break;
  default:
    throw Error(ErrorCode::Unavailable,
                "matmul: " + std::string(nameOf(type)) + " is not available on the cpu");
  }
  // oneDNN's AVX2 kernels have not been measured.
  if (!usesAvx2Kernels())
    packed = CpuPackedMatmul::create(problem, threads);
}

void CpuMatmul::forgetWeights() {
  if (packed)
    packed->forgetWeights();
}

CpuMatmul::Offsets CpuMatmul::getOffsets(int64_t batch) const {
  Offsets offsets{0, 0, 0};
  for (size_t i = batchSizes.size(); i-- > 0;) {
    int64_t index = batch % batchSizes[i];
    batch /= batchSizes[i];
    offsets.lhs += index * lhsBatch[i];
    offsets.rhs += index * rhsBatch[i];
    offsets.out += index * outBatch[i];
  }
  return offsets;
}

/// to[i][j] = from[j][i], in blocks whose cache lines stay resident for both matrices.
static void transpose(const float *from, int64_t fromStride, float *to, int64_t toStride,
                      int64_t rows, int64_t columns) {
  constexpr int64_t block = 16;
  for (int64_t first = 0; first < columns; first += block)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = first; j < std::min(first + block, columns); ++j)
        to[i * toStride + j] = from[j * fromStride + i];
}

/// Whether to compute the transposed result: for long sums over rows of both matrices, the library
/// is a fifth faster with the larger matrix on the left.
bool CpuMatmul::isBetterSwapped(int64_t rows, int64_t columns) const {
  constexpr int64_t fewest = 32, longSums = 16;
  return !lhsBlas.transposed && rhsBlas.transposed && !outBlas.transposed && rows >= fewest &&
         rows < columns && k >= longSums * rows;
}

namespace {
/// A thread's copy of a matrix with gaps between its rows. Tasks of one call share it.
struct SpreadMatrix {
  const float *from = nullptr;
  uint64_t call = 0;
  int64_t columns = 0;
  std::vector<float> values;
};
} // namespace

constexpr int64_t kStepFloats = 512; ///< rows that are a multiple of this apart share cache sets
constexpr int64_t kGapFloats = 16;   ///< a cache line

/// Whether to copy an operand of `k` rows first, for a result of `rows` by `columns`. On AVX2 the
/// library reads some columns of all rows in turn. If rows are a multiple of 2 KiB apart, the lines
/// of a column share few sets of the cache, and the product can take twice as long. A copy does not
/// pay below 32 rows or columns; far above 512 the library makes its own. On AVX-512 the library
/// considers how far rows are apart.
static bool isBetterSpread(int64_t ld, int64_t rows, int64_t columns, int64_t k) {
  constexpr int64_t mostFloats = 2 << 20;
  constexpr int64_t shortest = 64, fewest = 32, most = 512;
  static const bool isAvx2 = usesAvx2Kernels();
  int64_t smaller = std::min(rows, columns), larger = std::max(rows, columns);
  return isAvx2 && ld % kStepFloats == 0 && k >= shortest && smaller >= fewest && smaller <= most &&
         k * (larger + 2 * kGapFloats) <= mostFloats;
}

static BlasMatrix spreadRows(BlasMatrix matrix, int64_t rows, int64_t columns, uint64_t call,
                             SpreadMatrix &spread) {
  int64_t ld = columns + kGapFloats;
  if (ld % kStepFloats == 0)
    ld += kGapFloats;
  if (spread.call != call || spread.from != matrix.data || spread.columns != columns) {
    spread.call = 0; // until the copy is complete
    spread.values.resize(std::max(spread.values.size(), size_t(rows * ld)));
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(matrix.data + i * matrix.ld, columns, spread.values.data() + i * ld);
    spread.call = call;
    spread.from = matrix.data;
    spread.columns = columns;
  }
  return {spread.values.data(), ld};
}

std::pair<BlasMatrix, BlasMatrix> CpuMatmul::spreadOperands(BlasMatrix lhs, BlasMatrix rhs,
                                                            int64_t rows, int64_t columns,
                                                            uint64_t call) const {
  thread_local SpreadMatrix spreadLhs, spreadRhs;
  if (lhsBlas.transposed && isBetterSpread(lhs.ld, rows, columns, k))
    lhs = spreadRows(lhs, k, rows, call, spreadLhs);
  if (!rhsBlas.transposed && isBetterSpread(rhs.ld, rows, columns, k))
    rhs = spreadRows(rhs, k, columns, call, spreadRhs);
  return {lhs, rhs};
}

/// Fills the thread's cache of small blocks, so that the library gets the same memory in each call.
/// glibc cuts the ends off its aligned buffers. If the cache takes them, they are not joined with
/// the freed buffer, which is then too short for the next one: a thread held seven of each size.
static void fillCacheOfSmallBlocks() {
#ifdef __GLIBC__
  constexpr size_t smallest = 24, largest = 168, step = 16; // of ends at an alignment of 128 bytes
  constexpr size_t cached = 7;                              // of each size
  void *volatile blocks[cached]; // volatile: these calls have no other effect that compilers know
  for (size_t bytes = smallest; bytes <= largest; bytes += step) {
    for (void *volatile &block : blocks)
      block = std::malloc(bytes);
    for (void *volatile &block : blocks)
      std::free(block);
  }
#endif
}

void CpuMatmul::runSgemmPart(MatmulPointers<float> pointers, int64_t rowBegin, int64_t rowEnd,
                             int64_t columnBegin, int64_t columnEnd, uint64_t call) const {
  int64_t rows = rowEnd - rowBegin, columns = columnEnd - columnBegin;
  int64_t first = rowBegin * outStrides[0] + columnBegin * outStrides[1];
  const float *lhs = pointers.lhs + rowBegin * lhsStrides[0];
  const float *rhs = pointers.rhs + columnBegin * rhsStrides[1];
  float *out = pointers.out + first;
  // Write bias and residual first and accumulate onto them: saves one pass over the result.
  bool isAdded = pointers.bias || pointers.residual;
  float beta = isAdded ? 1 : 0;
  for (int64_t i = 0; isAdded && i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      int64_t at = i * outStrides[0] + j * outStrides[1];
      out[at] = (pointers.bias ? pointers.bias[columnBegin + j] : 0) +
                (pointers.residual ? pointers.residual[first + at] : 0);
    }
  constexpr int64_t largeProduct = 1 << 21; // takes a hundred times as long as filling the cache
  if (rows * columns * k >= largeProduct)
    fillCacheOfSmallBlocks();
  char lhsFlag = lhsBlas.transposed ? 'T' : 'N', rhsFlag = rhsBlas.transposed ? 'T' : 'N';
  dnnl_status_t status;
  if (!isAdded && isBetterSwapped(rows, columns)) {
    thread_local std::vector<float> scratch;
    scratch.resize(std::max(scratch.size(), size_t(rows * columns)));
    status = dnnl_sgemm('N', 'T', columns, rows, k, float(alpha), rhs, rhsBlas.ld, lhs, lhsBlas.ld,
                        0, scratch.data(), rows);
    transpose(scratch.data(), rows, out, outBlas.ld, rows, columns);
  } else if (!outBlas.transposed) {
    auto [left, right] = spreadOperands({lhs, lhsBlas.ld}, {rhs, rhsBlas.ld}, rows, columns, call);
    status = dnnl_sgemm(lhsFlag, rhsFlag, rows, columns, k, float(alpha), left.data, left.ld,
                        right.data, right.ld, beta, out, outBlas.ld);
  } else // out' = rhs' lhs'
    status =
        dnnl_sgemm(rhsBlas.transposed ? 'N' : 'T', lhsBlas.transposed ? 'N' : 'T', columns, rows, k,
                   float(alpha), rhs, rhsBlas.ld, lhs, lhsBlas.ld, beta, out, outBlas.ld);
  if (status != dnnl_success)
    throw Error(ErrorCode::Internal, "oneDNN's sgemm refused " + std::to_string(rows) + " x " +
                                         std::to_string(columns) + " x " + std::to_string(k) +
                                         " with status " + std::to_string(int(status)));
}

void CpuMatmul::runSgemm(ThreadPool &pool, const MatmulPointers<float> &pointers) const {
  // With fewer batches than threads, split each along its longer side, in multiples of the register
  // tile so that no part wastes lanes.
  constexpr int64_t rowTile = 32, columnTile = 64;
  int64_t threads = pool.getNumThreads();
  int64_t wanted = std::max<int64_t>(1, (threads + numBatches - 1) / numBatches);
  bool byRows = m >= n;
  int64_t extent = byRows ? m : n, tile = byRows ? rowTile : columnTile;
  int64_t part = ((extent + wanted - 1) / wanted + tile - 1) / tile * tile;
  int64_t parts = (extent + part - 1) / part;

  static std::atomic<uint64_t> calls = 0;
  uint64_t call = ++calls;
  pool.parallelFor(numBatches * parts, [&](int64_t task) {
    Offsets offsets = getOffsets(task / parts);
    int64_t begin = task % parts * part, end = std::min(begin + part, extent);
    runSgemmPart({pointers.lhs + offsets.lhs, pointers.rhs + offsets.rhs, pointers.bias,
                  pointers.residual ? pointers.residual + offsets.out : nullptr,
                  pointers.out + offsets.out},
                 byRows ? begin : 0, byRows ? end : m, byRows ? 0 : begin, byRows ? n : end, call);
  });
}

template <typename T>
void CpuMatmul::runLoops(ThreadPool &pool, const MatmulPointers<T> &pointers) const {
  // Integers wrap around, which is defined only for unsigned arithmetic.
  using Sum =
      std::conditional_t<std::is_integral_v<T>,
                         std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>,
                         T>;
  pool.parallelFor(numBatches * m, [&](int64_t task) {
    Offsets offsets = getOffsets(task / m);
    int64_t i = task % m;
    // If k is 0 the operands may be null.
    const T *lhsRow = k ? pointers.lhs + offsets.lhs + i * lhsStrides[0] : nullptr;
    int64_t row = offsets.out + i * outStrides[0];
    for (int64_t j = 0; j < n; ++j) {
      const T *column = k ? pointers.rhs + offsets.rhs + j * rhsStrides[1] : nullptr;
      Sum sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += Sum(lhsRow[p * lhsStrides[1]]) * Sum(column[p * rhsStrides[0]]);
      sum = Sum(T(alpha)) * sum;
      int64_t at = row + j * outStrides[1];
      if (pointers.residual)
        sum = Sum(sum + Sum(pointers.residual[at]));
      if (pointers.bias)
        sum = Sum(sum + Sum(pointers.bias[j]));
      pointers.out[at] = T(sum);
    }
  });
}

void CpuMatmul::runFloats(ThreadPool &pool, const MatmulPointers<float> &pointers) const {
  // BLAS does not write the result if k is 0.
  if (k == 0)
    return runLoops<float>(pool, pointers);
  if (!packed)
    return runSgemm(pool, pointers);
  packed->run(pool, pointers);
}

int64_t CpuMatmul::getReach(const std::vector<int64_t> &batch, const int64_t *strides, int64_t rows,
                            int64_t columns) const {
  if (rows == 0 || columns == 0)
    return 0;
  int64_t last = (rows - 1) * strides[0] + (columns - 1) * strides[1];
  for (size_t i = 0; i < batch.size(); ++i)
    last += (batchSizes[i] - 1) * batch[i];
  return last + 1;
}

/// Converts `count` consecutive elements of memory, including gaps between the matrix's elements.
template <typename Narrow>
static void widen(ThreadPool &pool, const uint16_t *from, int64_t count, std::vector<float> &to) {
  constexpr int64_t block = 1 << 14;
  if (int64_t(to.size()) < count)
    to.resize(size_t(count));
  pool.parallelFor((count + block - 1) / block, [&](int64_t task) {
    int64_t end = std::min(count, (task + 1) * block);
    for (int64_t i = task * block; i < end; ++i)
      to[size_t(i)] = Narrow::load(from[i]);
  });
}

template <typename Narrow>
void CpuMatmul::runNarrow(ThreadPool &pool, MatmulScratch &scratch, const MatmulOperands &operands,
                          void *out) const {
  auto read = [&](const void *from, int64_t count, std::vector<float> &to) -> const float * {
    if (!from)
      return nullptr;
    widen<Narrow>(pool, static_cast<const uint16_t *>(from), count, to);
    return to.data();
  };
  const float *lhs = read(operands.lhs, getReach(lhsBatch, lhsStrides, m, k), scratch.lhs),
              *rhs = read(operands.rhs, getReach(rhsBatch, rhsStrides, k, n), scratch.rhs);
  if (outType == DataType::F32)
    return runFloats(pool,
                     {lhs, rhs, static_cast<const float *>(operands.bias),
                      static_cast<const float *>(operands.residual), static_cast<float *>(out)});
  int64_t reach = getReach(outBatch, outStrides, m, n);
  if (int64_t(scratch.out.size()) < reach)
    scratch.out.resize(size_t(reach));
  runFloats(pool, {lhs, rhs, read(operands.bias, n, scratch.bias),
                   read(operands.residual, reach, scratch.residual), scratch.out.data()});
  auto *to = static_cast<uint16_t *>(out);
  pool.parallelFor(numBatches * m, [&](int64_t task) {
    int64_t row = getOffsets(task / m).out + task % m * outStrides[0];
    for (int64_t j = 0; j < n; ++j)
      to[row + j * outStrides[1]] = Narrow::store(scratch.out[size_t(row + j * outStrides[1])]);
  });
}

void CpuMatmul::run(ThreadPool &pool, MatmulScratch &scratch, const MatmulOperands &operands,
                    void *out) const {
  if (numBatches == 0 || m == 0 || n == 0)
    return;
  auto as = [&]<typename T>(T) {
    return MatmulPointers<T>{static_cast<const T *>(operands.lhs),
                             static_cast<const T *>(operands.rhs),
                             static_cast<const T *>(operands.bias),
                             static_cast<const T *>(operands.residual), static_cast<T *>(out)};
  };
  switch (type) {
  case DataType::F32:
    return runFloats(pool, as(float()));
  case DataType::F16:
    return runNarrow<Half>(pool, scratch, operands, out);
  case DataType::BF16:
    return runNarrow<BFloat>(pool, scratch, operands, out);
  case DataType::F64:
    return runLoops(pool, as(double()));
  case DataType::I32:
    return runLoops(pool, as(int32_t()));
  default:
    return runLoops(pool, as(int64_t()));
  }
}
