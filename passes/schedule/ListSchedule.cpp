//===- ListSchedule.cpp - the order of a stage's work ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ListSchedule.h"

#include "dialects/dist/Gathered.h"
#include "dialects/loom/Control.h"
#include "dialects/loom/Parts.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/Work.h"
#include "dialects/plan/Work.h"
#include "passes/schedule/BuildProgram.h"
#include "passes/schedule/Deferral.h"
#include "passes/schedule/GatherWindow.h"
#include "passes/schedule/ListRun.h"
#include "passes/schedule/LiveMemory.h"
#include "passes/schedule/StateUpdates.h"

using namespace mlir;

namespace gridloom {
namespace {

using Kind = ScheduleNode::Kind;

/// The graph of a block's operations, and its order.
class ListScheduler {
public:
  ListScheduler(Block &block, const dist::Mesh &mesh, bool overlap)
      : block(block), mesh(mesh), overlap(overlap), isOfStep(isStageOfStep()),
        isInOrder(isOfStep || has(loom::kParts) || has(dist::kGatherWindow)) {}
  DeferredStarts run();

private:
  void build(bool keepsOrder);
  bool isStageOfStep() const;
  bool has(StringRef attribute) const {
    auto function = dyn_cast<func::FuncOp>(block.getParentOp());
    return function && function->hasAttr(attribute);
  }
  void addEdge(unsigned from, unsigned to);
  void orderTransfers();
  void orderStateReaders();
  void orderGathers();
  bool reaches(unsigned from, unsigned to) const;
  double estimate(Operation *op) const;
  Kind getKind(Operation *op) const;
  bool isDeferrable(unsigned index) const;
  DeferredStarts defer(ListOrder &order) const;
  void keepOrder(ArrayRef<unsigned> order);
  void saveMemory(ListOrder &order);

