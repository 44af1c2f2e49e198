//===- FactorNames.h - names of factors in strategy files -------*- C++ -*-===//
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

/// Names each factor of the operation's rule after the dimension that it is: of a result, `d0`, or
/// if no result has it of an operand, `in0.d1`. Later results have `out1.d0`. Several factors of
/// one dimension are numbered, major first: `d1.0`, `d1.1`. A factor of no tensor is `f3`.
std::vector<std::string> getFactorNames(mlir::Operation *op, const dist::ShardingRule &rule);

/// Whether the same operation at other sizes may have a factor of this name: sizes decide which
/// dimensions of a reshape consist of several factors.
bool mayHaveFactor(mlir::Operation *op, llvm::StringRef name);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_FACTORNAMES_H
