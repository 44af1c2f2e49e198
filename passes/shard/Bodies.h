//===- Bodies.h - shardings of loops' and branches' bodies ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A body's arguments and results are split as the operation's tensors are: a carried value has one
// sharding before, in and after its loop. Shardings grow into bodies and out of them again; where
// the two sides disagree in the end the operation's side holds, and the body reshards.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_BODIES_H
#define GRIDLOOM_PASSES_SHARD_BODIES_H

#include "passes/shard/Propagation.h"

namespace gridloom {

/// A body with its propagation.
struct BodyState {
  mlir::func::FuncOp body;
  Propagation state;
};

/// Lets shardings grow through all that `function` runs, until nothing changes in it or in them.
/// Returns the bodies, outer before inner.
std::vector<BodyState> growThroughBodies(Propagation &state, mlir::func::FuncOp function);

/// Declares the shardings of the arguments and results of the bodies `function` runs itself, as
/// `state`, which is complete, has them.
void declareBodies(const Propagation &state, mlir::func::FuncOp function);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_BODIES_H
