//===- LiveMemory.cpp - memory in use for some order of a block -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/LiveMemory.h"

#include "dialects/loom/Control.h"
#include "dialects/plan/Plan.h"
#include "passes/schedule/Messages.h"
#include "passes/schedule/StateUpdates.h"

#include <limits>
#include <tuple>

using namespace mlir;

namespace gridloom {

/// A value under another shape or a part of one, which no step computes.
static bool isView(Operation *op) { return isa<loom::ReshapeOp, loom::SliceOp>(op); }

unsigned LiveMemory::addBuffer(unsigned node, Value value, bool isRegistered) {
  made[node].push_back(buffers.size());
  buffers.push_back({loom::getByteSize(value.getType()), isRegistered});
  return owners[value] = buffers.size() - 1;
}

void LiveMemory::addUse(unsigned node, Value value) {
  if (auto it = owners.find(value); it != owners.end()) {
    used[node].push_back(it->second);
    ++buffers[it->second].numUses;
  }
}

/// Sums replace their operands, or the copies of these.
void LiveMemory::addMessage(unsigned node, dist::AllReduceOp op, ArrayRef<unsigned> dones) {
  for (auto [operand, result] : llvm::zip_equal(op.getInputs(), op.getOutputs())) {
    auto it = owners.find(operand);
    if (it != owners.end() && isOfMessageAlone(getRootValue(operand)))
      owners[result] = it->second;
    else
      addBuffer(node, result, true);
    for (unsigned done : dones)
      addUse(done, result);
  }
}

/// Operands and results of a group stay in use until it is waited for.
void LiveMemory::addStart(unsigned node, Operation *op) {
  auto start = cast<dist::StartOp>(op);
  SmallVector<unsigned> dones;
  for (Operation *user : start.getFuture().getUsers())
    if (auto it = numbers.find(user); it != numbers.end())
      dones.push_back(it->second);
  Block &body = start.getBody().front();
  for (Operation &inner : body.without_terminator()) {
    if (isMessage(&inner)) {
      addMessage(node, cast<dist::AllReduceOp>(inner), dones);
      continue;
    }
    for (Value operand : inner.getOperands()) {
      if (auto it = owners.find(operand); it != owners.end())
        added[node] -= buffers[it->second].bytes;
      else if (Value root = getRootValue(operand);
               !isState(root) && !isa_and_nonnull<loom::GetWeightOp>(root.getDefiningOp()))
        owners[operand] = addBuffer(node, operand, true); // a copy for peers
      for (unsigned done : dones)
        addUse(done, operand);
    }
    for (Value result : inner.getResults()) {
      added[node] += loom::getByteSize(result.getType());
      addBuffer(node, result, true);
      for (unsigned done : dones)
        addUse(done, result);
    }
  }
  for (Operation *user : start.getFuture().getUsers())
    for (auto [yielded, result] :
         llvm::zip_equal(body.getTerminator()->getOperands(), user->getResults()))
      if (auto it = owners.find(yielded); it != owners.end())
        owners[result] = it->second;
}

LiveMemory::LiveMemory(Block &block, ArrayRef<ScheduleNode> nodes)
    : made(nodes.size()), used(nodes.size()), added(nodes.size(), 0) {
  llvm::DenseSet<Value> communicated; // roots
  for (auto [i, node] : llvm::enumerate(nodes)) {
    numbers[node.op] = i;
    if (auto start = dyn_cast<dist::StartOp>(node.op))
      for (Operation &inner : start.getBody().front())
        for (Value operand : inner.getOperands())
          communicated.insert(getRootValue(operand));
  }
  for (auto [i, node] : llvm::enumerate(nodes)) {
    if (node.kind == ScheduleNode::Kind::Start || isa<dist::StartOp>(node.op)) {
      addStart(i, node.op);
      continue;
    }
    for (Value operand : node.op->getOperands())
      addUse(i, operand);
    if (isView(node.op)) {
      if (auto it = owners.find(node.op->getOperand(0)); it != owners.end())
        owners[node.op->getResult(0)] = it->second;
    } else if (node.kind == ScheduleNode::Kind::Compute) {
      for (Value result : node.op->getResults())
        addBuffer(i, result, communicated.contains(result));
    }
  }
  // Results live to the end: a use that no node ends.
  for (Value result : block.getTerminator()->getOperands())
    if (auto it = owners.find(result); it != owners.end())
      ++buffers[it->second].numUses;
}

int64_t LiveMemory::getPeak(ArrayRef<unsigned> order) const {
  int64_t live[2] = {0, 0}, peak[2] = {0, 0};
  SmallVector<unsigned, 0> open(buffers.size());
  for (auto [i, buffer] : llvm::enumerate(buffers))
    open[i] = buffer.numUses;
  for (unsigned node : order) {
    for (unsigned buffer : made[node]) {
      bool space = buffers[buffer].isRegistered;
      live[space] += buffers[buffer].bytes;
      peak[space] = std::max(peak[space], live[space]);
    }
    auto end = [&](unsigned buffer) {
      live[buffers[buffer].isRegistered] -= buffers[buffer].bytes;
    };
    for (unsigned buffer : made[node])
      if (open[buffer] == 0)
        end(buffer);
    for (unsigned buffer : used[node])
      if (--open[buffer] == 0)
        end(buffer);
  }
  return peak[0] + peak[1];
}

std::optional<int64_t> LiveMemory::getGrowth(unsigned node, ArrayRef<unsigned> open) const {
  constexpr int64_t kFewOfRead = 4; // fraction of what is read
  int64_t taken = 0, read = 0, ended = 0;
  for (unsigned buffer : made[node])
    taken += buffers[buffer].bytes;
  for (unsigned buffer : used[node]) {
    read += buffers[buffer].bytes;
    ended += open[buffer] == 1 ? buffers[buffer].bytes : 0;
  }
  if (taken < ended || taken <= read / kFewOfRead)
    return taken - ended;
  return std::nullopt;
}

std::vector<unsigned> LiveMemory::getFrugalOrder(ArrayRef<ScheduleNode> nodes) const {
  using Kind = ScheduleNode::Kind;
  std::vector<unsigned> order;
  // Names and starts take neither time nor memory of compute. What only waits comes last.
  SmallVector<unsigned, 0> open, producers, ready, names, waits;
  for (const Buffer &buffer : buffers)
    open.push_back(buffer.numUses);
  auto makeReady = [&](unsigned node) {
    Kind kind = nodes[node].kind;
    (kind == Kind::Compute ? ready : kind == Kind::Done ? waits : names).push_back(node);
  };
  for (auto [i, node] : llvm::enumerate(nodes)) {
    producers.push_back(node.numProducers);
    if (node.numProducers == 0)
      makeReady(i);
  }
  // Equal nodes go in program order.
  auto rank = [&](unsigned node) {
    constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
    return std::tuple(getGrowth(node, open).value_or(kLast), -nodes[node].toEnd, node);
  };
  while (!ready.empty() || !names.empty() || !waits.empty()) {
    SmallVector<unsigned, 0> &from = !names.empty() ? names : !ready.empty() ? ready : waits;
    auto *next = from.begin(); // of waits that which began first
    if (&from == &names)
      next = &names.back();
    else if (&from == &ready)
      next = llvm::min_element(ready, [&](unsigned a, unsigned b) { return rank(a) < rank(b); });
    unsigned node = *next;
    from.erase(next);
    order.push_back(node);
    for (unsigned buffer : used[node])
      --open[buffer];
    for (unsigned successor : nodes[node].successors)
      if (--producers[successor] == 0)
        makeReady(successor);
  }
  return order;
}

} // namespace gridloom
