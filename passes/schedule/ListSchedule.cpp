//===- ListSchedule.cpp - the order of a stage's work ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ListSchedule.h"

#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Control.h"
#include "dialects/loom/Work.h"
#include "passes/schedule/BuildProgram.h"
#include "passes/schedule/StateUpdates.h"

using namespace mlir;

namespace gridloom {
namespace {

double getBytes(TypeRange types) {
  double bytes = 0;
  for (Type type : types)
    if (isa<RankedTensorType>(type))
      bytes += loom::getByteSize(type);
  return bytes;
}

/// One operation of the block.
struct Node {
  Operation *op;
  SmallVector<unsigned> successors;
  unsigned numOpen = 0; // producers not scheduled yet
  double seconds = 0;   // on the compute stream, or of the communication
  double toEnd = 0;     // longest path from here to the end
  double earliest = 0;  // when the operands are there
};

class ListScheduler {
public:
  ListScheduler(Block &block, const dist::Mesh &mesh, bool overlap)
      : block(block), mesh(mesh), overlap(overlap) {}
  void run();

private:
  void build();
  void addEdge(unsigned from, unsigned to);
  void orderTransfers();
  void orderStateReaders();
  bool reaches(unsigned from, unsigned to) const;
  double estimate(Operation *op) const;
  /// True for what runs on the compute stream, or makes it wait.
  bool takesTime(const Node &node) const {
    return isa<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp, loom::WhileOp,
               loom::IfOp>(node.op) ||
           (!overlap && isa<dist::StartOp>(node.op));
  }
  void schedule(unsigned index);
  void scheduleFree();
  int pickCompute() const;

