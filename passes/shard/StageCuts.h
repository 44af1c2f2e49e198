//===- StageCuts.h - cut points of pipeline stages --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_STAGECUTS_H
#define GRIDLOOM_PASSES_SHARD_STAGECUTS_H

#include "dialects/dist/Sharding.h"
#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <functional>

namespace gridloom {

/// Operations that every stage that reads them repeats, because that is cheaper than sending their
/// results.
bool isFloating(mlir::Operation *op);

/// An operation that reads a state or computes its next value.
struct StateUse {
  mlir::StringAttr state;
  mlir::Operation *op;
};

/// The uses that have to be in the stage that keeps the state; passing a state on from argument to
/// result is not one.
llvm::SmallVector<StateUse> getStateUses(mlir::func::FuncOp func);

/// Costs by which stages are balanced.
struct StageCosts {
  std::function<double(mlir::Operation *)> seconds; ///< of work
  std::function<double(mlir::Value)> bytes;         ///< to send
  bool occupiesSender = false; ///< a transfer keeps both stages busy, not the receiver alone
};

/// Costs without any splits; the mesh's other axes would reduce both.
StageCosts getUnsplitCosts(const dist::Mesh &mesh);

/// One function's operations by position, with work and what crosses each position, in seconds.
struct StageProfile {
  StageProfile(mlir::func::FuncOp func, const dist::Mesh &mesh, mlir::StringAttr stageAxis,
               const StageCosts &costs);

  /// The first and the last position that uses a state or weight.
  struct Span {
    size_t first, last;
  };
  double between(size_t from, size_t to) const { return work[to] - work[from]; }

  llvm::SmallVector<mlir::Operation *> anchored; ///< all but the floating ones
  llvm::SmallVector<double> work;                ///< prefix sums
  llvm::SmallVector<double> crossing;            ///< to send all that is alive before position i
  llvm::MapVector<mlir::StringAttr, Span> states, weights;
  bool occupiesSender; ///< as StageCosts
};

/// The position of each stage's first operation, by function.
using StageStarts = llvm::SmallVector<llvm::SmallVector<size_t>>;

/// Cuts all functions into `stages` parts, each with an operation of every function, so that all
/// uses of a state are in one stage, the same in all functions, and, if such cuts exist, all
/// functions read a weight in the same stages. Minimises the slowest stage relative to its
/// function's work, in the function where that is largest, then the bytes sent. Nullopt if the
/// states allow no such cut.
std::optional<StageStarts> chooseCuts(llvm::ArrayRef<StageProfile> profiles, size_t stages);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STAGECUTS_H
