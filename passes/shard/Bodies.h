//===- Bodies.h - shardings of loops' and branches' bodies ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A body's arguments and results are split like the operation's tensors: a carried value has the
// same sharding before, inside and after its loop. Shardings propagate into bodies and back out;
// where the two sides disagree at the end, the operation's sharding wins and the body reshards.
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

/// Propagates shardings through `function` and all bodies it runs, to a fixpoint. Returns the
/// bodies, outer before inner.
std::vector<BodyState> growThroughBodies(Propagation &state, mlir::func::FuncOp function);

/// Sets the shardings of the arguments and results of the bodies that `function` itself runs, from
/// the completed `state`.
void declareBodies(const Propagation &state, mlir::func::FuncOp function);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_BODIES_H
