//===- MatmulLayout.cpp - strides to column-major operands ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/MatmulLayout.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <limits>

namespace gridloom::rt {

std::string describeMatmul(const MatmulProblem &problem) {
  size_t rank = problem.sizes.size();
  if (rank < 3)
    return "matmul of " + std::to_string(rank) + " sizes";
  int64_t m = problem.sizes[rank - 3];
  int64_t n = problem.sizes[rank - 2];
  int64_t k = problem.sizes[rank - 1];
  std::string batch;
  for (int64_t size : problem.sizes.first(rank - 3))
    batch += std::to_string(size) + ", ";
  return "matmul of [" + batch + std::to_string(m) + ", " + std::to_string(k) + "] x [" + batch +
         std::to_string(k) + ", " + std::to_string(n) + "]";
}

static Error makeError(const MatmulProblem &problem, const std::string &reason) {
  return Error(ErrorCode::InvalidPlan, describeMatmul(problem) + " " + std::string(reason));
}

/// The operand with `strides`, transposed if `transpose`, as a matrix of rows x columns.
static ColumnMajor describeOperand(const MatmulProblem &problem, const char *what,
                                   std::span<const int64_t> strides, bool transpose, int64_t rows,
                                   int64_t columns) {
  int64_t outer = strides[strides.size() - 2];
  int64_t inner = strides.back();
  int64_t rowStride = transpose ? inner : outer;
  int64_t columnStride = transpose ? outer : inner;
  ColumnMajor matrix;
  // The stride of a dimension of size 1 does not matter.
  if (rowStride == 1 || rows == 1)
    matrix = {rows, columns, columnStride, false, 0};
  else if (columnStride == 1 || columns == 1)
    matrix = {columns, rows, rowStride, true, 0};
  else
    throw makeError(problem, std::string("has an ") + what + " with strides " +
                                 std::to_string(outer) + " and " + std::to_string(inner) +
                                 ": cuBLASLt needs one of them to be 1");
  // A vector fits both forms; libraries handle the contiguous one best.
  if (!matrix.transposed && rows == 1 && columnStride == 1 && columns > 1)
    matrix = {columns, rows, std::max(rowStride, columns), true, 0};
  if (matrix.columns == 1)
    matrix.leading = std::max(matrix.leading, matrix.rows);
  if (matrix.leading < matrix.rows)
    throw makeError(problem, std::string("has an ") + what +
                                 " whose columns overlap: " + std::to_string(matrix.leading) +
                                 " elements apart, " + std::to_string(matrix.rows) + " long");
  return matrix;
}

namespace {
struct BatchDim {
  int64_t size, lhs, rhs, out;
};
} // namespace

/// The largest batch of a call: cuBLASLt's is an int32_t.
static constexpr int64_t mostBatch = std::numeric_limits<int32_t>::max();

/// The batch dimensions, merged where they are contiguous in all three operands.
static std::vector<BatchDim> mergeBatch(const MatmulProblem &problem) {
  std::vector<BatchDim> dims;
  for (size_t i = 0; i + 3 < problem.sizes.size(); ++i) {
    BatchDim dim{problem.sizes[i], problem.lhs[i], problem.rhs[i], problem.out[i]};
    if (dim.size == 1)
      continue;
    auto continues = [&](int64_t outer, int64_t inner) { return outer == inner * dim.size; };
    if (!dims.empty() && dims.back().size <= mostBatch / dim.size &&
        continues(dims.back().lhs, dim.lhs) && continues(dims.back().rhs, dim.rhs) &&
        continues(dims.back().out, dim.out)) {
      dim.size *= dims.back().size;
      dims.back() = dim;
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

/// The largest batch dimension becomes the calls' batch; the others become one call per index.
static void layOutBatch(MatmulLayout &layout, std::vector<BatchDim> dims) {
  layout.calls.assign(1, {});
  if (dims.empty())
    return;
  auto largest = std::max_element(dims.begin(), dims.end(),
                                  [](const auto &x, const auto &y) { return x.size < y.size; });
  layout.batch = largest->size;
  layout.a.batchStride = layout.lhsFirst ? largest->lhs : largest->rhs;
  layout.b.batchStride = layout.lhsFirst ? largest->rhs : largest->lhs;
  layout.d.batchStride = largest->out;
  dims.erase(largest);
  for (const BatchDim &dim : dims) {
    std::vector<MatmulLayout::Offset> calls;
    for (const MatmulLayout::Offset &call : layout.calls)
      for (int64_t i = 0; i < dim.size; ++i)
        calls.push_back({call.lhs + i * dim.lhs, call.rhs + i * dim.rhs, call.out + i * dim.out});
    layout.calls = std::move(calls);
  }
}

MatmulLayout layOutMatmul(const MatmulProblem &problem) {
  size_t rank = problem.sizes.size();
  if (rank < 3 || problem.lhs.size() != rank - 1 || problem.rhs.size() != rank - 1 ||
      problem.out.size() != rank - 1)
    throw makeError(problem, "has operands of ranks " + std::to_string(problem.lhs.size()) + ", " +
                                 std::to_string(problem.rhs.size()) + " and " +
                                 std::to_string(problem.out.size()) +
                                 "; all must be one less than the number of sizes");
  for (int64_t size : problem.sizes)
    if (size <= 0)
      throw makeError(problem, "has an empty dimension");

  size_t batch = rank - 3;
  int64_t m = problem.sizes[batch];
  int64_t n = problem.sizes[batch + 1];
  int64_t k = problem.sizes[batch + 2];
  auto outer = [&](std::span<const int64_t> strides) { return strides[batch]; };
  auto inner = [&](std::span<const int64_t> strides) { return strides[batch + 1]; };

  MatmulLayout layout;
  bool rowMajor = inner(problem.out) == 1 || n == 1;
  layout.lhsFirst = !rowMajor;
  if (rowMajor) {
    layout.a = describeOperand(problem, "rhs", problem.rhs, true, n, k);
    layout.b = describeOperand(problem, "lhs", problem.lhs, true, k, m);
    // Without describeOperand: an output is never transposed, even if it is a single row or column.
    layout.d = {n, m, m == 1 ? std::max(n, outer(problem.out)) : outer(problem.out), false, 0};
  } else {
    if (problem.epilogue.bias)
      throw makeError(problem, "has a bias and an output whose columns are contiguous: cuBLASLt "
                               "adds a bias to rows");
    layout.a = describeOperand(problem, "lhs", problem.lhs, false, m, k);
    layout.b = describeOperand(problem, "rhs", problem.rhs, false, k, n);
    layout.d = {m, n, inner(problem.out), false, 0};
    if (outer(problem.out) != 1 && m != 1)
      throw makeError(problem, "has an output with strides " + std::to_string(outer(problem.out)) +
                                   " and " + std::to_string(inner(problem.out)) +
                                   ": cuBLASLt needs one of them to be 1");
  }
  if (layout.d.leading < layout.d.rows)
    throw makeError(problem,
                    "has an output whose rows overlap: " + std::to_string(layout.d.leading) +
                        " elements apart, " + std::to_string(layout.d.rows) + " long");
  layOutBatch(layout, mergeBatch(problem));
  if (layout.batch > mostBatch)
    throw makeError(problem, "has a batch of " + std::to_string(layout.batch) +
                                 ", cuBLASLt takes at most " + std::to_string(mostBatch));
  return layout;
}

} // namespace gridloom::rt
