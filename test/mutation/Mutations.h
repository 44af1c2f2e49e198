//===- Mutations.h - faults to plant in programs --------------------------===//
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

/// A fault that can be planted in a module. Equal modules give equal lists, so that the n-th fault
/// of a module can be planted in its clone.
struct Mutation {
  std::string kind;  ///< for counts: "dropped collective", "wrong axis", ...
  std::string where; ///< the operation and its ONNX node
  /// Why the fault is obviously harmless; else empty.
  std::string equivalent;
  std::function<void()> plant;
};

/// Faults of programs on tensors, after the phases partition, communicate and fuse: communication,
/// masks, halos, shardings, library calls.
std::vector<Mutation> findTensorMutations(mlir::ModuleOp module);

/// Faults of programs on buffers, after the allocate phase: events, streams, buffers, groups.
std::vector<Mutation> findPlanMutations(mlir::ModuleOp module);

/// Faults of training steps after the communicate phase: reductions, divisors, masks of padding,
/// gradients of another step or micro-batch, states that are not kept or that differ between
/// devices.
std::vector<Mutation> findTrainingMutations(mlir::ModuleOp module);

/// Whether a value depends on the device's position in the mesh.
bool dependsOnPlace(mlir::Value value);

/// Whether operands i and j of the kernel that `op` calls may be swapped.
bool areInterchangeable(mlir::Operation *op, mlir::FlatSymbolRefAttr kernel, unsigned i,
                        unsigned j);

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_MUTATION_MUTATIONS_H
