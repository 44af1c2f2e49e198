//===- Propagation.h - shardings spread over a function ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_PROPAGATION_H
#define GRIDLOOM_PASSES_SHARD_PROPAGATION_H

#include "dialects/dist/Factors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace gridloom {

/// The shardings of all values of one function, and the way they grow.
class Propagation {
public:
  struct Entry {
    dist::Layout layout;
    /// Who asked for the layout as a whole, e.g. the user; empty when it grew.
    std::string given;
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

  /// Applies the operations' rules until nothing changes: first of those that pass shardings on as
  /// they are (elementwise, reshape, transpose), then of other moves, then of contractions and
  /// reductions, so that where shardings meet, the nearer one was there first.
  void run();

  const Entry &lookup(mlir::Value value) const { return entries.find(value)->second; }
  /// Calls `visit` for the arguments, then for the operations' results in order.
  void forEachValue(llvm::function_ref<void(mlir::Value)> visit) const;
  mlir::Location getLoc() const { return func->getParentOp()->getLoc(); }
  llvm::ArrayRef<mlir::Operation *> getOperations() const { return program->operations; }
  const dist::Mesh &getMesh() const { return mesh; }
  const dist::ShardingRule &getRule(mlir::Operation *op) const {
    return program->rules.find(op)->second;
  }
  /// The layouts of an operation's tensors: operands, then results.
  llvm::SmallVector<dist::Layout> getLayouts(mlir::Operation *op) const;

  /// What an operation's operands must be, given the merged factors. One layout per tensor.
  llvm::SmallVector<dist::Layout> getRequired(mlir::Operation *op) const;

  /// How many operands would have to move between devices other than by reducing partial sums.
  int64_t countReshards() const;

  /// Writes shardings and origins onto the function; `close` ends their growth. `reasons` are the
  /// origins of values that are not split.
  struct Reason {
    std::string text;
    std::string kind; ///< the same without the node
  };
  using Reasons = llvm::DenseMap<mlir::Value, Reason>;
  void commit(bool close, const Reasons &reasons = Reasons()) const;

private:
  bool visit(mlir::Operation *op);
  void runToFixpoint(llvm::ArrayRef<mlir::Operation *> list);

  mlir::func::FuncOp func;
  dist::Mesh mesh;
  llvm::DenseMap<mlir::Value, Entry> entries;
  /// What does not change; shared by the copies that are made for every seed that is tried.
  struct Program {
    llvm::SmallVector<mlir::Operation *> operations;
    /// Those that speak first, and those that speak before contractions do.
    llvm::SmallVector<mlir::Operation *> passThrough, moves;
    llvm::DenseMap<mlir::Operation *, dist::ShardingRule> rules;
  };
  std::shared_ptr<const Program> program;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_PROPAGATION_H
