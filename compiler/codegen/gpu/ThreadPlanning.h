//===- ThreadPlanning.h - helpers of thread plans ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_THREADPLANNING_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_THREADPLANNING_H

#include "compiler/codegen/BodyEmitter.h"
#include "compiler/codegen/gpu/ThreadPlan.h"

#include "llvm/Support/MathExtras.h"

namespace gridloom::codegen {

/// Bytes of the widest access of a thread.
inline constexpr int64_t kAccess = 16;
/// Most blocks along y or z.
inline constexpr int64_t kMaxMinorGrid = 65535;

/// Bytes of shared memory that every block may have.
inline constexpr int64_t kSharedLimit = 48 << 10;

inline bool dependsOn(const Node &node, const Loop &loop) {
  return llvm::any_of(node.free, [&](AtomId atom) { return loop.contains(atom); });
}

inline int64_t ceilDiv(int64_t count, int64_t size) {
  return static_cast<int64_t>(llvm::divideCeil(count, size));
}

inline int64_t bytesOf(mlir::Type element) {
  return memoryType(element).getIntOrFloatBitWidth() / 8;
}

/// The largest of width, width / 2, ... that divides `extent`.
inline int64_t largestDividing(int64_t width, int64_t extent) {
  while (extent % width != 0)
    width /= 2;
  return width;
}

/// The widest vectors along `loop`, up to `width` elements, that all loads and, with `isOutput`,
/// all stores allow. They need not divide its extent.
int64_t fitWidth(const Body &body, const Loop &loop, bool isOutput, int64_t width);

/// Plans a nest whose outputs are sums of products of a few rows and a matrix, and which is alone
/// in its kernel; nothing for others.
std::optional<ThreadPlan> planProduct(const Nest &nest, int64_t processors);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_THREADPLANNING_H
