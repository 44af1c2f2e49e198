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

/// The decisions of the shard phase about a program that has just left it: mesh and sections,
/// without the model's identity. The specialisation with the largest inputs fills the common
/// sections; the others' sections hold the differences. Repetition is folded into patterns.
StrategyFile collectStrategy(mlir::ModuleOp module);

/// A sharding's dimensions in the form of strategy files.
std::vector<DimSplit> getSplit(const dist::Sharding &sharding);

/// A sharding as strategy files write it: "[{data}, {model: 64}]".
std::string printSharding(const dist::Sharding &sharding);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STRATEGYWRITER_H
