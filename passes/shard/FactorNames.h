//===- FactorNames.h - what strategy files call factors ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_FACTORNAMES_H
#define GRIDLOOM_PASSES_SHARD_FACTORNAMES_H

#include "dialects/dist/Sharding.h"

#include <string>
#include <vector>

namespace gridloom {

/// A name for each factor of the operation's rule: the dimension of its result that the factor is,
/// `d0`, or of an operand where no result has it, `in0.d1`; of several results' the later ones have
/// `out1.d0`. Of the factors that make up one dimension each has its number, major first: `d1.0`,
/// `d1.1`. A factor of no tensor is `f3`.
std::vector<std::string> getFactorNames(mlir::Operation *op, const dist::ShardingRule &rule);

/// Whether an operation like this of other sizes may have a factor of the name: which dimensions of
/// a reshape are made of several factors depends on sizes.
bool mayHaveFactor(mlir::Operation *op, llvm::StringRef name);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_FACTORNAMES_H
