//===- Random.h - random numbers by position --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_RANDOM_H
#define GRIDLOOM_DIALECTS_LOOM_RANDOM_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// The result of loom.random_bits at `index`, of which 62 bits count: a word of Philox4x32-10,
/// whose blocks have four words.
uint32_t getRandomBits(uint64_t index, uint64_t seed, uint32_t stream, uint32_t iteration);

/// Random words of a tensor of `shape`, numbered in row-major order from 0, in iteration 0. Words
/// do not depend on how the tensor is cut. `stream` is below 2^32.
RandomBitsOp createRandomBits(mlir::OpBuilder &builder, mlir::Location loc,
                              llvm::ArrayRef<int64_t> shape, int64_t seed, int64_t stream);

/// Sets the iteration of an operation that has none yet to `iteration`, an i64 of rank 0 that must
/// dominate the operation.
void setIteration(RandomBitsOp op, mlir::Value iteration);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_RANDOM_H
