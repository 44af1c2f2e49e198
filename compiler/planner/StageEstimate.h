//===- StageEstimate.h - memory of a stage's values -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_STAGEESTIMATE_H
#define GRIDLOOM_COMPILER_PLANNER_STAGEESTIMATE_H

#include "compiler/planner/DeviceSketch.h"

namespace gridloom {

/// Bytes of what a program computes.
struct Activations {
  int64_t arena = 0, registered = 0;
};

/// What a device of one stage computes in one run of the sketched function: values live from their
/// computation to their last use, in the order of the list schedule; kernels write over inputs
/// where they can. `estimateBody` gives the memory of the body of a loop or branch.
Activations estimateActivations(const DeviceSketch &sketch, int64_t stage, const dist::Mesh &mesh,
                                llvm::function_ref<Activations(mlir::func::FuncOp)> estimateBody);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_STAGEESTIMATE_H