  Block &block;
  const dist::Mesh &mesh;
  bool overlap, isOfStep;
  bool isInOrder;                  ///< compute follows the program
  std::vector<ScheduleNode> nodes; // in program order
  llvm::DenseMap<Operation *, unsigned> indices;
  llvm::DenseSet<std::pair<unsigned, unsigned>> edges;
  DeferredStarts waiting;                ///< gathers that wait for room
  mutable SymbolTableCollection symbols; ///< looked up in all of the module once
};

double ListScheduler::estimate(Operation *op) const {
  if (isa<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp>(op))
    return cluster::getComputeSeconds(mesh.getMachine(), plan::getWork(op, symbols));
  double seconds = 0;
  if (isa<loom::WhileOp, loom::IfOp>(op)) {
    // Once; what matters is that work which does not wait for it goes on before it.
    for (const loom::BodyLink &link : loom::getBodies(op))
      for (Operation &inner : func::FuncOp(link.body).front())
        seconds += estimate(&inner);
  } else if (isa<dist::StartOp>(op)) {
    seconds = loom::getCommunicationSeconds(op, mesh);
  }
  return seconds;
}

/// What runs on the compute stream, or makes it wait, is compute.
Kind ListScheduler::getKind(Operation *op) const {
  if (isa<dist::StartOp>(op))
    return overlap ? Kind::Start : Kind::Compute;
  if (isa<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp, loom::WhileOp,
          loom::IfOp>(op))
    return Kind::Compute;
  return isa<dist::DoneOp>(op) ? Kind::Done : Kind::Name;
}

void ListScheduler::addEdge(unsigned from, unsigned to) {
  if (!edges.insert({from, to}).second)
    return;
  nodes[from].successors.push_back(to);
  ++nodes[to].numProducers;
}

/// Whether the block is a stage of a training step, of which some send to later stages and to
/// earlier ones.
bool ListScheduler::isStageOfStep() const {
  auto function = dyn_cast<func::FuncOp>(block.getParentOp());
  return function && loom::isTrainStep(function) &&
         llvm::any_of(block.getOps<dist::StartOp>(), [](dist::StartOp start) {
           return llvm::any_of(start.getBody().front(),
                               [](Operation &op) { return isa<dist::SendOp, dist::RecvOp>(op); });
         });
}

/// Transfers with one peer in one direction meet in the order of their channels. And no stage waits
/// for a channel before it has started to send all lower ones: then the lowest channel not yet met
/// can always meet. Without overlap every transfer is waited for, so all follow their channels.
/// In training steps, whose stages send both ways, no stage starts to receive before that, either:
/// the memory would be taken from the beginning of the step. Nor does one wait there for a channel
/// before it has started to receive all lower ones.
void ListScheduler::orderTransfers() {
  struct Transfer {
    int64_t channel, peer;
    unsigned start;
    bool sends;
    bool operator<(const Transfer &other) const { return channel < other.channel; }
  };
  SmallVector<Transfer> transfers;
  for (auto [i, node] : llvm::enumerate(nodes)) {
    auto start = dyn_cast<dist::StartOp>(node.op);
    if (!start)
      continue;
    for (Operation &op : start.getBody().front()) {
      if (auto send = dyn_cast<dist::SendOp>(op))
        transfers.push_back({static_cast<int64_t>(send.getChannel()),
                             static_cast<int64_t>(send.getStage()), static_cast<unsigned>(i),
                             true});
      else if (auto recv = dyn_cast<dist::RecvOp>(op))
        transfers.push_back({static_cast<int64_t>(recv.getChannel()),
                             static_cast<int64_t>(recv.getStage()), static_cast<unsigned>(i),
                             false});
    }
  }
  llvm::stable_sort(transfers);
  for (auto [i, before] : llvm::enumerate(transfers)) {
    for (const Transfer &after : ArrayRef(transfers).drop_front(i + 1)) {
      if (before.start == after.start)
        continue;
      if (!overlap || (before.sends == after.sends && before.peer == after.peer))
        addEdge(before.start, after.start);
      else if (before.sends && !after.sends && isOfStep)
        addEdge(before.start, after.start);
      else if (!after.sends && (before.sends || isOfStep))
        for (Operation *done : nodes[after.start].op->getUsers())
          addEdge(before.start, indices.lookup(done));
    }
  }
}

bool ListScheduler::reaches(unsigned from, unsigned to) const {
  SmallVector<unsigned> open{from};
  llvm::DenseSet<unsigned> seen{from};
  while (!open.empty()) {
    unsigned node = open.pop_back_val();
    if (node == to)
      return true;
    for (unsigned successor : nodes[node].successors)
      if (seen.insert(successor).second)
        open.push_back(successor);
  }
  return false;
}

/// Readers of a state's old value come before its update, which can then be in place.
void ListScheduler::orderStateReaders() {
  for (const StateUpdate &update : findStateUpdates(cast<func::FuncOp>(block.getParentOp()))) {
    unsigned writer = indices.lookup(update.writer);
    for (Operation *reader : update.readers)
      if (auto it = indices.find(reader); it != indices.end() && !reaches(writer, it->second))
        addEdge(it->second, writer);
  }
}

/// Gathered parameters wait for room in their window.
void ListScheduler::orderGathers() {
  waiting.clear();
  for (auto [before, start] : findGatherWaits(block)) {
    addEdge(indices.lookup(before), indices.lookup(start));
    waiting.insert(start);
  }
}

/// Where the order is kept, compute follows the program, in which forward and backward work of a
/// training step take turns: no estimate of one stage tells when another one sends, and the
/// activations of one part of a batch end before those of the next begin.
void ListScheduler::build(bool keepsOrder) {
  nodes.clear();
  indices.clear();
  edges.clear();
  llvm::DenseMap<plan::StreamAttr, unsigned> streams;
  for (Operation &op : block.without_terminator()) {
    indices[&op] = nodes.size();
    ScheduleNode &node = nodes.emplace_back();
    node.op = &op;
    node.kind = getKind(&op);
    node.seconds = estimate(&op);
    if (auto start = dyn_cast<dist::StartOp>(op))
      node.stream = streams.try_emplace(getStream(&start.getBody().front().front()), streams.size())
                        .first->second;
  }
  for (unsigned i = 0; i < nodes.size(); ++i)
    nodes[i].op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          if (auto it = indices.find(producer); it != indices.end() && it->second != i)
            addEdge(it->second, i);
    });
  orderTransfers();
  if (keepsOrder)
    keepOrder(llvm::to_vector(llvm::seq<unsigned>(0, nodes.size())));
  orderStateReaders();
  orderGathers();
  // Edges between transfers follow channels, which may go against program order.
  measurePaths(nodes);
}

