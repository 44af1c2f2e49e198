//===- LaneSort.h - sorting inside a kernel ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_CPU_LANESORT_H
#define GRIDLOOM_COMPILER_CODEGEN_CPU_LANESORT_H

#include "compiler/codegen/SortWords.h"

namespace gridloom::codegen {

/// Makes the first `count` words of `memory` a heap with the largest in front.
void emitHeapify(LaneBuilder &b, mlir::Value memory, int64_t count);
/// Replaces the heap's largest word by `word` if that is smaller.
void emitOffer(LaneBuilder &b, mlir::Value memory, int64_t count, mlir::Value word);
/// Sorts the first `count` words of `memory`, which has room for twice as many. Returns where the
/// result begins, 0 or `count`.
mlir::Value emitMergeSort(LaneBuilder &b, mlir::Value memory, int64_t count);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_CPU_LANESORT_H
