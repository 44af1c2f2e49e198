//===- CpuPackedMatmul.cpp - products with a packed weight ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuPackedMatmul.h"

#include "runtime/device/cpu/CpuMatmul.h"
#include "runtime/device/cpu/OneDnn.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "support/AlignTo.h"

#include <algorithm>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

using namespace gridloom::rt;
using dnnl::memory;
using onednn::getEngine;
using onednn::getStream;

namespace {
/// A product with some columns of the weight.
struct Part {
  int64_t column; // the first
  int64_t columns;
  memory::desc lhs, given, bias, out, scratch; // lhs and out have no room between rows
  dnnl::inner_product_forward primitive;
  memory packed;
};
} // namespace

struct CpuPackedMatmul::Parts {
  int64_t rows, depth; // of the left operand
  /// Steps between the left operand's rows, the result's, and the weight's columns.
  int64_t lhsRow, outRow, rhsStep;
  bool hasBias;
  std::vector<Part> parts;
  std::mutex packing;
  const float *packedFrom = nullptr;

  void pack(const float *rhs);
  void runPart(const Part &part, const MatmulPointers<float> &pointers) const;
};

bool CpuPackedMatmul::isFor(const MatmulProblem &problem) {
  // What is not in the processor's cache is read as fast by sgemm, and more rows hide its packing.
  constexpr int64_t narrowest = 64, fewest = 2, most = 32, largest = 16 << 20; // bytes
  if (!problem.mayPack || problem.type != DataType::F32 || problem.alpha != 1 ||
      problem.getOutType() != DataType::F32 || problem.sizes.size() != 3)
    return false;
  auto [m, n, k] = std::tuple(problem.sizes[0], problem.sizes[1], problem.sizes[2]);
  return m >= fewest && m <= most && n >= narrowest && k >= narrowest &&
         k <= largest / int64_t(sizeof(float)) / n && problem.lhs[1] == 1 && problem.out[1] == 1;
}

static dnnl::inner_product_forward::primitive_desc
describe(const Part &part, const memory::desc &weight, bool hasResidual) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops epilogue;
  if (hasResidual)
    epilogue.append_sum();
  attributes.set_post_ops(epilogue);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
  return {getEngine(), kind, part.lhs, weight, part.bias, part.out, attributes};
#else
  return {{kind, part.lhs, weight, part.bias, part.out}, attributes, getEngine()};
#endif
}

CpuPackedMatmul::CpuPackedMatmul(const MatmulProblem &problem, int64_t threads)
    : parts(std::make_unique<Parts>()) {
  constexpr auto f32 = memory::data_type::f32;
  constexpr int64_t tile = 64; // columns that oneDNN computes together
  // A primitive is created for the number of oneDNN threads that run it: one, of the pool.
  OneLibraryThread one;
  int64_t m = problem.sizes[0], n = problem.sizes[1], k = problem.sizes[2];
  int64_t step = ((n + threads - 1) / threads + tile - 1) / tile * tile;
  parts->rows = m;
  parts->depth = k;
  parts->lhsRow = problem.lhs[0];
  parts->outRow = problem.out[0];
  parts->rhsStep = problem.rhs[1];
  parts->hasBias = problem.epilogue.bias;
  onednn::guard("matmul", ErrorCode::Unavailable, [&] {
    for (int64_t begin = 0; begin < n; begin += step) {
      int64_t columns = std::min(step, n - begin);
      Part part;
      part.column = begin;
      part.columns = columns;
      // With other steps oneDNN has a reference implementation alone, a thousand times as slow.
      part.lhs = memory::desc({m, k}, f32, memory::dims{k, 1});
      part.given = memory::desc({columns, k}, f32, memory::dims{problem.rhs[1], problem.rhs[0]});
      if (parts->hasBias)
        part.bias = memory::desc({columns}, f32, memory::dims{1});
      part.out = memory::desc({m, columns}, f32, memory::dims{columns, 1});
      auto description = describe(part, memory::desc({columns, k}, f32, memory::format_tag::any),
                                  problem.epilogue.residual);
      part.scratch = description.scratchpad_desc();
      part.primitive = dnnl::inner_product_forward(description);
      part.packed = memory(description.weights_desc(), getEngine());
      parts->parts.push_back(std::move(part));
    }
  });
}

CpuPackedMatmul::~CpuPackedMatmul() = default;

void CpuPackedMatmul::forgetWeights() {
  std::lock_guard lock(parts->packing);
  parts->packedFrom = nullptr;
}

void CpuPackedMatmul::Parts::pack(const float *rhs) {
  std::lock_guard lock(packing);
  if (packedFrom == rhs)
    return;
  for (Part &part : parts) {
    memory from = onednn::view(part.given, rhs + part.column * rhsStep);
    dnnl::reorder(from, part.packed).execute(getStream(), from, part.packed);
    getStream().wait();
  }
  packedFrom = rhs;
}

static void copyRows(const float *from, int64_t fromStep, float *to, int64_t toStep, int64_t rows,
                     int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(from + i * fromStep, columns, to + i * toStep);
}

void CpuPackedMatmul::Parts::runPart(const Part &part,
                                     const MatmulPointers<float> &pointers) const {
  bool copiesLhs = lhsRow != depth, copiesOut = outRow != part.columns;
  auto getRoom = [](bool isCopied, const memory::desc &description) {
    return isCopied ? alignTo(description.get_size(), onednn::kAlignment) : 0;
  };
  size_t lhsRoom = getRoom(copiesLhs, part.lhs), outRoom = getRoom(copiesOut, part.out);
  auto *scratch =
      static_cast<std::byte *>(onednn::getScratch(lhsRoom + outRoom + part.scratch.get_size()));
  const float *lhs = pointers.lhs;
  if (copiesLhs) {
    auto *copy = reinterpret_cast<float *>(scratch);
    copyRows(lhs, lhsRow, copy, depth, rows, depth);
    lhs = copy;
  }
  float *place = pointers.out + part.column, *out = place;
  if (copiesOut)
    out = reinterpret_cast<float *>(scratch + lhsRoom);
  // The library adds to what is in the result's memory.
  if (pointers.residual && (copiesOut || pointers.residual != pointers.out))
    copyRows(pointers.residual + part.column, outRow, out, part.columns, rows, part.columns);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, onednn::view(part.lhs, lhs)},
      {DNNL_ARG_WEIGHTS, part.packed},
      {DNNL_ARG_DST, onednn::view(part.out, out)},
      {DNNL_ARG_SCRATCHPAD, onednn::view(part.scratch, scratch + lhsRoom + outRoom)}};
  if (hasBias)
    arguments.emplace(DNNL_ARG_BIAS, onednn::view(part.bias, pointers.bias + part.column));
  part.primitive.execute(getStream(), arguments);
  getStream().wait();
  if (copiesOut)
    copyRows(out, part.columns, place, outRow, rows, part.columns);
}

void CpuPackedMatmul::run(ThreadPool &pool, const MatmulPointers<float> &pointers) {
  std::mutex mutex;
  std::exception_ptr failure;
  onednn::guard("matmul", ErrorCode::Internal, [&] {
    parts->pack(pointers.rhs);
    pool.parallelFor(int64_t(parts->parts.size()), [&](int64_t task) {
      try {
        parts->runPart(parts->parts[size_t(task)], pointers);
      } catch (...) {
        std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
    if (failure)
      std::rethrow_exception(failure);
  });
}
