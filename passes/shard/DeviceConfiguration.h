//===- DeviceConfiguration.h - a model's own device annotations -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// ONNX says of a tensor into how many shards each axis is cut and which devices hold each shard
// (NodeDeviceConfigurationProto, IR version 11). The importer puts that on the module as it stands;
// here it is read as mesh axes.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_DEVICECONFIGURATION_H
#define GRIDLOOM_PASSES_SHARD_DEVICECONFIGURATION_H

#include "dialects/dist/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace gridloom {

/// Module attribute with what the model's device configuration says. A dictionary:
///
///     devices = 4, mesh = "data=2,model=2" and stage_axis = "pipe" (if known), stages = 2,
///     storage = "w=stored[{data},{}]" (lines, where there are such),
///     values = [{name = "t", node = "N", what = "result", index = 0, count = 1,
///                readers = ["M"], output, dims = [array<i64: axis, size, parts, granule>],
///                groups = [array<i64: 0, 2>, array<i64: 1, 3>]}],
///     nodes = [{node = "N", stage = 0}]
///
/// `what` is input, weight or result; `size` is 0 where it is not said; `groups` are the devices of
/// each shard, shards counted row-major over `dims`.
inline constexpr llvm::StringLiteral kAnnotations = "loom.annotations";

/// A weight's or state's name in a line of `storage`: "\*" is a star, which alone would make it a
/// pattern, "\n" a new line and "\\" a backslash.
std::string escapeStored(llvm::StringRef name);
/// The line as --shard takes it; `isPattern` where it has a star alone.
std::string unescapeStored(llvm::StringRef line, bool &isPattern);

/// A result of a node, identified such that its value can be found after simplification.
struct NodeResult {
  std::string node;
  unsigned index = 0, count = 1;             ///< among the node's results that are used
  llvm::SmallVector<std::string, 2> readers; ///< names of the nodes that read it
  bool isOutput = false;                     ///< of the model
};

/// The values of a function by ONNX node. Operations made of several nodes hold the results of
/// those nodes that others read.
class NodeValues {
public:
  explicit NodeValues(mlir::func::FuncOp func);

  /// The value; null when the program has no value for the result any more.
  mlir::Value find(const NodeResult &result) const;
  /// The operations made of a node, in order.
  llvm::ArrayRef<mlir::Operation *> getOperations(llvm::StringRef node) const;

private:
  llvm::StringMap<llvm::SmallVector<mlir::Operation *, 2>> byNode;
};

/// The mesh of a module's annotations, in their `mesh` and `stage_axis`: `mesh` if it is given, the
/// one the model names, or the one with the fewest axes that can say all of them. Fails, with an
/// error, if an annotation cannot be said with the mesh. Does nothing without annotations.
llvm::LogicalResult resolveMesh(mlir::ModuleOp module, llvm::StringRef mesh);

/// Puts the annotations on values and operations: shardings with their origin, closed, and stages;
/// removes them from the module. What names a value that simplification removed gives a remark;
/// what cannot be, as a split over `stageAxis`, is an error.
llvm::LogicalResult applyAnnotations(mlir::ModuleOp module, llvm::StringRef stageAxis);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_DEVICECONFIGURATION_H
