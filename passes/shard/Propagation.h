//===- Propagation.h - shardings spread over a function ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_PROPAGATION_H
#define GRIDLOOM_PASSES_SHARD_PROPAGATION_H

#include "dialects/dist/Factors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom {

/// The shardings of all values of one function, and the way they grow.
class Propagation {
public:
  struct Entry {
    dist::Layout layout;
    /// Who brought each axis in.
    llvm::SmallVector<std::pair<mlir::StringAttr, std::string>, 2> origins;

    llvm::StringRef getOrigin(mlir::StringAttr axis) const;
    /// "data: strategy dp: batch; model: user"
    std::string describe() const;
  };

  /// Starts from the shardings on the function's values; values without one are open.
  Propagation(mlir::func::FuncOp func, const dist::Mesh &mesh);

  /// Adds `axis` as the minor axis of a dimension cut on multiples of `granule`, when the dimension
  /// is open and large enough and the value does not use the axis. Returns whether it did.
  bool addAxis(mlir::Value value, int64_t dim, mlir::StringAttr axis, llvm::StringRef origin,
               int64_t granule = 1);

  /// Applies the rules of all operations until nothing changes.
  void run();

  const Entry &lookup(mlir::Value value) const { return entries.find(value)->second; }
  llvm::ArrayRef<mlir::Operation *> getOperations() const { return operations; }
  const dist::Mesh &getMesh() const { return mesh; }

  /// What an operation's operands must be, given the merged factors. One layout per tensor.
  llvm::SmallVector<dist::Layout> getRequired(mlir::Operation *op) const;

  /// How many operands would have to move between devices other than by reducing partial sums.
  int64_t countReshards() const;

  /// Writes shardings and origins onto the function; `close` ends their growth.
  void commit(bool close) const;

private:
  bool visit(mlir::Operation *op);

  mlir::func::FuncOp func;
  dist::Mesh mesh;
  llvm::DenseMap<mlir::Value, Entry> entries;
  llvm::SmallVector<mlir::Operation *> operations;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_PROPAGATION_H
