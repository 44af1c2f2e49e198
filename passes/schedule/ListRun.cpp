//===- ListRun.cpp - list scheduling of a graph of work -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ListRun.h"

#include <limits>
#include <queue>
#include <set>

using namespace mlir;

namespace gridloom {
namespace {

using Kind = ScheduleNode::Kind;
/// Numbers by time, the earliest first.
using TimedQueue = std::set<std::pair<double, unsigned>>;
using NumberQueue = std::priority_queue<unsigned, std::vector<unsigned>, std::greater<>>;

class ListRun {
public:
  ListRun(ArrayRef<ScheduleNode> nodes, ArrayRef<double> release)
      : nodes(nodes), release(release), numOpen(nodes.size()), earliest(nodes.size(), 0) {
    result.begin.assign(nodes.size(), 0);
    result.issued.assign(nodes.size(), 0);
    for (auto [i, node] : llvm::enumerate(nodes)) {
      numOpen[i] = node.numProducers;
      if (node.kind == Kind::Start && streamFree.size() <= node.stream)
        streamFree.resize(node.stream + 1, 0);
    }
  }

  ListOrder run();

private:
  void makeReady(unsigned index);
  void makeFree(unsigned index);
  void schedule(unsigned index);
  void advance(double time);
  void scheduleFree();
  int findDue(double until) const;
  int pickCompute() const;

  ArrayRef<ScheduleNode> nodes;
  ArrayRef<double> release;
  SmallVector<unsigned, 0> numOpen; // producers not scheduled yet
  std::vector<double> earliest;     // when operands are there
  std::vector<double> streamFree;   // when all that was submitted is over
  double now = 0;                   // on the compute stream
  int64_t sweep = -1;               // the last node of scheduleFree's sweep in program order
  NumberQueue free, nextFree;       // nodes that take no compute: of this sweep, and of the next
  std::set<std::pair<double, unsigned>> compute; // ready now, the longest path first
  TimedQueue later;                              // compute by the time when its operands are there
  TimedQueue pending;                            // communication under way, by its end
  TimedQueue deferred;                           // starts, by their release
  ListOrder result;
};

void ListRun::makeFree(unsigned index) {
  (static_cast<int64_t>(index) > sweep ? free : nextFree).push(index);
}

void ListRun::makeReady(unsigned index) {
  const ScheduleNode &node = nodes[index];
  if (node.kind == Kind::Compute) {
    if (earliest[index] <= now)
      compute.insert({-node.toEnd, index});
    else
      later.insert({earliest[index], index});
  } else if (node.kind == Kind::Done && earliest[index] > now) {
    pending.insert({earliest[index], index});
  } else if (node.kind == Kind::Start && !release.empty() && release[index] > now) {
    deferred.insert({release[index], index});
  } else {
    makeFree(index);
  }
}

void ListRun::advance(double time) {
  now = time;
  for (; !later.empty() && later.begin()->first <= now; later.erase(later.begin())) {
    unsigned index = later.begin()->second;
    compute.insert({-nodes[index].toEnd, index});
  }
  for (; !pending.empty() && pending.begin()->first <= now; pending.erase(pending.begin()))
    makeFree(pending.begin()->second);
}

void ListRun::schedule(unsigned index) {
  const ScheduleNode &node = nodes[index];
  result.issued[index] = now;
  double begin = earliest[index], end = begin;
  if (node.kind == Kind::Compute) {
    begin = std::max(now, begin);
    end = begin + node.seconds;
    advance(end);
  } else if (node.kind == Kind::Start) {
    double &isFree = streamFree[node.stream];
    begin = std::max({now, begin, isFree});
    end = isFree = begin + node.seconds;
  }
  result.order.push_back(index);
  result.begin[index] = begin;
  result.end = std::max(result.end, end);
  for (unsigned successor : node.successors) {
    earliest[successor] = std::max(earliest[successor], end);
    if (--numOpen[successor] == 0)
      makeReady(successor);
  }
}

/// Schedules everything that is ready and takes no compute, in sweeps in program order: starts,
/// communication that is over, and views.
void ListRun::scheduleFree() {
  while (!free.empty()) {
    for (sweep = -1; !free.empty();) {
      sweep = free.top();
      free.pop();
      schedule(static_cast<unsigned>(sweep));
    }
    std::swap(free, nextFree);
  }
  sweep = -1;
}

/// A deferred start that would be too late at `until`, the time of the next decision; -1 if none.
int ListRun::findDue(double until) const {
  for (auto [time, index] : deferred) {
    if (time >= until)
      break;
    // Waiting costs nothing while its stream is busy.
    if (streamFree[nodes[index].stream] < until)
      return static_cast<int>(index);
  }
  return -1;
}

/// The ready operation that can start first; of several, the one with the longest path behind it.
int ListRun::pickCompute() const {
  if (!compute.empty())
    return static_cast<int>(compute.begin()->second);
  if (later.empty())
    return -1;
  unsigned best = later.begin()->second;
  for (auto [time, index] : later) {
    if (time > later.begin()->first)
      break;
    if (nodes[index].toEnd > nodes[best].toEnd)
      best = index;
  }
  return static_cast<int>(best);
}

ListOrder ListRun::run() {
  for (unsigned i = 0; i < nodes.size(); ++i)
    if (numOpen[i] == 0)
      makeReady(i);
  while (result.order.size() < nodes.size()) {
    scheduleFree();
    int picked = pickCompute();
    double until = std::numeric_limits<double>::infinity();
    if (picked >= 0)
      until = std::max(now, earliest[picked]) + nodes[picked].seconds;
    else if (!pending.empty())
      until = pending.begin()->first;
    if (int due = findDue(until); due >= 0) {
      deferred.erase({release[due], static_cast<unsigned>(due)});
      schedule(static_cast<unsigned>(due));
    } else if (picked >= 0) {
      compute.erase({-nodes[picked].toEnd, static_cast<unsigned>(picked)});
      later.erase({earliest[picked], static_cast<unsigned>(picked)});
      schedule(static_cast<unsigned>(picked));
    } else if (!pending.empty()) {
      // Only communication is left to wait for: takes the one that ends first.
      unsigned next = pending.begin()->second;
      pending.erase(pending.begin());
      schedule(next);
    } else {
      break;
    }
  }
  return std::move(result);
}

} // namespace

void measurePaths(MutableArrayRef<ScheduleNode> nodes) {
  // Each round follows edges to higher numbers as far as they go.
  bool changed = true;
  for (unsigned round = 0; changed && round < 8; ++round) {
    changed = false;
    for (ScheduleNode &node : llvm::reverse(nodes)) {
      double rest = 0;
      for (unsigned successor : node.successors)
        rest = std::max(rest, nodes[successor].toEnd);
      changed |= node.toEnd != node.seconds + rest;
      node.toEnd = node.seconds + rest;
    }
  }
}

ListOrder runList(ArrayRef<ScheduleNode> nodes, ArrayRef<double> release) {
  return ListRun(nodes, release).run();
}

} // namespace gridloom
