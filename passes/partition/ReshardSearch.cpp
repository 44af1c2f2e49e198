//===- ReshardSearch.cpp - the cheapest way between two shardings -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A* over shardings. The sequence that gathers and slices, and the greedy one, are upper bounds, so
// that the result is never worse than either, even if the search is cut short. A faster sequence
// may send more bytes than another, but never more than the one that gathers.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/ReshardSearch.h"

#include "llvm/ADT/Hashing.h"

#include <queue>
#include <unordered_map>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::reshard;

/// The number of shardings after which the search stops: far more than meshes of four axes need.
static constexpr size_t kMaxStates = 20'000;

namespace {
struct StateHash {
  size_t operator()(const State &state) const {
    llvm::hash_code hash = llvm::hash_value(state.unreduced);
    for (const State::Dim &dim : state.dims)
      hash = llvm::hash_combine(hash, dim.local,
                                llvm::hash_combine_range(dim.axes.begin(), dim.axes.end()));
    return hash;
  }
};

struct Node {
  Cost cost;
  Move move;
  int64_t parent; ///< -1 for the start
};

class Search {
public:
  explicit Search(const Moves &moves) : moves(moves) {}
  std::optional<SmallVector<ReshardStep>> run();

private:
  using Entry = std::pair<Cost, int64_t>; ///< lower bound of the cost through the node; the node
  struct IsDearer {
    bool operator()(const Entry &a, const Entry &b) const {
      return b.first < a.first || (!(a.first < b.first) && a.second < b.second);
    }
  };

  void offer(std::vector<Move> way);
  void push(Move move, Cost cost, int64_t parent);
  std::vector<Move> trace(int64_t node) const;

  const Moves &moves;
  std::vector<Node> nodes;
  std::unordered_map<State, Cost, StateHash> reached;
  std::priority_queue<Entry, std::vector<Entry>, IsDearer> queue;
  std::optional<std::vector<Move>> best;
  Cost least;
  int64_t most = 0; ///< bytes of the way that gathers, offered first
};
} // namespace

/// Takes a fixed sequence of moves if it reaches the goal for less.
void Search::offer(std::vector<Move> way) {
  if (!moves.isDone(way.empty() ? moves.getStart() : way.back().after))
    return;
  Cost cost;
  for (const Move &move : way)
    cost = cost + move.cost;
  if (best && (!(cost < least) || cost.bytes > most))
    return;
  if (!best)
    most = cost.bytes;
  least = cost;
  best = std::move(way);
}

void Search::push(Move move, Cost cost, int64_t parent) {
  Cost through = cost + moves.getBound(move.after);
  if (best && (!(through < least) || through.bytes > most))
    return;
  auto [it, inserted] = reached.try_emplace(move.after, cost);
  if (!inserted) {
    if (!(cost < it->second))
      return;
    it->second = cost;
  }
  nodes.push_back({cost, std::move(move), parent});
  queue.push({through, static_cast<int64_t>(nodes.size()) - 1});
}

std::vector<Move> Search::trace(int64_t node) const {
  std::vector<Move> way;
  for (; nodes[node].parent >= 0; node = nodes[node].parent)
    way.push_back(nodes[node].move);
  std::reverse(way.begin(), way.end());
  return way;
}

std::optional<SmallVector<ReshardStep>> Search::run() {
  if (moves.isImpossible())
    return std::nullopt;
  offer(moves.gatherThenSlice());
  offer(moves.planGreedily());
  Move start{ReshardStep::Slice, {}, 0, 0, 0, 0, {}, moves.getStart()};
  push(start, {}, -1);
  std::vector<Move> next;
  while (!queue.empty() && nodes.size() < kMaxStates) {
    auto [through, index] = queue.top();
    queue.pop();
    if (best && !(through < least))
      break;
    const State state = nodes[index].move.after;
    Cost cost = nodes[index].cost;
    if (reached.at(state) < cost)
      continue;
    if (moves.isDone(state)) {
      best = trace(index);
      break;
    }
    next.clear();
    moves.collect(state, next);
    for (Move &move : next) {
      Cost after = cost + move.cost;
      push(std::move(move), after, index);
    }
  }
  if (!best)
    return std::nullopt;
  SmallVector<ReshardStep> steps;
  State state = moves.getStart();
  for (const Move &move : *best) {
    steps.push_back(moves.getStep(move, state));
    state = move.after;
  }
  return steps;
}

std::optional<SmallVector<ReshardStep>> gridloom::reshard::findSteps(const Moves &moves) {
  return Search(moves).run();
}
