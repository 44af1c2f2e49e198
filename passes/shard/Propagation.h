//===- Propagation.h - shardings spread over a function ---------*- C++ -*-===//
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

/// Numbers below a limit, in order from either end. What is far from all of them costs nothing.
class Worklist {
public:
  void fill(size_t count);
  void insert(size_t number);
  void erase(size_t number) { bits.reset(number); }
  void clear();
  /// -1 where there is none.
  int getFirst();
  int getLast();
  int getNext(int number) const;
  int getPrevious(int number) const;

private:
  llvm::BitVector bits;
  /// All numbers are from `begin` to below `end`.
  size_t begin = 0, end = 0;
};

/// The shardings of all values of one function, and the way they grow.
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

  /// Adds `axis` as the minor axis of a dimension cut on multiples of `granule`, when the dimension
  /// is open and large enough, is not cut into micro-batches, and the value does not use the axis.
  /// The axis of micro-batches divides a dimension evenly, a closed one too. Returns whether it
  /// did.
  bool addAxis(mlir::Value value, int64_t dim, mlir::StringAttr axis, llvm::StringRef origin,
               int64_t granule = 1);

  /// Applies the operations' rules until nothing changes: first of those that pass shardings on as
  /// they are (elementwise, reshape, transpose), then of other moves, then of contractions and
  /// reductions, so that where shardings meet, the nearer one was there first. Stops early where
  /// `isHopeless`, which is asked ever more seldom, says so. Returns how often operations were
  /// visited.
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

  /// How an operation's factors are split: as it says itself, else as merged from its tensors'
  /// shardings. Valid until one of these changes.
  const dist::FactorSplits &getSplits(mlir::Operation *op) const;

  /// The shardings an operation requires of its tensors, given how it is split. One sharding per
  /// tensor.
  llvm::SmallVector<dist::Sharding> getRequired(mlir::Operation *op) const;

  /// The number of operands that would move between devices other than by reducing partial sums.
  /// Tells the indices of operations whose values may have changed since it was counted last, and
  /// what it was for them.
  int64_t countReshards(llvm::function_ref<void(size_t, int64_t)> recounted);
  /// The same of one operation, as it was counted last.
  int64_t getReshards(size_t index) const { return reshards[index].all; }
  /// As many there will be at least, whatever is split more: operations that cannot take a tensor
  /// as it is split, or have two that they cannot both take so.
  int64_t getLeastReshards() const { return lastingReshards; }

  /// Runs `trial`, and takes back what it changed here unless it returns true; returns what it did.
  bool attempt(llvm::function_ref<bool()> trial);

  /// Writes shardings and origins onto the function; `close` ends their growth. `reasons` are the
  /// origins of values that are not split.
  struct Reason {
    /// The deciding fact: the value or the mesh, an operation next to it, what a strategy tried in
    /// vain, the reason of a value near it, or nothing.
    enum class Basis { Value, Operation, Strategy, Neighbour, Nothing };
    Basis basis;
    std::string text;
    std::string kind;       ///< the same without the node
    mlir::StringAttr tried; ///< the strategy's axis
  };
  using Reasons = llvm::DenseMap<mlir::Value, Reason>;
  void commit(bool close, const Reasons &reasons = Reasons()) const;

private:
  /// Of an operation: how many of its tensors move, and whether some will, however they grow.
  struct Reshards {
    int64_t all = 0;
    bool isLasting = false;
  };

  bool visit(mlir::Operation *op);
  /// Visits operations of at most this level until nothing changes, or it is to stop; whether it
  /// was not.
  bool runToFixpoint(uint8_t level, llvm::function_ref<bool()> stops);
  /// Notes that operations around `value` have to be seen again.
  void touch(mlir::Value value);
  Reshards countReshards(mlir::Operation *op) const;
  dist::FactorSplits findSplits(mlir::Operation *op) const;

  mlir::func::FuncOp func;
  dist::Mesh mesh;
  llvm::DenseMap<mlir::Value, Entry> entries;
  /// Constant data, shared by the copies for every seed that is tried.
  struct Program {
    llvm::SmallVector<mlir::Operation *> operations;
    /// When each speaks: 0 for those that speak first, 1 for those before contractions, 2 for
    /// these.
    llvm::SmallVector<uint8_t> levels;
    llvm::DenseMap<mlir::Operation *, unsigned> indices;
    llvm::DenseMap<mlir::Operation *, dist::ShardingRule> rules;
  };
  std::shared_ptr<const Program> program;
  /// Operations whose values changed since they were last visited, and last counted.
  Worklist unvisited, uncounted;
  /// By operation, as long as its values have not changed.
  mutable std::vector<std::optional<dist::FactorSplits>> splits;
  llvm::SmallVector<Reshards> reshards;
  int64_t totalReshards = 0, lastingReshards = 0;
  /// Entries before they changed, during an attempt.
  llvm::SmallVector<std::pair<mlir::Value, Entry>> *journal = nullptr;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_PROPAGATION_H