  Block &block;
  const dist::Mesh &mesh;
  bool overlap;
  std::vector<Node> nodes; // in program order
  llvm::DenseMap<Operation *, unsigned> indices;
  std::vector<bool> isScheduled;
  SmallVector<Operation *> order;
  double now = 0;                                      // of the compute stream
  llvm::DenseMap<plan::StreamAttr, double> streamFree; // when what is submitted to it is over
};

/// The work of a kernel or library call. Kernels wait for memory.
static cluster::Work getWork(Operation *op) {
  cluster::Work work;
  Value first = op->getNumOperands() ? op->getOperand(0) : op->getResult(0);
  work.type = dist::getNumberType(getElementTypeOrSelf(first.getType()));
  work.readBytes = getBytes(op->getOperandTypes());
  work.writtenBytes = getBytes(op->getResultTypes());
  auto setProduct = [&](double flops, bool isTf32) {
    work.kind = cluster::WorkClass::Contraction;
    work.flops = flops;
    if (isTf32)
      work.type = cluster::NumberType::Tf32;
  };
  if (auto convolution = dyn_cast<plan::ConvolutionOp>(op)) {
    setProduct(convolution.getDescriptor().getFlops(), convolution.getDescriptor().getTf32());
  } else if (auto attention = dyn_cast<plan::AttentionOp>(op)) {
    setProduct(attention.getDescriptor().getFlops(), /*isTf32=*/false);
  } else if (auto matmul = dyn_cast<plan::MatmulOp>(op)) {
    double flops = 2;
    for (int64_t size : matmul.getDescriptor().getSizes())
      flops *= static_cast<double>(size);
    setProduct(flops, matmul.getDescriptor().getTf32());
  }
  return work;
}

double ListScheduler::estimate(Operation *op) const {
  if (isa<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp>(op))
    return cluster::getComputeSeconds(mesh.getMachine(), getWork(op));
  double seconds = 0;
  if (isa<loom::WhileOp, loom::IfOp>(op)) {
    // Once; what matters is that work which does not wait for it goes on before it.
    for (const loom::BodyLink &link : loom::getBodies(op))
      for (Operation &inner : func::FuncOp(link.body).front())
        seconds += estimate(&inner);
  } else if (auto start = dyn_cast<dist::StartOp>(op)) {
    for (Operation &inner : start.getBody().front().without_terminator())
      seconds += loom::getCommunicationSeconds(&inner, mesh);
  }
  return seconds;
}

void ListScheduler::addEdge(unsigned from, unsigned to) {
  if (llvm::is_contained(nodes[from].successors, to))
    return;
  nodes[from].successors.push_back(to);
  ++nodes[to].numOpen;
}

/// Transfers with one peer in one direction meet in the order of their channels. And no stage waits
/// for a channel before it has started to send all lower ones: then the lowest channel not yet met
/// can always meet. Without overlap every transfer is waited for, so all follow their channels.
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
      else if (before.sends && !after.sends)
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

void ListScheduler::build() {
  for (Operation &op : block.without_terminator()) {
    indices[&op] = nodes.size();
    nodes.emplace_back().op = &op;
    nodes.back().seconds = estimate(&op);
  }
  for (auto [i, node] : llvm::enumerate(nodes))
    node.op->walk([&, i = i](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          if (auto it = indices.find(producer); it != indices.end() && it->second != i)
            addEdge(it->second, i);
    });
  orderTransfers();
  orderStateReaders();
  // Edges between transfers follow channels, which may go against program order: a few rounds.
  bool changed = true;
  for (unsigned round = 0; changed && round < 8; ++round) {
    changed = false;
    for (Node &node : llvm::reverse(nodes)) {
      double rest = 0;
      for (unsigned successor : node.successors)
        rest = std::max(rest, nodes[successor].toEnd);
      changed |= node.toEnd != node.seconds + rest;
      node.toEnd = node.seconds + rest;
    }
  }
  isScheduled.assign(nodes.size(), false);
}

void ListScheduler::schedule(unsigned index) {
  Node &node = nodes[index];
  isScheduled[index] = true;
  order.push_back(node.op);
  double end = node.earliest;
  if (takesTime(node)) {
    end = now = std::max(now, node.earliest) + node.seconds;
  } else if (auto start = dyn_cast<dist::StartOp>(node.op)) {
    double &free = streamFree[getStream(&start.getBody().front().front())];
    end = free = std::max({now, node.earliest, free}) + node.seconds;
  }
  for (unsigned successor : node.successors) {
    --nodes[successor].numOpen;
    nodes[successor].earliest = std::max(nodes[successor].earliest, end);
  }
}

/// Everything that is ready and takes no compute: starts, communication that is over, and values
/// that are only names.
void ListScheduler::scheduleFree() {
  for (bool changed = true; changed;) {
    changed = false;
    for (unsigned i = 0; i < nodes.size(); ++i)
      if (!isScheduled[i] && nodes[i].numOpen == 0 && !takesTime(nodes[i]) &&
          (!isa<dist::DoneOp>(nodes[i].op) || nodes[i].earliest <= now)) {
        schedule(i);
        changed = true;
      }
  }
}

/// The ready operation that can start first; of several, the one with most work behind it.
int ListScheduler::pickCompute() const {
  int best = -1;
  for (auto [i, node] : llvm::enumerate(nodes)) {
    if (isScheduled[i] || node.numOpen != 0 || !takesTime(node))
      continue;
    if (best < 0) {
      best = i;
      continue;
    }
    double start = std::max(now, node.earliest), bestStart = std::max(now, nodes[best].earliest);
    if (start < bestStart || (start == bestStart && node.toEnd > nodes[best].toEnd))
      best = i;
  }
  return best;
}

void ListScheduler::run() {
  build();
  while (order.size() < nodes.size()) {
    scheduleFree();
    if (int index = pickCompute(); index >= 0) {
      schedule(index);
      continue;
    }
    // Only communication is left to wait for: the one that is over first.
    int next = -1;
    for (auto [i, node] : llvm::enumerate(nodes))
      if (!isScheduled[i] && node.numOpen == 0 &&
          (next < 0 || node.earliest < nodes[next].earliest))
        next = i;
    if (next < 0)
      break;
    schedule(next);
  }
  // A cycle, through channels that contradict the data flow, keeps the program's order;
  // verification reports it.
  if (order.size() < nodes.size())
    return;
  for (Operation *op : order)
    op->moveBefore(block.getTerminator());
}

} // namespace

void listSchedule(Block &block, const dist::Mesh &mesh, bool overlap) {
  ListScheduler(block, mesh, overlap).run();
}

} // namespace gridloom
