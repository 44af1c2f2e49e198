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
#include <cstddef>
#include <mutex>
#include <string_view>
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
  memory::desc lhs, given, bias, out, scratch;
  dnnl::inner_product_forward primitive;
  memory packed;
};
} // namespace

struct CpuPackedMatmul::Parts {
  int64_t rows, outRow, rhsStep; // steps between the result's rows, and the weight's columns
  bool hasBias;
  std::vector<Part> parts;
  std::mutex packing;
  const float *packedFrom = nullptr;

  bool addPart(const MatmulProblem &problem, int64_t begin, int64_t columns);
  void pack(const float *rhs);
  void runPart(const Part &part, const MatmulPointers<float> &pointers) const;
};

static bool isFor(const MatmulProblem &problem) {
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

/// Adds some columns; returns false if oneDNN has no kernel of its own for them. It has for an
/// operand and a result whose rows follow each other; its loops for others take a thousand times as
/// long.
bool CpuPackedMatmul::Parts::addPart(const MatmulProblem &problem, int64_t begin, int64_t columns) {
  constexpr auto f32 = memory::data_type::f32;
  int64_t k = problem.sizes[2];
  Part part;
  part.column = begin;
  part.lhs = memory::desc({rows, k}, f32, memory::dims{problem.lhs[0], 1});
  part.given = memory::desc({columns, k}, f32, memory::dims{problem.rhs[1], problem.rhs[0]});
  if (hasBias)
    part.bias = memory::desc({columns}, f32, memory::dims{1});
  part.out = memory::desc({rows, columns}, f32, memory::dims{columns, 1});
  auto description = describe(part, memory::desc({columns, k}, f32, memory::format_tag::any),
                              problem.epilogue.residual);
  if (!std::string_view(description.impl_info_str()).starts_with("brg"))
    return false;
  part.scratch = description.scratchpad_desc();
  part.primitive = dnnl::inner_product_forward(description);
  part.packed = memory(description.weights_desc(), getEngine());
  parts.push_back(std::move(part));
  return true;
}

CpuPackedMatmul::CpuPackedMatmul() : parts(std::make_unique<Parts>()) {}

std::unique_ptr<CpuPackedMatmul> CpuPackedMatmul::create(const MatmulProblem &problem,
                                                         int64_t threads) {
  if (!isFor(problem))
    return nullptr;
  constexpr int64_t tile = 64; // columns that oneDNN computes together
  // A primitive is created for the number of oneDNN threads that run it: one, of the pool.
  OneLibraryThread one;
  int64_t n = problem.sizes[1], step = ((n + threads - 1) / threads + tile - 1) / tile * tile;
  std::unique_ptr<CpuPackedMatmul> made(new CpuPackedMatmul);
  Parts &parts = *made->parts;
  parts.rows = problem.sizes[0];
  parts.outRow = problem.out[0];
  parts.rhsStep = problem.rhs[1];
  parts.hasBias = problem.epilogue.bias;
  try {
    for (int64_t begin = 0; begin < n; begin += step)
      if (!parts.addPart(problem, begin, std::min(step, n - begin)))
        return nullptr;
  } catch (const dnnl::error &) {
    return nullptr;
  }
  return made;
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

static void copyRows(const float *from, int64_t fromRow, float *to, int64_t toRow, int64_t rows,
                     int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(from + i * fromRow, columns, to + i * toRow);
}

void CpuPackedMatmul::Parts::runPart(const Part &part,
                                     const MatmulPointers<float> &pointers) const {
  int64_t columns = onednn::getDims(part.out)[1];
  bool isInPlace = outRow == columns;
  size_t used = gridloom::alignTo(part.scratch.get_size(), onednn::kAlignment);
  auto *scratch =
      static_cast<std::byte *>(onednn::getScratch(used + (isInPlace ? 0 : part.out.get_size())));
  float *out = pointers.out + part.column;
  float *result = isInPlace ? out : reinterpret_cast<float *>(scratch + used);
  const float *residual = pointers.residual ? pointers.residual + part.column : nullptr;
  // The library adds to what is in the result's memory.
  if (residual && residual != result)
    copyRows(residual, outRow, result, columns, rows, columns);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, onednn::view(part.lhs, pointers.lhs)},
      {DNNL_ARG_WEIGHTS, part.packed},
      {DNNL_ARG_DST, onednn::view(part.out, result)},
      {DNNL_ARG_SCRATCHPAD, onednn::view(part.scratch, scratch)}};
  if (hasBias)
    arguments.emplace(DNNL_ARG_BIAS, onednn::view(part.bias, pointers.bias + part.column));
  part.primitive.execute(getStream(), arguments);
  getStream().wait();
  if (!isInPlace)
    copyRows(result, columns, out, outRow, rows, columns);
}

void CpuPackedMatmul::run(ThreadPool &pool, const MatmulPointers<float> &pointers) {
  onednn::guard("matmul", ErrorCode::Internal, [&] {
    parts->pack(pointers.rhs);
    pool.parallelFor(int64_t(parts->parts.size()),
                     [&](int64_t task) { parts->runPart(parts->parts[size_t(task)], pointers); });
  });
}
