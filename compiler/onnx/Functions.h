//===- Functions.h - functions that a model defines -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_FUNCTIONS_H
#define GRIDLOOM_COMPILER_ONNX_FUNCTIONS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <string>
#include <vector>

namespace onnx {
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
} // namespace onnx

namespace gridloom::onnx_import {

struct Function {
  const onnx::FunctionProto *proto = nullptr;
  /// The body, with the function's inputs and outputs.
  std::shared_ptr<const onnx::GraphProto> graph;
};

/// The functions of a model, by domain, name and overload.
class FunctionTable {
public:
  /// Of several functions with the same name, the first counts.
  explicit FunctionTable(const onnx::ModelProto &model);

  /// The function a node calls; null if there is none.
  const Function *find(const onnx::NodeProto &node) const;
  /// Counts a node of a function's or loop's body each time it is imported. False if they are too
  /// many: a small file whose loops or calls nest can ask for 2^64.
  bool countExpanded();

  static constexpr int64_t kMaxExpanded = int64_t(1) << 20;

private:
  llvm::StringMap<Function> functions;
  int64_t numExpanded = 0;
};

/// Operators that cannot be imported, and the function calls in a model.
struct OperatorSurvey {
  /// Nodes by the qualified name of their operator.
  llvm::MapVector<mlir::StringAttr, std::vector<std::string>> unsupported;
  /// The depth of nested calls in a function, itself included; kOpen during the visit.
  llvm::DenseMap<const Function *, int> depths;
  int active = 0;

  static constexpr int kOpen = -1, kMaxDepth = 64;
};

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_FUNCTIONS_H
