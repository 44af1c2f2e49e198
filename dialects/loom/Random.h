//===- Random.h - random numbers by position --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_RANDOM_H
#define GRIDLOOM_DIALECTS_LOOM_RANDOM_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// What loom.random_bits gives at `index`, a word of Philox4x32-10, of which 62 bits count in
/// blocks of four.
uint32_t getRandomBits(uint64_t index, uint64_t seed, uint32_t stream, uint32_t iteration);

/// Random words of a tensor of `shape`, numbered in row-major order from 0, in iteration 0: equal
/// numbers wherever the tensor is cut. `stream` is below 2^32.
RandomBitsOp createRandomBits(mlir::OpBuilder &builder, mlir::Location loc,
                              llvm::ArrayRef<int64_t> shape, int64_t seed, int64_t stream);

/// Makes `iteration`, an i64 without dimensions, the iteration of an operation that has none yet.
/// It must be there where the operation is.
void setIteration(RandomBitsOp op, mlir::Value iteration);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_RANDOM_H
