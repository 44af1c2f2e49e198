//===- SplitBound.h - lower bound on the time of any splits ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITBOUND_H
#define GRIDLOOM_PASSES_SHARD_SPLITBOUND_H

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <optional>

namespace gridloom {

/// A lower bound in seconds on the program's time on the module's mesh, without stages and memory
/// limit, for any splits of its operations and values over `axes`. Prices are the search's, except
/// that a copy that cuts out a device's part takes at most a launch. The module is as addSeedPasses
/// leaves it. Nullopt if an operation cannot be split, if the cost tables exceed a search's limit,
/// or if `isOver`, which may be null, ends the search.
std::optional<double> boundSplits(mlir::ModuleOp module, llvm::ArrayRef<mlir::StringAttr> axes,
                                  const std::function<bool()> &isOver);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITBOUND_H
