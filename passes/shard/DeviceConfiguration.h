//===- DeviceConfiguration.h - a model's own device annotations -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// ONNX (NodeDeviceConfigurationProto, IR version 11) says into how many shards each axis of a
// tensor is cut and which devices hold each shard. The importer stores this on the module
// unchanged; these functions translate it to mesh axes.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_DEVICECONFIGURATION_H
#define GRIDLOOM_PASSES_SHARD_DEVICECONFIGURATION_H

#include "dialects/dist/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace gridloom {

/// Module attribute that holds the model's device configuration. A dictionary:
///
///     devices = 4, mesh = "data=2,model=2" and stage_axis = "pipe" (if known), stages = 2,
///     storage = "w=stored[{data},{}]" (lines, if any),
///     values = [{name = "t", node = "N", what = "result", index = 0, count = 1,
///                readers = ["M"], output, dims = [array<i64: axis, size, parts, granule>],
///                groups = [array<i64: 0, 2>, array<i64: 1, 3>]}],
///     nodes = [{node = "N", stage = 0}]
///
/// `what` is input, weight or result; `size` is 0 if unknown; `groups` lists the devices of each
/// shard, shards counted row-major over `dims`.
inline constexpr llvm::StringLiteral kAnnotations = "loom.annotations";

/// Escapes a weight's or state's name for a line of `storage`: a literal star, as opposed to a
/// pattern's, becomes "\*", a new line "\n" and a backslash "\\".
std::string escapeStored(llvm::StringRef name);
/// Undoes escapeStored for --shard; sets `isPattern` if the line has an unescaped star.
std::string unescapeStored(llvm::StringRef line, bool &isPattern);

/// A result of a node, identified such that its value can be found after simplification.
struct NodeResult {
  std::string node;
  unsigned index = 0, count = 1;             ///< position and number among the node's used results
  llvm::SmallVector<std::string, 2> readers; ///< names of the nodes that read it
  bool isOutput = false;                     ///< of the model
};

/// The values of a function by ONNX node. An operation fused from several nodes provides those
/// nodes' results that other nodes read.
class NodeValues {
public:
  explicit NodeValues(mlir::func::FuncOp func);

  /// The value; null if the program no longer has one for the result.
  mlir::Value find(const NodeResult &result) const;
  /// The operations made of a node, in order.
  llvm::ArrayRef<mlir::Operation *> getOperations(llvm::StringRef node) const;

private:
  llvm::StringMap<llvm::SmallVector<mlir::Operation *, 2>> byNode;
};

/// Sets the annotations' `mesh` and `stage_axis`: to `mesh` if it is given, else the mesh that the
/// model names, else the one with the fewest axes that can express all of them. Fails, with an
/// error, if the mesh cannot express an annotation. Does nothing without annotations.
llvm::LogicalResult resolveMesh(mlir::ModuleOp module, llvm::StringRef mesh);

/// Moves the annotations from the module onto values, as closed shardings with their origin, and
/// onto operations, as stages. Emits a remark for a value that simplification removed, and an error
/// for what is impossible, such as a split over `stageAxis`.
llvm::LogicalResult applyAnnotations(mlir::ModuleOp module, llvm::StringRef stageAxis);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_DEVICECONFIGURATION_H
