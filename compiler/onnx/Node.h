//===- Node.h - one ONNX node being imported --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_NODE_H
#define GRIDLOOM_COMPILER_ONNX_NODE_H

#include "compiler/onnx/Emitter.h"
#include "runtime/core/DataType.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
class TensorProto;
} // namespace onnx

namespace gridloom::onnx_import {

class GraphImporter;

using Dims = llvm::SmallVector<int64_t, 6>;

/// An ONNX node with its operands imported, and the Emitter that builds what it becomes. An absent
/// or mistyped operand or attribute is an error on the node.
class Node : public Emitter {
public:
  Node(GraphImporter &importer, const onnx::NodeProto &proto, mlir::OpBuilder &builder,
       mlir::Location loc, int64_t opset);

  /// Fails, with an error, if an operand has no value.
  llvm::LogicalResult readOperands();
  llvm::StringRef getOpType() const;
  /// The version of the operator set the node belongs to.
  int64_t getOpset() const { return opset; }

  //===--------------------------------------------------------------------===//
  // Operands and results
  //===--------------------------------------------------------------------===//

  unsigned getNumOperands() const { return operands.size(); }
  bool hasOperand(unsigned index) const { return index < operands.size() && operands[index]; }
  /// The operand; null, with an error, if it is absent.
  mlir::Value operand(unsigned index) const;
  /// The narrow type that an operand's elements stand for; null if there is none.
  mlir::Type getNarrow(unsigned index) const;
  /// The type of a given operand's elements, which may be narrow.
  mlir::Type getElement(unsigned index) const;
  /// The value of an operand known at compile time; null if it is not known or absent.
  std::optional<loom::HostTensor> constantOperand(unsigned index) const;
  /// The same, also of a small initializer of floats, which then is part of the program.
  std::optional<loom::HostTensor> foldedOperand(unsigned index) const;
  /// The integers of operand `index`, whose ONNX name is `name`. An error if they are not known at
  /// compile time.
  std::optional<Dims> intsOperand(unsigned index, llvm::StringRef name) const;
  /// The one number of operand `index`; nothing, without an error, if the operand is absent. Fails
  /// if it is not known at compile time.
  llvm::FailureOr<std::optional<double>> numberOperand(unsigned index, llvm::StringRef name) const;

  unsigned getNumResults() const;
  /// Whether something reads the result.
  bool hasResult(unsigned index) const;
  /// Fails if the value is null. Its elements stand for those of `narrow`, if given.
  llvm::LogicalResult setResult(unsigned index, mlir::Value value, mlir::Type narrow = {});
  llvm::LogicalResult setResult(mlir::Value value) { return setResult(0, value); }
  /// Whether the program will be differentiated, so that what it has at ties and zeros matters.
  bool isDifferentiated() const;
  /// Records that `side` of equal operands of a maximum or minimum counts (loom.ties), if the
  /// import marks ties. Returns `extremum`.
  mlir::Value markTies(mlir::Value extremum, llvm::StringRef side) const;

  //===--------------------------------------------------------------------===//
  // Attributes
  //===--------------------------------------------------------------------===//

  bool hasAttribute(llvm::StringRef name) const { return findAttribute(name); }
  int64_t intAttribute(llvm::StringRef name, int64_t otherwise) const;
  double floatAttribute(llvm::StringRef name, double otherwise) const;
  std::string stringAttribute(llvm::StringRef name, llvm::StringRef otherwise) const;
  std::optional<Dims> intsAttribute(llvm::StringRef name) const;
  std::optional<std::vector<double>> floatsAttribute(llvm::StringRef name) const;
  std::optional<std::vector<std::string>> stringsAttribute(llvm::StringRef name) const;
  /// A tensor of one element; nothing, without an error, if absent. Fails on any other.
  llvm::FailureOr<std::optional<loom::HostTensor>> elementAttribute(llvm::StringRef name) const;
  /// The subgraph; null, with an error, if absent.
  const onnx::GraphProto *graphAttribute(llvm::StringRef name) const;
  GraphImporter &getImporter() const { return importer; }
  /// Whether an attribute that was asked for had another type, which was reported.
  bool hadBadAttribute() const { return hasBadAttribute; }
  /// The tensor of a Constant node, as a constant or a weight.
  mlir::Value constantTensor() const;

  //===--------------------------------------------------------------------===//
  // Helpers for many operators
  //===--------------------------------------------------------------------===//

  /// `axis` from the front; nothing, with an error, if it is not in [-rank, rank).
  std::optional<int64_t> normalizeAxis(int64_t axis, int64_t rank) const;
  /// The same of a list, sorted; naming a dimension twice is an error.
  std::optional<Dims> normalizeAxes(llvm::ArrayRef<int64_t> axes, int64_t rank) const;
  /// The integers given by attribute `name` or, in later versions, by operand `index`. The outer
  /// optional is empty on error, the inner one if neither is given.
  std::optional<std::optional<Dims>> intsAttributeOrOperand(llvm::StringRef name,
                                                            unsigned index) const;
  /// Fails if either is null or, with an error, if their element types differ.
  llvm::LogicalResult checkSameElementType(mlir::Value x, mlir::Value y) const;
  /// The MLIR type of a TensorProto.DataType; null, with an error, if there is none.
  mlir::Type elementType(int64_t onnxType) const;
  /// The same, or a narrow type, for an operator that converts.
  mlir::Type convertedType(int64_t onnxType) const;

private:
  const onnx::AttributeProto *findAttribute(llvm::StringRef name) const;
  /// The attribute, if it has the given AttributeProto.AttributeType; another one is an error.
  const onnx::AttributeProto *findAttribute(llvm::StringRef name, int type) const;

  GraphImporter &importer;
  const onnx::NodeProto &proto;
  int64_t opset;
  llvm::SmallVector<mlir::Value> operands;
  llvm::SmallVector<mlir::Type> narrowTypes;
  mutable bool hasBadAttribute = false;
};

/// The MLIR type of a TensorProto.DataType; null if the compiler does not compute with it.
mlir::Type getElementType(mlir::MLIRContext *context, int64_t onnxType);
/// The ONNX name of a TensorProto.DataType.
std::string getTypeName(int64_t onnxType);
loom::ElementKind getElementKind(rt::DataType type);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_NODE_H
