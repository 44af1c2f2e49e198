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
// Where operations have stages, what another stage reads is a node there, too, and the edge to it
// also costs the transfer, which keeps both stages busy. Costs and memory are those of one
// micro-batch. Each stage has a stretch of the time line of its own, so that one limit holds for
// the devices of every stage.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITPROBLEM_H
#define GRIDLOOM_PASSES_SHARD_SPLITPROBLEM_H

#include "compiler/solver/Problem.h"
#include "dialects/loom/Kernels.h"
#include "passes/shard/SplitPrices.h"
#include "passes/shard/StageCuts.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace gridloom {

/// The share of a cost at which a search stops: estimates are not so exact that less would tell two
/// ways to split apart.
inline constexpr double kSearchGap = 1e-6;

class SplitProblem {
public:
  /// Over all functions but bodies of loops and branches, which are left whole. What is sharded
  /// already restricts the choices: a closed dimension stays as it is, an open one may get more
  /// axes; what is stored in a given way lies so and is read otherwise; what is cut into
  /// micro-batches stays so. `axes` are those to split over, major before minor. Operations without
  /// a stage are in the first. What is cut into micro-batches is split over `batch` along the same
  /// dimension, no more and no less: nothing moves rows from one micro-batch to another.
  /// A problem whose tables of costs take more than `mostBytes` has none of them. One that
  /// `boundsTime` leaves out what a program may not have to pay: a little for what is kept, which
  /// tells equals apart, and the bytes of copies that cut out a device's part, which fusion may
  /// spare. `prices` that other problems have left spare this one to find them; it may be null. Of
  /// a message that other work can run beside, the share `hiddenShare` costs nothing.
  SplitProblem(mlir::ModuleOp module, llvm::ArrayRef<mlir::StringAttr> axes,
               llvm::ArrayRef<mlir::StringAttr> batch, const dist::Mesh &mesh, uint64_t mostBytes,
               bool boundsTime = false, std::shared_ptr<SplitPrices> prices = nullptr,
               double hiddenShare = 0);

  /// What the tables of costs between two nodes take.
  uint64_t getTableBytes() const { return tableBytes; }
  bool isTooLarge() const { return tableBytes > mostBytes; }

  /// Whether there is a way to split each operation.
  bool hasChoices() const;
  /// The operations, in order, with the number of ways to split each node: an assignment is of no
  /// other program than one of the same.
  std::string describeOrder() const;
  /// Adds what it takes to reshard between the operations. Only what applies an assignment does
  /// without.
  void connect();
  /// Costs are in units of time chosen by the program, usages in bytes: of weights, states, inputs
  /// and outputs, and of what operations make while it is read. With `memoryBytes` above 0 a device
  /// keeps at most so many.
  solver::Problem makeProblem(int64_t memoryBytes) const;
  /// Of each node the strategies that split nothing, or one factor or dimension over as many
  /// devices as it can be; all of a node that has none of these. Programs of many small operations,
  /// such as unrolled loops, are often best split so, in the same way throughout.
  std::vector<std::vector<uint32_t>> listUniform() const;
  /// Writes the splits that the assignment gives the operations, and the shardings that it gives
  /// the values, closed, with the origin. Weights are split as they are stored, and what has a body
  /// as its body is: they get no splits.
  void apply(const solver::Assignment &assignment, llvm::StringRef origin);

  /// The axes that split any value.
  llvm::DenseSet<mlir::StringAttr> getUsedAxes() const;

