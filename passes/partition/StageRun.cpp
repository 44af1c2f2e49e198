//===- StageRun.cpp - the order of a training step's work -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/StageRun.h"

#include "dialects/loom/Work.h"
#include "passes/partition/Partition.h"

#include <limits>
#include <numeric>
#include <set>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Seconds between the ends of operations that take no time, to keep them in order.
static constexpr double kTick = 1e-12;

namespace {

/// Simulates all stages, one event at a time, the earliest first.
class StageRun {
public:
  StageRun(func::FuncOp func, const Mesh &mesh, ArrayRef<StringAttr> stageAxes);
  std::vector<Operation *> run();

private:
  struct Node {
    Operation *op;
    size_t stage;
    double seconds; // of the stage's time
    double beside;  // of a collective, until its result is there
    unsigned numOpen = 0;
    double ready = 0, end = 0;
  };
  struct Stage {
    double isFree = 0;
    std::set<std::pair<double, unsigned>> later; // by the time when their operands are there
    std::set<unsigned> now;                      // operands are there when the stage is free
  };

  void start(unsigned index, double time);
  double getNextStart(Stage &stage);

  const Mesh &mesh;
  SmallVector<StringAttr, 1> stageAxes;
  std::vector<Node> nodes; // in program order
  llvm::DenseMap<Operation *, unsigned> indices;
  std::vector<Stage> stages;
};

} // namespace

StageRun::StageRun(func::FuncOp func, const Mesh &mesh, ArrayRef<StringAttr> stageAxes)
    : mesh(mesh), stageAxes(stageAxes) {
  for (Operation &op : func.front().without_terminator()) {
    indices[&op] = static_cast<unsigned>(nodes.size());
    Node &node = nodes.emplace_back();
    node.op = &op;
    node.stage = static_cast<size_t>(getStageAttr(&op).getInt());
    bool communicates = isCommunication(&op);
    node.seconds = communicates ? 0 : loom::getComputeSeconds(&op, mesh.getMachine());
    node.beside = communicates ? loom::getCommunicationSeconds(&op, mesh) : 0;
    for (Value operand : op.getOperands())
      node.numOpen += operand.getDefiningOp() != nullptr;
    if (stages.size() <= node.stage)
      stages.resize(node.stage + 1);
    if (node.numOpen == 0)
      stages[node.stage].later.insert({0, indices[&op]});
  }
}

/// When the stage can begin its next operation; infinite if none is ready.
double StageRun::getNextStart(Stage &stage) {
  if (!stage.now.empty())
    return stage.isFree;
  if (stage.later.empty())
    return std::numeric_limits<double>::infinity();
  return std::max(stage.isFree, stage.later.begin()->first);
}

void StageRun::start(unsigned index, double time) {
  Node &node = nodes[index];
  Stage &stage = stages[node.stage];
  stage.isFree = time + node.seconds + kTick;
  node.end = stage.isFree + node.beside;
  for (OpResult result : node.op->getResults()) {
    double sent =
        mesh.getSeconds(cluster::Collective::Send,
                        static_cast<double>(loom::getByteSize(result.getType())), stageAxes);
    for (Operation *user : result.getUsers()) {
      auto found = indices.find(user);
      if (found == indices.end())
        continue; // the terminator
      Node &reader = nodes[found->second];
      reader.ready = std::max(reader.ready, node.end + (reader.stage == node.stage ? 0 : sent));
      if (--reader.numOpen == 0)
        stages[reader.stage].later.insert({reader.ready, found->second});
    }
  }
}

std::vector<Operation *> StageRun::run() {
  while (true) {
    Stage *next = nullptr;
    double time = std::numeric_limits<double>::infinity();
    for (Stage &stage : stages)
      if (double start = getNextStart(stage); start < time) {
        time = start;
        next = &stage;
      }
    if (!next)
      break;
    for (; !next->later.empty() && next->later.begin()->first <= time;
         next->later.erase(next->later.begin()))
      next->now.insert(next->later.begin()->second);
    unsigned index = *next->now.begin();
    next->now.erase(next->now.begin());
    start(index, time);
  }
  std::vector<unsigned> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](unsigned a, unsigned b) { return nodes[a].end < nodes[b].end; });
  std::vector<Operation *> ops;
  for (unsigned index : order)
    ops.push_back(nodes[index].op);
  return ops;
}

std::vector<Operation *> gridloom::runStages(func::FuncOp func, const Mesh &mesh,
                                             ArrayRef<StringAttr> stageAxes) {
  return StageRun(func, mesh, stageAxes).run();
}
