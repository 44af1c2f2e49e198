//===- TrainStages.h - pipeline stages of training steps --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_TRAINSTAGES_H
#define GRIDLOOM_PASSES_SHARD_TRAINSTAGES_H

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace gridloom {

/// Assigns stages to training steps from those of the model that they train. An operation of a
/// node, and those of its derivative, go to the node's stage, where the saved values and the weight
/// are. Users of a state go to the state's stage: updates are where the weight is read. Scalars,
/// such as the norm of the gradients, go from stage to stage. Values of the backward part flow to
/// earlier stages.
class TrainStages {
public:
  /// Operations with given stages.
  using Given = llvm::DenseMap<mlir::Operation *, int64_t>;
  using Owners = llvm::DenseMap<mlir::StringAttr, int64_t>;

  /// `model`: the functions whose operations have stages, the model and its evaluation.
  TrainStages(llvm::ArrayRef<mlir::func::FuncOp> model, int64_t stages);

  /// Sets `dist.stage` on a training step's operations, except floating ones. Operations in `given`
  /// keep their stage.
  void place(mlir::func::FuncOp step, const Given &given);
  /// The stage that keeps each state of the model and of the placed steps.
  const Owners &getOwners() const { return owners; }

private:
  friend class StepPlacer;
  struct Range {
    int64_t first, last;
  };
  llvm::StringMap<Range> nodes; ///< the stages of each node of the model
  Owners owners;
  int64_t stages;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_TRAINSTAGES_H