/// True for collectives. A peer waits for a transfer.
bool ListScheduler::isDeferrable(unsigned index) const {
  auto start = dyn_cast<dist::StartOp>(nodes[index].op);
  return nodes[index].kind == Kind::Start &&
         llvm::none_of(start.getBody().front(),
                       [](Operation &op) { return isa<dist::SendOp, dist::RecvOp>(op); });
}

/// Only training steps are ordered to save memory: their backward part keeps what the forward part
/// has computed. Without communication the order decides about memory alone. With it, compute has
/// this order if the step takes hardly longer by that; its values are read while they are in
/// caches, which no estimate counts.
void ListScheduler::saveMemory(ListOrder &order) {
  constexpr double kLonger = 0.005;
  constexpr int64_t kMore = 32; // fraction of the memory
  auto function = dyn_cast<func::FuncOp>(block.getParentOp());
  bool communicates =
      llvm::any_of(nodes, [](const ScheduleNode &node) { return isa<dist::StartOp>(node.op); });
  if (!function || !loom::isTrainStep(function) || (communicates && isInOrder))
    return;
  LiveMemory memory(block, nodes);
  std::vector<unsigned> frugal = memory.getFrugalOrder(nodes);
  int64_t peak = memory.getPeak(order.order);
  if (!communicates) {
    if (memory.getPeak(frugal) <= peak)
      order.order = std::move(frugal);
    return;
  }
  std::vector<ScheduleNode> before = nodes;
  keepOrder(frugal);
  ListOrder other = runList(nodes);
  if (other.order.size() == nodes.size() && other.end <= order.end * (1 + kLonger) &&
      memory.getPeak(other.order) <= peak + peak / kMore)
    order = std::move(other);
  else
    nodes = std::move(before);
}

/// Has compute follow an order.
void ListScheduler::keepOrder(ArrayRef<unsigned> order) {
  std::optional<unsigned> last;
  for (unsigned i : order)
    if (nodes[i].kind == Kind::Compute) {
      if (last)
        addEdge(*last, i);
      last = i;
    }
}

/// Defers starts of collectives; returns those that are.
DeferredStarts ListScheduler::defer(ListOrder &order) const {
  LiveMemory memory(block, nodes);
  std::vector<int64_t> added(nodes.size(), 0);
  for (unsigned i = 0; i < nodes.size(); ++i)
    if (isDeferrable(i))
      added[i] = memory.getAdded(i);
  DeferredStarts deferred;
  for (unsigned index :
       deferStarts(nodes, added, [&](ArrayRef<unsigned> of) { return memory.getPeak(of); }, order))
    deferred.insert(nodes[index].op);
  return deferred;
}

DeferredStarts ListScheduler::run() {
  sinkGathers(block);
  build(/*keepsOrder=*/isInOrder);
  ListOrder chosen = runList(nodes);
  if (isInOrder && chosen.order.size() < nodes.size()) {
    build(/*keepsOrder=*/false);
    chosen = runList(nodes);
  }
  // A cycle, through channels that contradict the data flow, keeps the program's order;
  // verification reports it.
  if (chosen.order.size() < nodes.size())
    return {};
  saveMemory(chosen);
  DeferredStarts deferred = defer(chosen);
  deferred.insert(waiting.begin(), waiting.end());
  for (unsigned index : chosen.order)
    nodes[index].op->moveBefore(block.getTerminator());
  return deferred;
}

} // namespace

DeferredStarts listSchedule(Block &block, const dist::Mesh &mesh, bool overlap) {
  return ListScheduler(block, mesh, overlap).run();
}

} // namespace gridloom
