//===- StageAssignment.h - the stage of every operation ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_STAGEASSIGNMENT_H
#define GRIDLOOM_PASSES_SHARD_STAGEASSIGNMENT_H

#include "passes/shard/StageCuts.h"
#include "passes/shard/TrainStages.h"

namespace gridloom {

/// Assigns the stages of a program's operations. They can be cut again as long as nothing else
/// refers to the per-stage copies of constants and weights. Training steps are not cut: they follow
/// the model that they train.
class StageAssignment {
public:
  /// A device's stage is its coordinate on `axis`; a mesh without it has one stage.
  StageAssignment(mlir::ModuleOp module, mlir::StringAttr axis);

  int64_t getNumStages() const { return stages; }
  /// Whether no operation has been given a stage, so that all cuts are free to choose.
  bool isFree() const { return isAllFree; }
  /// Chooses the best cuts by `costs` for the functions without given stages. Emits errors about
  /// functions that cannot be cut.
  mlir::FailureOr<StageStarts> choose(const StageCosts &costs);
  /// Sets `dist.stage` on all operations, replacing what an earlier call set.
  mlir::LogicalResult apply(const StageStarts &starts);

private:
  mlir::LogicalResult requireOperations(llvm::ArrayRef<mlir::Operation *> anchored);
  bool leavesIdle(llvm::ArrayRef<StageProfile> profiles, const StageStarts &starts) const;
  void reportNoCut(llvm::ArrayRef<StageProfile> profiles, llvm::StringRef why);
  mlir::LogicalResult requireOneStage();
  void settle(mlir::func::FuncOp func);
  void placeStates(TrainStages::Owners owners);
  void setStage(mlir::Operation *op, int64_t stage);

  mlir::ModuleOp module;
  mlir::StringAttr axis;
  int64_t stages = 1;
  bool isAllFree = true;
  llvm::SmallVector<mlir::func::FuncOp> free, given; ///< without, and with, given stages
  llvm::SmallVector<mlir::func::FuncOp> steps;       ///< training steps
  TrainStages::Given givenInSteps;
  /// Copies of floating operations, with their originals.
  llvm::SmallVector<std::pair<mlir::Operation *, mlir::Operation *>> copies;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STAGEASSIGNMENT_H
