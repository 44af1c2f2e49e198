//===- StrategyWriter.h - a program's shardings as a strategy file -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_STRATEGYWRITER_H
#define GRIDLOOM_PASSES_SHARD_STRATEGYWRITER_H

#include "dialects/dist/Sharding.h"
#include "passes/shard/StrategyFile.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom {

/// What the shard phase decided about a program that it has just left, and nothing else: its
/// sections, the mesh, and no identity of the model. What the specialisation with the largest
/// inputs has is common; the others' sections hold what differs. What repeats is folded into
/// patterns.
StrategyFile collectStrategy(mlir::ModuleOp module);

/// A sharding's dimensions as strategy files have them.
std::vector<DimSplit> getSplit(const dist::Sharding &sharding);

/// A sharding as strategy files write it: "[{data}, {model: 64}]".
std::string printSharding(const dist::Sharding &sharding);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STRATEGYWRITER_H
