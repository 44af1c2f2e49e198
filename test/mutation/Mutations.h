//===- Mutations.h - faults to plant in programs ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_MUTATION_MUTATIONS_H
#define GRIDLOOM_TEST_MUTATION_MUTATIONS_H

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <string>
#include <vector>

namespace gridloom::testing {

/// One fault that could be planted in a module. Lists made of equal modules are equal, so that the
/// n-th fault of a module can be planted in its clone.
struct Mutation {
  std::string kind;  ///< for counts: "dropped collective", "wrong axis", ...
  std::string where; ///< the operation and its ONNX node
  /// Why the program computes the same with it, where that can be seen at once; else empty.
  std::string equivalent;
  std::function<void()> plant;
};

/// Faults of programs on tensors, after the phases partition, communicate and fuse: communication,
/// masks, halos, shardings, library calls.
std::vector<Mutation> findTensorMutations(mlir::ModuleOp module);

/// Faults of programs on buffers, after the phase allocate: events, streams, buffers, groups.
std::vector<Mutation> findPlanMutations(mlir::ModuleOp module);

/// Faults of training steps after the phase communicate: reductions, divisors, masks of padding,
/// gradients of another step or part of the batch, states that are not kept or differ between
/// devices.
std::vector<Mutation> findTrainingMutations(mlir::ModuleOp module);

/// True for what depends on where the device is.
bool dependsOnPlace(mlir::Value value);

/// True when operands i and j of the kernel that `op` calls may change places.
bool areInterchangeable(mlir::Operation *op, mlir::FlatSymbolRefAttr kernel, unsigned i,
                        unsigned j);

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_MUTATION_MUTATIONS_H