  /// The seconds of all functions together, each by one micro-batch through all stages
  /// and m - 1 times its slowest one.
  double getStepSeconds(const solver::Assignment &assignment) const;
  /// No assignment takes fewer seconds if none costs less than `cost`: the slowest of p stages
  /// takes at least the p-th part of all.
  double getStepBound(solver::Cost cost) const;
  /// What each operation takes, with the resharding of what it makes, and what each value then has
  /// of bytes on a device.
  StageCosts getStageCosts(const solver::Assignment &assignment) const;

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
    std::vector<int64_t> usages;             ///< bytes; none of a value within a function
    solver::Interval interval;               ///< in numbers of operations, all functions together
    mlir::Operation *payer = nullptr;        ///< whose time the costs are, always there
    bool isReceived = false;
  };
  /// That of every pair of shardings, row-major.
  using Table = std::vector<solver::Cost>;
  /// One node's tensor is another's.
  struct Use {
    unsigned from, to;
    size_t fromTensor, toTensor;
    const Table *reshards;
    Table transfers; ///< to send as much as to receive, each in its stage; empty within a stage
  };
  /// What is to pay between two nodes, each of whose strategies has a row or column.
  struct Link {
    llvm::SmallVector<Use, 1> uses;
    mlir::Operation *payer = nullptr, *receiver = nullptr;
  };
  /// Ways to split an operation, shared by all like it.
  struct Choices {
    std::vector<solver::Cost> costs;
    std::vector<Column> tensors;
    std::vector<dist::SplitsAttr> splits;
  };

  /// How a reader takes a value of which it needs another part.
  enum class Taking {
    CutsItself, ///< its kernel cuts out a device's part
    CutsApart,  ///< the cut takes a kernel of its own
    SameKernel, ///< it is one kernel with the producer, if neither a message nor a cut is between
    Epilogue,   ///< the same, of a library call
  };
  struct Reader {
    Taking taking = Taking::CutsItself;
    /// The permutation of a transpose that the producer spares, if no message is between.
    mlir::DenseI64ArrayAttr order;
    bool isBeside = false; ///< other work can run beside the message
  };

  solver::Cost toCost(double seconds) const;
  double toSeconds(solver::Cost cost) const;
  bool splitsBatch(dist::ShardingAttr sharding) const;
  /// Bytes of a device's part.
  int64_t getLocalBytes(mlir::RankedTensorType type, dist::ShardingAttr sharding) const;
  solver::Cost getTieBreak(mlir::RankedTensorType type, dist::ShardingAttr sharding) const;
  /// Positions of operations in time: stages one after another, in each the functions.
  void setTimes();
  int64_t getStage(mlir::Operation *op) const;
  /// The function and stage of the operation, as one number.
  size_t getPart(mlir::Operation *op) const;
  void setWork();
  /// Whether work that neither makes the value nor needs its readers takes as long as the value may
  /// take to be sent. `readers` are those that wait for the message.
  bool hasWorkBeside(mlir::Value value, llvm::ArrayRef<mlir::Operation *> readers) const;
  void collectStatePins();
  void addFunction(mlir::func::FuncOp func);
  void addOperation(mlir::Operation *op);
  void keepGiven(Node &node, mlir::Value weight) const;
  void setUsage(mlir::Operation *op, int64_t begin);
  void setBoundUsage(mlir::Value value);
  const Choices &getChoices(mlir::Operation *op);
  /// Whether all operands are made in partial sums by some way to split their operations, and the
  /// operation is one that may take them so.
  bool mayPassSums(mlir::Operation *op) const;
  /// Whether the reader of a value, or a kernel of its own, cuts out a device's part. `reader` is
  /// null if there are several. Parts of weights, and of operations that float, are made directly.
  Taking getCutter(mlir::Value value, mlir::Operation *reader) const;
  /// The same for an operand that comes from a node, which may be in the kernel of its producer.
  Reader getReader(unsigned from, mlir::OpOperand &operand) const;
  /// Whether the value has a node of its own; otherwise its one reader takes it from its producer.
  bool needsNode(mlir::Value value) const;
  void addValue(mlir::Value value);
  bool isReadUnreduced(mlir::Value value, dist::ShardingAttr sharding) const;
  /// Nodes for a value in the stages that receive it.
  void addReceived(mlir::Value value);
  void connectReceived(mlir::Value value);
  void connectOperations(mlir::func::FuncOp func);
  void connectReturn(mlir::func::FuncOp func);
  void addEdge(unsigned from, size_t fromTensor, unsigned to, size_t toTensor,
               mlir::RankedTensorType type, Reader reader, mlir::Operation *payer,
               mlir::Operation *receiver = nullptr);
  /// The place in the use's tables where its nodes have these strategies, the lower node first.
  size_t getPlace(const Use &use, size_t first, size_t second) const;
  solver::Cost getReshards(const Link &link, size_t first, size_t second) const;
  solver::Cost getTransfers(const Link &link, size_t first, size_t second) const;
  /// The costs of both nodes' strategies, row-major.
  void fillCosts(const Link &link, unsigned first, unsigned second,
                 std::span<solver::Cost> costs) const;
  std::string describeCosts(const Link &link) const;
  /// Every cost of the assignment, with the operation whose time it is.
  void forEachCost(const solver::Assignment &assignment, bool transfers,
                   llvm::function_ref<void(mlir::Operation *, solver::Cost)> visit) const;
  const std::vector<SplitPrices::Choice> &getPriced(mlir::Operation *op, bool passes,
                                                    llvm::StringRef key);
  const dist::Sharding &getValue(dist::ShardingAttr sharding) const;
  SplitPrices::Reshard findReshard(mlir::RankedTensorType type, dist::ShardingAttr from,
                                   dist::ShardingAttr to) const;
  const Table &getTable(mlir::RankedTensorType type, const Column &makes, const Column &needs,
                        bool isDeclared, Reader reader);
  /// Of a device's part, on either side.
  solver::Cost getSendCost(mlir::RankedTensorType type, dist::ShardingAttr sharding) const;
  /// The node and tensor that make the value.
  std::pair<unsigned, size_t> getSource(mlir::Value value) const;
  /// The same for a reader, which may be in another stage.
  std::pair<unsigned, size_t> getSource(mlir::Value value, mlir::Operation *reader) const;
  dist::ShardingAttr getChosen(mlir::Value value, const solver::Assignment &assignment) const;

  const dist::Mesh &mesh;
  llvm::SmallVector<mlir::StringAttr> axes, batch;
  llvm::SmallVector<mlir::StringAttr, 1> stageAxes;
  int64_t stages, microbatches;
  loom::Libraries libraries;
  uint64_t mostBytes, tableBytes = 0;
  double unitsPerSecond = 0;
  bool boundsTime;
  double hiddenShare;
  std::vector<Node> nodes;
  llvm::MapVector<mlir::Value, unsigned> valueNodes;
  llvm::MapVector<std::pair<mlir::Value, int64_t>, unsigned> received; ///< by stage
  llvm::DenseMap<mlir::Operation *, unsigned> opNodes;
  llvm::DenseMap<mlir::Operation *, int64_t> times;
  /// By time, with the seconds of a device's even share; empty if all messages cost all their time.
  std::vector<std::pair<mlir::Operation *, double>> work;
  llvm::DenseSet<mlir::Value> sums; ///< what some way to split its operation leaves partial
  llvm::SmallVector<solver::Interval> partTimes, stageTimes;
  llvm::DenseMap<mlir::Operation *, size_t> functionNumbers;
  llvm::DenseMap<mlir::StringAttr, unsigned> stateNodes;
  llvm::DenseMap<mlir::StringAttr, dist::ShardingAttr> statePins;
  /// By name, stage and number among the copies there, which may differ; functions do not.
  llvm::DenseMap<std::tuple<mlir::Attribute, int64_t, int64_t>, unsigned> weightNodes;
  llvm::DenseMap<std::pair<mlir::Attribute, int64_t>, int64_t> weightCopies; ///< in the function
  llvm::SmallVector<mlir::func::FuncOp> functions;
  std::map<std::pair<unsigned, unsigned>, Link> edges;
  llvm::StringMap<Choices> known;
  std::shared_ptr<SplitPrices> prices;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITPROBLEM_H
