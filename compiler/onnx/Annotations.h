//===- Annotations.h - multi-device annotations of a model ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_ANNOTATIONS_H
#define GRIDLOOM_COMPILER_ONNX_ANNOTATIONS_H

#include "compiler/onnx/ModelReader.h"
#include "passes/shard/DeviceConfiguration.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"

#include <optional>

namespace onnx {
class GraphProto;
class NodeProto;
} // namespace onnx

namespace gridloom::onnx_import {

/// Keys of ModelProto.metadata_props for what ONNX has no field for: the mesh's axes in rank order,
/// as --mesh takes them; the axis of the pipeline's stages; and the storage of weights and states
/// where it differs from their sharding, one --shard argument a line, with names as escapeStored
/// writes them.
inline constexpr llvm::StringLiteral kMeshKey = "gridloom.mesh";
inline constexpr llvm::StringLiteral kStageAxisKey = "gridloom.stage_axis";
inline constexpr llvm::StringLiteral kStorageKey = "gridloom.storage";

/// Puts the model's device configuration on the module, as kAnnotations describes. Of several
/// configurations the first counts. Nothing if there is none; fails, with an error at the node, if
/// an annotation contradicts itself, the node or the configuration.
llvm::LogicalResult importAnnotations(const Model &model, mlir::ModuleOp module);

/// The producer and the readers of each tensor of a graph.
class GraphIndex {
public:
  explicit GraphIndex(const onnx::GraphProto &graph);

  /// The name the importer gives a node: its own, or OPERATOR_INDEX.
  static std::string getNodeName(const onnx::GraphProto &graph, int index);
  /// The node and result that produce `tensor`; nothing for inputs and initializers.
  std::optional<NodeResult> findResult(llvm::StringRef tensor) const;
  bool isInput(llvm::StringRef tensor) const { return inputs.contains(tensor); }
  bool isWeight(llvm::StringRef tensor) const { return weights.contains(tensor); }

private:
  bool isUsed(llvm::StringRef tensor) const {
    return readers.contains(tensor) || outputs.contains(tensor);
  }

  const onnx::GraphProto &graph;
  llvm::StringMap<std::pair<int, int>> producers;
  llvm::StringMap<llvm::SmallVector<int, 2>> readers;
  llvm::StringSet<> inputs, weights, outputs;
};

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_ANNOTATIONS_H
