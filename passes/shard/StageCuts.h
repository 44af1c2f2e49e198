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

/// Operations that belong to whoever reads them: repeating them in every stage is cheaper than
/// sending what they make.
bool isFloating(mlir::Operation *op);

/// An operation that reads a state, or makes what is written to it.
struct StateUse {
  mlir::StringAttr state;
  mlir::Operation *op;
};

/// All uses of a function's states that are where the state lies; passing one on from argument to
/// result is none.
llvm::SmallVector<StateUse> getStateUses(mlir::func::FuncOp func);

/// What stages are balanced by.
struct StageCosts {
  std::function<double(mlir::Operation *)> seconds; ///< of work
  std::function<double(mlir::Value)> bytes;         ///< to send
  bool occupiesSender = false; ///< a transfer keeps both stages busy, not the receiver alone
};

/// Those of a device that has all of it: what else the mesh splits shortens both.
StageCosts getUnsplitCosts(const dist::Mesh &mesh);

/// One function's operations by position, with work and what crosses each position, in seconds.
struct StageProfile {
  StageProfile(mlir::func::FuncOp func, const dist::Mesh &mesh, mlir::StringAttr stageAxis,
               const StageCosts &costs);

  /// The first and the last position that reads or writes something.
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

/// The first operation of each stage, by function.
using StageStarts = llvm::SmallVector<llvm::SmallVector<size_t>>;

/// Cuts all functions into `stages` parts, each with an operation of every function, so that
/// everything that reads or writes a state is in one stage, the same in all functions, and a weight
/// is read in the same stages by all functions where such cuts exist. Minimises the slowest stage
/// of the function that suffers most, relative to its own work, then the bytes sent. None when the
/// states allow no such cut.
std::optional<StageStarts> chooseCuts(llvm::ArrayRef<StageProfile> profiles, size_t stages);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STAGECUTS_H
