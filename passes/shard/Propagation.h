//===- Propagation.h - shardings propagated over a function -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_PROPAGATION_H
#define GRIDLOOM_PASSES_SHARD_PROPAGATION_H

#include "dialects/dist/Factors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/BitVector.h"

#include <memory>

namespace gridloom {

/// A set of numbers below a limit, iterated from either end. The empty ends cost nothing.
class Worklist {
public:
  void fill(size_t count);
  void insert(size_t number);
  void erase(size_t number) { bits.reset(number); }
  void clear();
  /// These return -1 if there is no such number.
  int getFirst();
  int getLast();
  int getNext(int number) const;
  int getPrevious(int number) const;

private:
  llvm::BitVector bits;
  /// All numbers are in [begin, end).
  size_t begin = 0, end = 0;
};

/// The shardings of all values of one function, and how they propagate.
class Propagation {
public:
  struct Entry {
    dist::Sharding sharding;
    /// The origin of the whole sharding, e.g. the user; empty if propagation built it.
    std::string given;
    /// The origin of each axis.
    llvm::SmallVector<std::pair<mlir::StringAttr, std::string>, 2> origins;

    llvm::StringRef getOrigin(mlir::StringAttr axis) const;
    dist::OriginAttr getOrigin(mlir::MLIRContext *context) const;
  };

  /// Starts from the shardings on the function's values; values without one are open.
  Propagation(mlir::func::FuncOp func, const dist::Mesh &mesh);

  /// Adds `axis` as the minor axis of a dimension cut on multiples of `granule` elements, if the
  /// dimension is open, large enough and not cut into micro-batches, and the value does not use the
  /// axis. The micro-batch axis may also cut a closed dimension, but has to divide it evenly.
  /// Returns whether the axis was added.
  bool addAxis(mlir::Value value, int64_t dim, mlir::StringAttr axis, llvm::StringRef origin,
               int64_t granule = 1);

  /// Applies the operations' rules to a fixpoint: first operations that pass shardings on unchanged
  /// (elementwise, reshape, transpose), then other data movement, then contractions and reductions,
  /// so that where shardings meet, the nearer one wins. Stops early if `isHopeless` returns true;
  /// it is called ever more rarely. Returns the number of visits to operations.
  int64_t run(llvm::function_ref<bool()> isHopeless = nullptr);

  const Entry &lookup(mlir::Value value) const { return entries.find(value)->second; }
  /// Calls `visit` for the arguments, then for the operations' results in order.
  void forEachValue(llvm::function_ref<void(mlir::Value)> visit) const;
  mlir::Location getLoc() const { return func->getParentOp()->getLoc(); }
  llvm::ArrayRef<mlir::Operation *> getOperations() const { return program->operations; }
  const dist::Mesh &getMesh() const { return mesh; }
  const dist::ShardingRule &getRule(mlir::Operation *op) const {
    return program->rules.find(op)->second;
  }
  /// The shardings of an operation's tensors: operands, then results.
  llvm::SmallVector<dist::Sharding> getShardings(mlir::Operation *op) const;

  /// How an operation's factors are split: by its `dist.splits`, else as merged from its tensors'
  /// shardings. Valid until one of these changes.
  const dist::FactorSplits &getSplits(mlir::Operation *op) const;

  /// The shardings an operation requires of its tensors, given how it is split. One sharding per
  /// tensor.
  llvm::SmallVector<dist::Sharding> getRequired(mlir::Operation *op) const;

  /// The number of operand dimensions that have to move between devices, and of results made in
  /// another sharding than they have. Reductions do not count. Calls `recounted` with the index and
  /// former count of each operation whose values may have changed since the last call.
  int64_t countReshards(llvm::function_ref<void(size_t, int64_t)> recounted);
  /// The count of one operation at the last countReshards.
  int64_t getReshards(size_t index) const { return reshards[index].all; }
  /// A lower bound on countReshards after any further splits: the operations that cannot take a
  /// tensor as it is split, or have two that they cannot both take so.
  int64_t getLeastReshards() const { return lastingReshards; }

  /// Runs `trial` and returns its result; if that is false, undoes its changes to this object.
  bool attempt(llvm::function_ref<bool()> trial);

  /// Writes shardings and origins onto the function; `close` closes all dimensions. `reasons` are
  /// the origins of values that are not split.
  struct Reason {
    /// What decided: the value or the mesh, an operation next to it, an obstacle that a strategy
    /// met, the reason of a value near it, or nothing.
    enum class Basis { Value, Operation, Strategy, Neighbour, Nothing };
    Basis basis;
    std::string text;
    std::string kind;       ///< the text without the node
    mlir::StringAttr tried; ///< the axis that a strategy tried
  };
  using Reasons = llvm::DenseMap<mlir::Value, Reason>;
  void commit(bool close, const Reasons &reasons = Reasons()) const;

private:
  /// Of an operation: its number of reshards, and whether one remains however shardings grow.
  struct Reshards {
    int64_t all = 0;
    bool isLasting = false;
  };

  bool visit(mlir::Operation *op);
  /// Visits operations of at most this level to a fixpoint; returns false if `stops` ended it.
  bool runToFixpoint(uint8_t level, llvm::function_ref<bool()> stops);
  /// Queues the operations around `value` for another visit.
  void touch(mlir::Value value);
  Reshards countReshards(mlir::Operation *op) const;
  dist::FactorSplits findSplits(mlir::Operation *op) const;

  mlir::func::FuncOp func;
  dist::Mesh mesh;
  llvm::DenseMap<mlir::Value, Entry> entries;
  /// Constant data, shared by copies of this object.
  struct Program {
    llvm::SmallVector<mlir::Operation *> operations;
    /// When each propagates: 0 passes shardings on unchanged, 1 is other movement, 2 contracts or
    /// reduces.
    llvm::SmallVector<uint8_t> levels;
    llvm::DenseMap<mlir::Operation *, unsigned> indices;
    llvm::DenseMap<mlir::Operation *, dist::ShardingRule> rules;
  };
  std::shared_ptr<const Program> program;
  /// Operations whose values changed since they were last visited, and last counted.
  Worklist unvisited, uncounted;
  /// By operation; reset when its values change.
  mutable std::vector<std::optional<dist::FactorSplits>> splits;
  llvm::SmallVector<Reshards> reshards;
  int64_t totalReshards = 0, lastingReshards = 0;
  /// The former entries of changed values, during an attempt.
  llvm::SmallVector<std::pair<mlir::Value, Entry>> *journal = nullptr;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_PROPAGATION_H
