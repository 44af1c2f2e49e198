//===- GraphImporter.h - one specialisation of a model ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_GRAPHIMPORTER_H
#define GRIDLOOM_COMPILER_ONNX_GRAPHIMPORTER_H

#include "compiler/onnx/DataLengths.h"
#include "compiler/onnx/Functions.h"
#include "compiler/onnx/Import.h"
#include "compiler/onnx/ModelReader.h"
#include "compiler/onnx/Node.h"
#include "compiler/onnx/Training.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
class ValueInfoProto;
} // namespace onnx

namespace gridloom::onnx_import {

struct OpRule;

/// Sizes of the symbolic dimensions in one specialisation.
using Bindings = llvm::MapVector<llvm::StringRef, int64_t>;

/// The tensors of a model, as its functions use them: each becomes a constant or a weight at its
/// first use. Shared by the specialisations.
class TensorPool {
public:
  /// `isTraining` as in ImportOptions.
  TensorPool(const Model &model, mlir::ModuleOp module, bool isTraining);

  mlir::MLIRContext *getContext() { return module.getContext(); }
  bool contains(llvm::StringRef name) const { return tensors.contains(name); }
  /// The numbers in a packed tensor; null for other tensors.
  const rt::PackedNumbers *getPacked(llvm::StringRef name) const;
  /// The tensor's value, built at the builder's place. Null, with an error, if it cannot be read.
  mlir::Value materialize(llvm::StringRef name, mlir::OpBuilder &builder);
  /// A tensor of at most kMaxFoldedBytes as a constant, even one of floats; null for a larger one.
  mlir::Value materializeSmall(llvm::StringRef name, mlir::OpBuilder &builder);
  /// Lists the initializers that became constants, for `loom.folded`.
  mlir::ArrayAttr getFolded();

private:
  /// Whether a tensor is part of the program, not a weight.
  bool isConstant(const rt::OnnxTensor &tensor) const;
  mlir::Value materializeConstant(const rt::OnnxTensor &tensor, mlir::OpBuilder &builder);
  mlir::Value materializeWeight(const rt::OnnxTensor &tensor, mlir::OpBuilder &builder);

  const Model &model;
  mlir::ModuleOp module;
  bool isTraining;
  llvm::StringMap<const rt::OnnxTensor *> tensors;
  llvm::MapVector<llvm::StringRef, std::string> folded;
  llvm::StringSet<> weights;
  mlir::Operation *lastWeight = nullptr;
};

/// Values of outer graphs that a body reads: outside, and the body's argument.
using Captures = llvm::MapVector<mlir::Value, mlir::Value>;

/// Imports the main graph as one function, or a subgraph where its node stands.
class GraphImporter {
public:
  GraphImporter(const Model &model, TensorPool &pool, const Bindings &bindings,
                const ImportOptions &options);
  /// For a subgraph of node `loc`, which is imported where `builder` stands. With `captures` it is
  /// a body of its own, to whose end operations are added: values of outer graphs become its
  /// arguments.
  GraphImporter(GraphImporter &parent, const onnx::GraphProto &graph, mlir::Location loc,
                mlir::OpBuilder builder, Captures *captures);

  /// For a call of one of the model's functions by node `loc`, where the caller's builder stands.
  GraphImporter(GraphImporter &caller, const Function &function, const onnx::NodeProto &call,
                mlir::Location loc);

  /// Builds the function at the end of `module`. Null, with errors, on failure.
  mlir::func::FuncOp import(mlir::ModuleOp module, llvm::StringRef symbol);

  /// The outputs of a subgraph, given its inputs. Fails with a diagnostic.
  llvm::FailureOr<llvm::SmallVector<mlir::Value>> importSubgraph(mlir::ValueRange inputs);
  /// A body for a subgraph: a function beside the entry's, without arguments.
  mlir::func::FuncOp createBody(mlir::Location loc, llvm::StringRef suffix);
  /// A value of an outer graph in the form that this graph's operations may read.
  mlir::Value read(mlir::Value outer);
  mlir::ModuleOp getModule() { return function->getParentOfType<mlir::ModuleOp>(); }
  /// Loops of at most this many iterations are unrolled even if they need not be.
  int64_t getUnrolled() const { return options.unroll; }
  /// Whether maxima and minima record which of two equal operands counts (loom.ties).
  bool marksTies() const { return options.marksTies; }
  TensorPool &getPool() { return pool; }
  DataLengths &getLengths() { return *lengths; }
  /// What training needs to know about the whole function.
  TrainingMarks &getTrainingMarks() { return *marks; }
  bool isTraining() const { return options.isTraining; }
  /// Whether operators in training mode are imported in evaluation mode.
  bool isInference() const { return options.isInference; }
  /// Whether nodes become operations of a body, which runs any number of times, rather than of the
  /// entry.
  bool isInBody() { return builder.getInsertionBlock() != &function.front(); }

