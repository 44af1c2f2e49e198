//===- SplitBound.h - what no splits on a mesh go below ----------*- C++ -*-===//
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

/// Seconds that the program takes at least on the module's mesh, without stages, however its
/// operations and values are split over the axes, by the prices of the search but for copies that
/// cut out a device's part, and without a limit of memory. The module is as the seeds leave it
/// (addSeedPasses). Nothing where an operation cannot be split, or where tables of costs would take
/// more than a search may have, nor where `isOver`, which may be null, ends the search.
std::optional<double> boundSplits(mlir::ModuleOp module, llvm::ArrayRef<mlir::StringAttr> axes,
                                  const std::function<bool()> &isOver);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITBOUND_H
