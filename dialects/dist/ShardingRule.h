//===- ShardingRule.h - how an operation's tensors share factors --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An operation's iteration space is a product of factors. Each dimension of each operand and result
// consists of factors, major to minor; dimensions with a factor in common are split alike. This
// extends einsum notation to every operation, including compound factors such as a reshape's.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_SHARDINGRULE_H
#define GRIDLOOM_DIALECTS_DIST_SHARDINGRULE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include "dialects/dist/DistEnums.h.inc"

namespace gridloom::dist {

/// Mesh axes that split a factor, major to minor; one list per factor.
using AxisList = llvm::SmallVector<mlir::StringAttr, 2>;
using FactorAxes = llvm::ArrayRef<AxisList>;

enum class FactorKind {
  Parallel,        ///< splitting it splits the result
  Reduction,       ///< splitting it leaves partial results
  NeedReplication, ///< every device needs all of it
};

/// Factors of a tensor's dimensions: [dimension][major to minor].
using TensorFactors = llvm::SmallVector<llvm::SmallVector<int64_t, 1>>;

/// A dimension whose shards are not the shards of its one factor: a device's part of the factor
/// determines what it needs of the dimension, and `partition` fetches that from the devices that
/// hold it (see loom/Halo.h). Position p of the factor reads `reach` positions from p * step +
/// begin on; between elements there are `interior` positions without an element.
struct WindowDim {
  int64_t tensor = 0, dim = 0;
  int64_t step = 1, begin = 0, reach = 1, interior = 0;
};

struct ShardingRule {
  llvm::SmallVector<int64_t> sizes;
  llvm::SmallVector<FactorKind> kinds;
  /// How partial results over Reduction factors combine.
  ReductionKind reduction = ReductionKind::Sum;
  /// Operands have to be masked with the reduction's neutral element if the last shard of a
  /// reduction factor is padded. False for operations that never read the padding.
  bool readsPadding = true;
  /// Tensors without a common factor are independent: an axis may split a factor of each. Otherwise
  /// an axis splits one factor only.
  bool isSeparable = false;
  /// Operands, then results.
  llvm::SmallVector<TensorFactors> tensors;
  /// Factors along which positions depend on each other, such as a softmax's: the operation
  /// communicates if they are split over devices, so micro-batches cannot split them.
  llvm::SmallVector<int64_t, 1> coupled;
  /// The all_reduces that it makes along each, of a number per row, or messages of about that size.
  int64_t messages = 2;
  llvm::SmallVector<WindowDim> windows;

  bool isWindow(int64_t tensor, int64_t dim) const {
    return llvm::any_of(windows, [&](const WindowDim &window) {
      return window.tensor == tensor && window.dim == dim;
    });
  }

  int64_t addFactor(int64_t size, FactorKind kind = FactorKind::Parallel) {
    sizes.push_back(size);
    kinds.push_back(kind);
    return sizes.size() - 1;
  }
};

/// The rule of an operation that works element by element on tensors of one shape.
ShardingRule getElementwiseRule(mlir::Operation *op);

/// Clones `op` with other operands and result types.
llvm::SmallVector<mlir::Value> cloneWithLocalTypes(mlir::OpBuilder &builder, mlir::Operation *op,
                                                   mlir::ValueRange operands,
                                                   mlir::TypeRange types);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_SHARDINGRULE_H