  /// The value called `name`, which `reader` reads. Null, with an error, if there is none.
  mlir::Value getValue(llvm::StringRef name, const Emitter &reader);
  /// Gives `name` a value, whose elements stand for those of a narrow type if that is not null.
  void setValue(llvm::StringRef name, mlir::Value value, mlir::Type narrow = {}) {
    values[name] = value;
    if (narrow)
      narrowTypes[name] = narrow;
  }
  /// The narrow type of a value that getValue has returned; null if it has none.
  mlir::Type getNarrow(llvm::StringRef name) const;
  bool isUsed(llvm::StringRef name) const { return used.contains(name); }
  /// Whether `name` is an optional input that the call of the current function does not give.
  bool isAbsent(llvm::StringRef name) const;
  /// The attribute, or its value in the call if it refers to one of the function's attributes; null
  /// if the call has none.
  const onnx::AttributeProto *resolve(const onnx::AttributeProto &attribute) const;
  /// The version of an operator set in the model, or in the function, which may name its own.
  int64_t getOpset(llvm::StringRef domain) const;
  /// The tensor of the Constant node that defines `name`.
  mlir::Value getTensor(llvm::StringRef name, const Emitter &reader);

private:
  llvm::LogicalResult sortNodes();
  /// Fails, with one error, if nodes that are needed have operators the importer does not know.
  llvm::LogicalResult checkOperators();
  llvm::LogicalResult survey(OperatorSurvey &found);
  llvm::LogicalResult surveyFunction(const Function &function, const onnx::NodeProto &call,
                                     mlir::Location loc, OperatorSurvey &found);
  const OpRule *getRule(const onnx::NodeProto &node) const;
  /// The outputs of the function that `call` calls.
  llvm::FailureOr<llvm::SmallVector<mlir::Value>> importCall(const Node &call);
  llvm::LogicalResult importInputs(mlir::ModuleOp module, llvm::StringRef symbol);
  llvm::LogicalResult importNode(int index);
  llvm::LogicalResult importOutputs();
  /// Adds an output NAME.dimD for dimension D of output NAME whose length depends on data. Fails,
  /// with an error, if an output depends on such a length in another way.
  llvm::LogicalResult addLengths(llvm::SmallVectorImpl<mlir::Value> &results,
                                 llvm::SmallVectorImpl<mlir::DictionaryAttr> &attributes);
  /// Adds the next values of initializers in training, as outputs of their names.
  llvm::LogicalResult addUpdates(llvm::SmallVectorImpl<mlir::Value> &results,
                                 llvm::SmallVectorImpl<mlir::DictionaryAttr> &attributes);
  void setEvaluated();
  mlir::RankedTensorType getInputType(const onnx::ValueInfoProto &input);
  mlir::DictionaryAttr describe(const onnx::ValueInfoProto &value, llvm::ArrayRef<int64_t> shape);
  mlir::Location getNodeLoc(int index);
  mlir::Value getSubgraphTensor(llvm::StringRef name, const Emitter &reader);
  /// Runs the operator's import function; moved elements keep their narrow type.
  llvm::LogicalResult importOperator(Node &node, const OpRule &rule, const onnx::NodeProto &proto);

  GraphImporter *parent = nullptr;
  /// Whether the parent's values can be read: in a subgraph, not in a function.
  bool seesOuter = true;
  /// The function this is in, whose attributes and operator sets apply.
  const Function *callee = nullptr;
  Captures *captures = nullptr;
  std::string prefix;     // of unnamed nodes
  std::string callPrefix; // of all others
  const Model &model;
  const onnx::GraphProto &graph;
  TensorPool &pool;
  const Bindings &bindings;
  mlir::OpBuilder builder;
  mlir::func::FuncOp function;
  const ImportOptions &options;
  bool isSorted = false;
  std::shared_ptr<FunctionTable> functions;
  std::shared_ptr<DataLengths> lengths;
  std::shared_ptr<TrainingMarks> marks;
  llvm::StringMap<const onnx::AttributeProto *> attributes;
  llvm::StringSet<> absent;
  /// Nodes that the outputs need, each after those it reads.
  std::vector<int> order;
  llvm::StringMap<int> producers;
  llvm::StringSet<> used, initializers;
  llvm::StringMap<mlir::Value> values;
  llvm::StringMap<mlir::Type> narrowTypes;
};

/// Erases unused operations from a function's body.
void eraseDeadOps(mlir::func::FuncOp function);
/// The names a node reads, with those its subgraphs read of outer graphs.
llvm::SmallVector<std::string> getReadNames(const onnx::NodeProto &node);
/// The version of the standard domain's operator set that a model imports; 0 if it imports none.
int64_t getOpset(const Model &model);
/// The name of dimension `index` of an input: its symbol or INPUT.INDEX; empty if it has a size.
std::string getDimName(const onnx::ValueInfoProto &input, int index);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_GRAPHIMPORTER_H
