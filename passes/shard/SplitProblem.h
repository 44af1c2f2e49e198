//===- SplitProblem.h - the choice of all splits as one problem -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A node of the problem is an operation, with the ways to split it, or a value that is read more
// than once, with the shardings it may have. The cost of an operation is the time of a device's
// share; the cost of an edge is the time to reshard from what one end makes to what the other
// needs, reductions of partial results included. The objective is the serial time of all functions
// together, as in Alpa's intra-operator problem (Zheng et al. 2022, section 4).
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITPROBLEM_H
#define GRIDLOOM_PASSES_SHARD_SPLITPROBLEM_H

#include "compiler/solver/Problem.h"
#include "passes/shard/SplitChoices.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

#include <map>

namespace gridloom {

class SplitProblem {
public:
  /// Over all functions but bodies of loops and branches, which are left whole. What is sharded
  /// already restricts the choices: a closed dimension stays as it is, an open one may get more
  /// axes. `axes` are those to split over, major before minor.
  SplitProblem(mlir::ModuleOp module, llvm::ArrayRef<mlir::StringAttr> axes,
               const dist::Mesh &mesh);

  /// Costs are in picoseconds, usages in bytes: of weights, and of what operations make while it is
  /// read. With `memoryBytes` above 0 a device keeps at most so many.
  solver::Problem makeProblem(int64_t memoryBytes) const;
  /// Writes the splits that the assignment gives the operations, and the shardings that it gives
  /// the values, closed, with the origin. Weights are split as they are stored, and what has a body
  /// as its body is: they get no splits.
  void apply(const solver::Assignment &assignment, llvm::StringRef origin);

  /// The axes that split any value.
  llvm::DenseSet<mlir::StringAttr> getUsedAxes() const;

private:
  /// The different shardings of one tensor, with the choice of each strategy among them.
  struct Column {
    llvm::SmallVector<dist::ShardingAttr> shardings;
    llvm::SmallVector<unsigned> of; ///< by strategy
    void add(dist::ShardingAttr sharding);
    dist::ShardingAttr get(size_t strategy) const { return shardings[of[strategy]]; }
  };
  struct Node {
    std::vector<solver::Cost> costs;
    std::vector<Column> tensors; ///< of an operation: operands, then results; of a value: one
    llvm::ArrayRef<dist::SplitsAttr> splits; ///< of an operation, by strategy; none of a value
    std::vector<int64_t> usages;             ///< bytes; none of a value
    solver::Interval interval;               ///< in numbers of operations, all functions together
  };
  /// Ways to split an operation, shared by all like it.
  struct Choices {
    std::vector<solver::Cost> costs;
    std::vector<Column> tensors;
    std::vector<dist::SplitsAttr> splits;
  };

  void collectStatePins();
  void addFunction(mlir::func::FuncOp func);
  void addOperation(mlir::Operation *op);
  void setUsage(mlir::Operation *op, int64_t begin);
  const Choices &getChoices(mlir::Operation *op);
  /// Whether all operands are made in partial sums by some way to split their operations, and the
  /// operation is one that may take them so.
  bool mayPassSums(mlir::Operation *op) const;
  /// Whether the value has a node of its own; otherwise its one reader takes it from its producer.
  bool needsNode(mlir::Value value) const;
  void addValue(mlir::Value value);
  bool isReadUnreduced(mlir::Value value, dist::ShardingAttr sharding) const;
  void connect(mlir::func::FuncOp func);
  void connectReturn(mlir::func::FuncOp func);
  void addEdge(unsigned from, size_t fromTensor, unsigned to, size_t toTensor,
               mlir::RankedTensorType type);
  solver::Cost getReshardCost(mlir::RankedTensorType type, dist::ShardingAttr from,
                              dist::ShardingAttr to);
  /// The node and tensor that make the value.
  std::pair<unsigned, size_t> getSource(mlir::Value value) const;
  dist::ShardingAttr getChosen(mlir::Value value, const solver::Assignment &assignment) const;

  const dist::Mesh &mesh;
  llvm::SmallVector<mlir::StringAttr> axes;
  std::vector<Node> nodes;
  llvm::MapVector<mlir::Value, unsigned> valueNodes;
  llvm::DenseMap<mlir::Operation *, unsigned> opNodes;
  llvm::DenseMap<mlir::Operation *, int64_t> times;
  llvm::DenseSet<mlir::Value> sums; ///< what some way to split its operation leaves partial
  llvm::DenseMap<mlir::StringAttr, unsigned> stateNodes;
  llvm::DenseMap<mlir::StringAttr, dist::ShardingAttr> statePins;
  /// By name and number among the copies in a function, which may differ; functions do not.
  llvm::DenseMap<std::pair<mlir::Attribute, int64_t>, unsigned> weightNodes;
  llvm::DenseMap<mlir::Attribute, int64_t> weightCopies; ///< so far, in the function
  llvm::SmallVector<mlir::func::FuncOp> functions;
  std::map<std::pair<unsigned, unsigned>, std::vector<solver::Cost>> edges;
  llvm::StringMap<Choices> known;
  llvm::DenseMap<std::tuple<mlir::Type, mlir::Attribute, mlir::Attribute>, solver::Cost> reshards;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITPROBLEM_H
