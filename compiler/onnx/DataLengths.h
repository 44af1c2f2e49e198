//===- DataLengths.h - lengths that depend on data --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Programs have static shapes. A dimension whose length depends on data has its largest possible
// size: its first elements are the tensor's, and the rest is padding with arbitrary contents,
// except that indices stay in range. The number of the tensor's elements is a value of its own.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_DATALENGTHS_H
#define GRIDLOOM_COMPILER_ONNX_DATALENGTHS_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>
#include <string>

namespace gridloom::onnx_import {

class Node;

/// The dimensions of a value's shape that depend on data.
struct DataExtent {
  struct Dim {
    int64_t dim;
    mlir::Value count; ///< scalar i64
  };
  llvm::SmallVector<Dim, 1> dims;
  /// "NonMaxSuppression 'nms'", which produces the first of them.
  std::string source;
  /// The first operation on the way here whose result has an unknown length; if set, `dims` are
  /// invalid.
  std::optional<mlir::Location> lostAt;
};

/// The values of one function whose shapes depend on data.
class DataLengths {
public:
  bool empty() const { return declared.empty(); }
  /// Dimension `dim` of `value` has `count` elements, which `source` computes; the rest is padding.
  void declare(mlir::Value value, int64_t dim, mlir::Value count, std::string source);
  /// Propagates the lengths through `block`: in the function's own block through the operations
  /// added since the last call, which must not be erased; in a branch's or loop's block through
  /// all.
  void propagate(mlir::Block &block);
  /// Facts about a value of the function, or of the block last propagated; null if its shape does
  /// not depend on data.
  const DataExtent *lookup(mlir::Value value) const;

private:
  void propagate(mlir::Operation &op, llvm::DenseMap<mlir::Value, DataExtent> &facts);

  llvm::DenseSet<mlir::Value> declared;
  llvm::DenseMap<mlir::Value, DataExtent> known, inner;
  mlir::Block *own = nullptr;      ///< the block of the declared values
  mlir::Operation *last = nullptr; ///< the last operation seen in it
};

/// Dimensions along which the elements of a value may differ.
llvm::SmallDenseSet<int64_t> getVaryingDims(mlir::Value value);
/// Fails, with an error at `extent.lostAt`, which needs a length that is known only at run time.
llvm::LogicalResult refuseLost(const DataExtent &extent);
/// The dimensions of a node's operand whose lengths depend on data. Fails, with an error, if they
/// are lost.
llvm::FailureOr<llvm::SmallVector<DataExtent::Dim, 1>> getCountedDims(Node &node,
                                                                      mlir::Value operand);
/// Fails, with an error, if the length of dimension `dim` of a node's operand depends on data.
llvm::LogicalResult checkFixedLength(Node &node, mlir::Value operand, int64_t dim);
/// Fails, with an error, if a tensor operand's shape depends on data and that of one of `results`
/// does not: the node has taken the padded shape for the tensor's.
llvm::LogicalResult checkLengthsKept(Node &node, llvm::ArrayRef<mlir::Value> results);
/// Sets result `index` to `value`, of whose dimension `dim` the first `count` elements are valid.
/// Fails, with an error, if the node is in a branch or loop of the program.
llvm::LogicalResult setCounted(Node &node, unsigned index, mlir::Value value, int64_t dim,
                               mlir::Value count);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_DATALENGTHS_H
