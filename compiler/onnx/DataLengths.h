//===- DataLengths.h - lengths that depend on data --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Programs have static shapes. Where a dimension's length depends on data, it has the size it can
// have at most: its first elements are those of the tensor, and what follows is padding, of which
// nothing is promised but that indices are those of some element. How many the first ones are is a
// value of its own.
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
  /// "NonMaxSuppression 'nms'", which makes the first of them.
  std::string source;
  /// The first operation on the way here that cannot say what its result's length is; if there is
  /// one, `dims` do not count.
  std::optional<mlir::Location> lostAt;
};

/// The values of one function whose shapes depend on data.
class DataLengths {
public:
  bool empty() const { return declared.empty(); }
  /// Dimension `dim` of `value` has `count` elements, which `source` computes; the rest is padding.
  void declare(mlir::Value value, int64_t dim, mlir::Value count, std::string source);
  /// Follows them through the operations of `block`: of the function's own those that have come
  /// since the last time, none of which may go; of a branch's or loop's all.
  void propagate(mlir::Block &block);
  /// Facts about a value of the function, or of the block last propagated; null if its shape does
  /// not depend on data.
  const DataExtent *lookup(mlir::Value value) const;

private:
  void propagate(mlir::Operation &op, llvm::DenseMap<mlir::Value, DataExtent> &facts);

  llvm::DenseSet<mlir::Value> declared;
  llvm::DenseMap<mlir::Value, DataExtent> known, inner;
  mlir::Block *own = nullptr;      ///< the block of the declared values
  mlir::Operation *last = nullptr; ///< in it, the last one seen
};

/// Dimensions along which the elements of a value may differ.
llvm::SmallDenseSet<int64_t> getVaryingDims(mlir::Value value);
/// Says at the operation in question that it cannot be computed of what `extent` is.
llvm::LogicalResult refuseLost(const DataExtent &extent);
/// The dimensions of a node's operand whose lengths depend on data. Fails, with an error, if what
/// they are was lost.
llvm::FailureOr<llvm::SmallVector<DataExtent::Dim, 1>> getCountedDims(Node &node,
                                                                      mlir::Value operand);
/// Fails, with an error, if the length of dimension `dim` of a node's operand depends on data.
llvm::LogicalResult checkFixedLength(Node &node, mlir::Value operand, int64_t dim);
/// Fails, with an error, if a tensor operand's shape depends on data and that of one of `results`
/// does not: the node has taken the padded shape for the tensor's.
llvm::LogicalResult checkLengthsKept(Node &node, llvm::ArrayRef<mlir::Value> results);
/// Makes `value` result `index`, of whose dimension `dim` the first `count` elements count. Fails,
/// with an error, if the node is in a branch or loop of the program.
llvm::LogicalResult setCounted(Node &node, unsigned index, mlir::Value value, int64_t dim,
                               mlir::Value count);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_DATALENGTHS_H
