//===- GraphImporter.h - one specialisation of a model ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_GRAPHIMPORTER_H
#define GRIDLOOM_COMPILER_ONNX_GRAPHIMPORTER_H

#include "compiler/onnx/ModelReader.h"
#include "compiler/onnx/Node.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace onnx {
class GraphProto;
class ValueInfoProto;
} // namespace onnx

namespace gridloom::onnx_import {

/// Sizes of the symbolic dimensions in one specialisation.
using Bindings = llvm::MapVector<llvm::StringRef, int64_t>;

/// The tensors of a model, as its functions use them: each becomes a constant or a weight at its
/// first use. Shared by the specialisations.
class TensorPool {
public:
  TensorPool(const Model &model, mlir::ModuleOp module);

  mlir::MLIRContext *getContext() { return module.getContext(); }
  bool contains(llvm::StringRef name) const { return tensors.contains(name); }
  /// The tensor's value, built at the builder's place. Null, with an error, if it cannot be read.
  mlir::Value materialize(llvm::StringRef name, mlir::OpBuilder &builder);
  /// Lists the initializers that became constants, for `loom.folded`.
  mlir::ArrayAttr getFolded();

private:
  mlir::Value materializeConstant(const rt::OnnxTensor &tensor, mlir::OpBuilder &builder);
  mlir::Value materializeWeight(const rt::OnnxTensor &tensor, mlir::OpBuilder &builder);

  const Model &model;
  mlir::ModuleOp module;
  llvm::StringMap<const rt::OnnxTensor *> tensors;
  llvm::MapVector<llvm::StringRef, std::string> folded;
  llvm::StringSet<> weights;
  mlir::Operation *lastWeight = nullptr;
};

/// Imports the main graph as one function.
class GraphImporter {
public:
  GraphImporter(const Model &model, TensorPool &pool, const Bindings &bindings);

  /// Builds the function at the end of `module`. Null, with errors, on failure.
  mlir::func::FuncOp import(mlir::ModuleOp module, llvm::StringRef symbol);

  /// The value called `name`, which `reader` reads. Null, with an error, if there is none.
  mlir::Value getValue(llvm::StringRef name, const Emitter &reader);
  void setValue(llvm::StringRef name, mlir::Value value) { values[name] = value; }
  bool isUsed(llvm::StringRef name) const { return used.contains(name); }
  /// The tensor of the Constant node that defines `name`.
  mlir::Value getTensor(llvm::StringRef name, const Emitter &reader);

private:
  llvm::LogicalResult sortNodes();
  llvm::LogicalResult checkOperators();
  llvm::LogicalResult importInputs(mlir::ModuleOp module, llvm::StringRef symbol);
  llvm::LogicalResult importNode(int index);
  llvm::LogicalResult importOutputs();
  mlir::RankedTensorType getInputType(const onnx::ValueInfoProto &input);
  mlir::DictionaryAttr describe(const onnx::ValueInfoProto &value, llvm::ArrayRef<int64_t> shape);
  mlir::Location getNodeLoc(int index);
  void eraseDeadOps();

  const Model &model;
  const onnx::GraphProto &graph;
  TensorPool &pool;
  const Bindings &bindings;
  mlir::OpBuilder builder;
  mlir::func::FuncOp function;
  int64_t opset = 0;
  /// Nodes that the outputs need, each after those it reads.
  std::vector<int> order;
  llvm::StringMap<int> producers;
  llvm::StringSet<> used, initializers;
  llvm::StringMap<mlir::Value> values;
};

/// The version of the standard domain's operator set that a model imports; 0 if it imports none.
int64_t getOpset(const Model &model);
/// The name of dimension `index` of an input: its symbol or INPUT.INDEX; empty if it has a size.
std::string getDimName(const onnx::ValueInfoProto &input, int index);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_GRAPHIMPORTER_H
