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

/// The stages of a program's operations, which can be cut again while nothing else refers to the
/// copies that stages have of constants and weights. Training steps are not cut: they follow the
/// model that they train.
class StageAssignment {
public:
  /// `axis` is the one whose coordinate is the stage; without it in the mesh there is one stage.
  StageAssignment(mlir::ModuleOp module, mlir::StringAttr axis);

  int64_t getNumStages() const { return stages; }
  /// Whether no operation has been given a stage, so that all cuts are free to choose.
  bool isFree() const { return isAllFree; }
  /// The best cuts of the functions without given stages by the costs. Emits errors about functions
  /// that cannot be cut so.
  mlir::FailureOr<StageStarts> choose(const StageCosts &costs);
  /// Sets `dist.stage` on all operations, in place of what an earlier call set.
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
  llvm::SmallVector<mlir::func::FuncOp> free, given; ///< of stages
  llvm::SmallVector<mlir::func::FuncOp> steps;       ///< of training
  TrainStages::Given givenInSteps;
  /// Of floating operations, with what they were made from.
  llvm::SmallVector<std::pair<mlir::Operation *, mlir::Operation *>> copies;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STAGEASSIGNMENT_H
