//===- Training.h - what training needs of an import ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_TRAINING_H
#define GRIDLOOM_COMPILER_ONNX_TRAINING_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace gridloom::onnx_import {

/// What training needs of one function besides its outputs, including its subgraphs and calls.
class TrainingMarks {
public:
  /// `weight`, or the update that the last node gave it: nodes that share running statistics update
  /// them one after another.
  mlir::Value getLatest(mlir::Value weight) const;
  /// Makes `next`, of the same type, the value after a training step of the initializer that
  /// `weight` reads. Does nothing if `weight` is computed.
  void addUpdate(mlir::Value weight, mlir::Value next);
  const llvm::MapVector<mlir::StringAttr, mlir::Value> &getUpdates() const { return updates; }

  /// A node of operator `op` that is in evaluation mode, as the model says.
  void addEvaluated(llvm::StringRef op, llvm::StringRef node) {
    evaluated.emplace_back(op.str(), node.str());
  }
  /// Operators and nodes, each once, in the order of the import.
  llvm::ArrayRef<std::pair<std::string, std::string>> getEvaluated() const { return evaluated; }

  /// The number of random operations before this one that have the same seed.
  int64_t takeStream(int64_t seed) { return streams[seed]++; }

private:
  llvm::MapVector<mlir::StringAttr, mlir::Value> updates;
  llvm::SmallVector<std::pair<std::string, std::string>, 0> evaluated;
  std::map<int64_t, int64_t> streams;
};

class Node;
/// Marks the reads of weights with their role in the node's operator (loom.use), where the
/// operations that it becomes do not show it.
void markUses(const Node &node);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_TRAINING_H
