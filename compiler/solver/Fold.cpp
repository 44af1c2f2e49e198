//===- Fold.cpp - make the problem smaller without loss -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Fold.h"

#include "compiler/solver/TimeLine.h"

using namespace gridloom::solver;

/// The most rounds of all rules. A round is linear in the size of the tables; late ones find
/// little.
static constexpr int mostRounds = 24;

std::string Folding::fold() {
  isTouched.assign(model.nodes.size(), true);
  mostMovedEdges = 16 * model.edges.size() + model.nodes.size();
  for (int round = 0; round < mostRounds; ++round) {
    bool hasChanged = takeMemory();
    for (bool (Folding::*rule)() :
         {&Folding::removeForbidden, &Folding::removeUnfit, &Folding::removeForbidden}) {
      if (!conflict.empty())
        return conflict;
      hasChanged = (this->*rule)() || hasChanged;
    }
    if (!conflict.empty())
      return conflict;
    for (uint32_t edge = 0; edge < model.edges.size(); ++edge)
      hasChanged = splitEdge(edge) || hasChanged;
    std::vector<bool> isNext(model.nodes.size());
    isNext.swap(isTouched);
    for (uint32_t node = 0; node < model.nodes.size(); ++node)
      if (isNext[node] && model.nodes[node].isAlive)
        hasChanged = removeDominated(node) || foldNode(node) || hasChanged;
    std::sort(leaders.begin(), leaders.end());
    leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
    for (uint32_t leader : leaders)
      touch(leader);
    leaders.clear();
    if (!hasChanged)
      break;
  }
  removeForbidden(); // the search relies on it
  return conflict;
}

void Folding::touch(uint32_t node) {
  isTouched[node] = true;
  for (uint32_t e : model.nodes[node].edges)
    if (model.edges[e].isAlive)
      isTouched[model.edges[e].getOther(node)] = true;
}

std::vector<uint32_t> Folding::getEdges(uint32_t node) const {
  std::vector<uint32_t> edges;
  for (uint32_t e : model.nodes[node].edges)
    if (model.edges[e].isAlive)
      edges.push_back(e);
  return edges;
}

/// Keeps the flagged strategies. False if all are flagged, or none, which is a conflict.
bool Folding::keep(uint32_t node, const std::vector<bool> &isKept) {
  size_t kept = size_t(std::count(isKept.begin(), isKept.end(), true));
  if (kept == isKept.size())
    return false;
  if (kept == 0) {
    if (conflict.empty())
      conflict = "node " + std::to_string(node) +
                 " has no strategy that its costs, its edges and the usage limit allow";
    return false;
  }
  model.keepStrategies(node, isKept);
  touch(node);
  return true;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Subtracts common usage and removes times that do not bind. Returns whether times or pieces went.
bool Folding::takeMemory() {
  auto countPieces = [&] {
    size_t count = model.limits.size();
    for (const ModelNode &node : model.nodes)
      count += node.pieces.size();
    return count;
  };
  size_t before = countPieces();
  std::vector<size_t> piecesBefore;
  for (const ModelNode &node : model.nodes)
    piecesBefore.push_back(node.pieces.size());
  if (size_t time = takeCommonUsage(model); time < model.limits.size()) {
    conflict = "the least usage at time " + std::to_string(model.times[time]) + " is " +
               std::to_string(problem.usageLimit - model.limits[time]) + ", above the limit of " +
               std::to_string(problem.usageLimit);
    return true;
  }
  removeSlackTimes(model);
  for (uint32_t node = 0; node < model.nodes.size(); ++node)
    if (model.nodes[node].pieces.size() != piecesBefore[node])
      touch(node);
  return countPieces() != before;
}

/// Removes strategies and pairs of strategies that do not fit even if all others use the least.
bool Folding::removeUnfit() {
  RangeMinimum room(model.limits);
  bool hasChanged = false;
  for (uint32_t node = 0; node < model.nodes.size(); ++node)
    hasChanged = removeUnfitStrategies(node, room) || hasChanged;
  for (uint32_t edge = 0; edge < model.edges.size(); ++edge)
    if (model.edges[edge].isAlive)
      hasChanged = forbidUnfitPairs(edge, room) || hasChanged;
  return hasChanged;
}

bool Folding::removeUnfitStrategies(uint32_t index, const RangeMinimum &room) {
  const ModelNode &node = model.nodes[index];
  if (node.pieces.empty())
    return false;
  std::vector<bool> fits(node.size(), true);
  for (const Piece &piece : node.pieces) {
    int64_t most = room.get(piece.begin, piece.end);
    for (size_t k = 0; k < fits.size(); ++k)
      fits[k] = fits[k] && piece.usage[k] <= most;
  }
  return keep(index, fits);
}

bool Folding::forbidUnfitPairs(uint32_t index, const RangeMinimum &room) {
  ModelEdge &edge = model.edges[index];
  size_t columns = model.nodes[edge.second].size();
  std::vector<Cost> cost;
  for (const Piece &a : model.nodes[edge.first].pieces)
    for (const Piece &b : model.nodes[edge.second].pieces) {
      uint32_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
      if (begin >= end)
        continue;
      int64_t most = room.get(begin, end);
      for (size_t i = 0; i < edge.cost->size(); ++i)
        if ((cost.empty() ? *edge.cost : cost)[i] < infiniteCost &&
            a.usage[i / columns] + b.usage[i % columns] > most) {
          if (cost.empty())
            cost = *edge.cost;
          cost[i] = infiniteCost;
        }
    }
  bool hasChanged = !cost.empty();
  if (hasChanged)
    edge.cost = model.tables.add(std::move(cost));
  if (hasChanged)
    isTouched[edge.first] = isTouched[edge.second] = true;
  return hasChanged;
}

//===----------------------------------------------------------------------===//
// Strategies
//===----------------------------------------------------------------------===//

/// Removes strategies of infinite cost, and those that an edge forbids with every strategy of its
/// other end (arc consistency), until there are no more.
bool Folding::removeForbidden() {
  std::vector<uint32_t> queue;
  for (uint32_t node = 0; node < model.nodes.size(); ++node)
    if (isTouched[node])
      queue.push_back(node);
  std::vector<bool> isQueued = isTouched;
  bool hasChanged = false;
  for (size_t next = 0; next < queue.size() && conflict.empty(); ++next) {
    uint32_t index = queue[next];
    const ModelNode &node = model.nodes[index];
    isQueued[index] = false;
    if (!node.isAlive)
      continue;
    std::vector<bool> isAllowed(node.size());
    for (size_t k = 0; k < node.size(); ++k)
      isAllowed[k] = node.cost[k] < infiniteCost;
    for (uint32_t e : getEdges(index)) {
      const ModelEdge &edge = model.edges[e];
      std::shared_ptr<const TableView> view = model.getView(edge, index);
      if (view->allowsAll)
        continue;
      bool allowsAny = false;
      for (size_t k = 0; k < node.size(); ++k) {
        bool hasPartner = view->allows(k);
        allowsAny = allowsAny || hasPartner;
        isAllowed[k] = isAllowed[k] && hasPartner;
      }
      if (!allowsAny)
        conflict = "the edge of nodes " + std::to_string(edge.first) + " and " +
                   std::to_string(edge.second) +
                   " has infinite cost for all strategies that their other constraints allow";
    }
    if (!conflict.empty() || !keep(index, isAllowed))
      continue;
    hasChanged = true;
    for (uint32_t e : getEdges(index)) {
      uint32_t other = model.edges[e].getOther(index);
      if (!isQueued[other])
        queue.push_back(other);
      isQueued[other] = true;
    }
  }
  return hasChanged;
}

namespace {
/// Compares a node's strategies.
class Dominance {
public:
  Dominance(const ModelNode &node, std::span<const std::shared_ptr<const TableView>> tables)
      : node(node), tables(tables) {}
  /// Flags the strategies to keep; one, if several replace each other.
  std::vector<bool> findKept() const;

private:
  bool isDominated(size_t by, size_t strategy) const;
  /// Whether `by` costs no more where each neighbour chooses what is best for `strategy`.
  bool isCheaperAtBest(size_t by, size_t strategy) const;

  const ModelNode &node;
  std::span<const std::shared_ptr<const TableView>> tables; ///< of all its edges
};
} // namespace

bool Dominance::isCheaperAtBest(size_t by, size_t strategy) const {
  Cost most = node.cost[by] - node.cost[strategy];
  for (const auto &table : tables) {
    size_t column = table->least[strategy];
    Cost old = table->getRow(strategy)[column], now = table->getRow(by)[column];
    if (old >= infiniteCost)
      return true; // the edge forbids the strategy
    if (now >= infiniteCost)
      return false;
    most += now - old;
  }
  return most <= 0;
}

/// Whether `by` costs and uses no more than `strategy`, whatever the neighbours choose (dead-end
/// elimination: Goldstein, Biophysical Journal 66 (1994), equation 2, with memory).
bool Dominance::isDominated(size_t by, size_t strategy) const {
  // A quick test that rules out most pairs.
  if (!isCheaperAtBest(by, strategy))
    return false;
  for (const Piece &piece : node.pieces)
    if (piece.usage[by] > piece.usage[strategy])
      return false;
  Cost most = node.cost[by] - node.cost[strategy];
  for (const auto &table : tables) {
    Cost worst = -infiniteCost;
    std::span<const Cost> old = table->getRow(strategy), now = table->getRow(by);
    for (size_t l = 0; l < table->columns; ++l) {
      if (old[l] >= infiniteCost)
        continue;
      if (now[l] >= infiniteCost)
        return false;
      worst = std::max(worst, now[l] - old[l]);
    }
    if (worst == -infiniteCost)
      return true; // the edge forbids the strategy
    most += worst;
  }
  return most <= 0;
}

std::vector<bool> Dominance::findKept() const {
  size_t size = node.size();
  std::vector<bool> isKept(size, true);
  for (size_t k = 0; k < size; ++k)
    for (size_t by = 0; by < size && isKept[k]; ++by)
      if (by != k && isKept[by] && isDominated(by, k))
        isKept[k] = false;
  return isKept;
}

bool Folding::removeDominated(uint32_t index) {
  // For nodes of many strategies and edges, comparing all pairs would take longer than searching.
  constexpr size_t mostComparisons = 4'000'000;
  const ModelNode &node = model.nodes[index];
  std::vector<uint32_t> edges = getEdges(index);
  size_t entries = 0;
  for (uint32_t e : edges)
    entries += model.edges[e].cost->size();
  if (entries * node.size() > mostComparisons)
    return false;
  std::vector<int64_t> key{int64_t(node.size()), int64_t(node.pieces.size())};
  key.insert(key.end(), node.cost.begin(), node.cost.end());
  for (const Piece &piece : node.pieces)
    key.insert(key.end(), piece.usage.begin(), piece.usage.end());
  for (uint32_t e : edges) {
    key.push_back(getNumber(model.edges[e].cost));
    key.push_back(model.edges[e].first == index);
  }
  const Kept &kept = keptStrategies.get(std::move(key), 2 * entries, [&] {
    Kept found;
    for (uint32_t e : edges)
      found.views.push_back(model.getView(model.edges[e], index));
    found.strategies = Dominance(node, found.views).findKept();
    return found;
  });
  return keep(index, kept.strategies);
}

//===----------------------------------------------------------------------===//
// Edges and nodes
//===----------------------------------------------------------------------===//

/// Replaces an edge that is a sum of two node costs by these.
bool Folding::splitEdge(uint32_t index) {
  ModelEdge &edge = model.edges[index];
  if (!edge.isAlive)
    return false;
  ModelNode &first = model.nodes[edge.first], &second = model.nodes[edge.second];
  size_t columns = second.size();
  const std::vector<Cost> &cost = *edge.cost;
  for (size_t i = 0; i < cost.size(); ++i) {
    Cost row = cost[i - i % columns], column = cost[i % columns];
    if (std::max({cost[i], row, column}) >= infiniteCost || cost[i] + cost[0] != row + column)
      return false;
  }
  for (size_t k = 0; k < first.size(); ++k)
    first.cost[k] = addCosts(first.cost[k], cost[k * columns]);
  for (size_t l = 0; l < columns; ++l)
    second.cost[l] = addCosts(second.cost[l], cost[l] - cost[0]);
  touch(edge.first);
  touch(edge.second);
  model.removeEdge(index);
  return true;
}

bool Folding::foldNode(uint32_t node) {
  return fixNode(node) || foldFollower(node) || eliminateBridge(node);
}

/// Removes a node without memory that has one strategy or no edges: its choice is known.
bool Folding::fixNode(uint32_t index) {
  ModelNode &node = model.nodes[index];
  if (!node.pieces.empty() || (node.size() > 1 && node.degree > 0))
    return false;
  size_t best = size_t(std::min_element(node.cost.begin(), node.cost.end()) - node.cost.begin());
  if (node.cost[best] >= infiniteCost)
    return false; // removeForbidden reports it
  model.constant += node.cost[best];
  touch(index);
  for (uint32_t e : getEdges(index)) {
    ModelEdge &edge = model.edges[e];
    ModelNode &other = model.nodes[edge.getOther(index)];
    for (size_t l = 0; l < other.size(); ++l)
      other.cost[l] = addCosts(other.cost[l], model.getCost(edge, index, best, l));
    model.removeEdge(e);
  }
  decide(index, {}, std::make_shared<const std::vector<uint32_t>>(1, uint32_t(best)));
  model.removeNode(index);
  return true;
}

/// Whether each strategy of the edge's other end leaves `index` one choice: the only finite one or,
/// for a leaf, the one that is best in cost and memory. Writes it to `follow`.
bool Folding::findLeader(uint32_t index, const ModelEdge &edge,
                         std::vector<uint32_t> &follow) const {
  const ModelNode &node = model.nodes[index];
  const ModelNode &leader = model.nodes[edge.getOther(index)];
  auto isBetter = [&](size_t k, size_t than, size_t l) {
    if (model.getCost(edge, index, k, l) + node.cost[k] >
        model.getCost(edge, index, than, l) + node.cost[than])
      return false;
    return std::all_of(node.pieces.begin(), node.pieces.end(),
                       [&](const Piece &p) { return p.usage[k] <= p.usage[than]; });
  };
  follow.assign(leader.size(), 0);
  for (size_t l = 0; l < leader.size(); ++l) {
    if (node.degree > 1) { // only a single finite choice counts
      size_t numFinite = 0;
      for (uint32_t k = 0; k < node.size() && numFinite < 2; ++k)
        if (model.getCost(edge, index, k, l) < infiniteCost && ++numFinite == 1)
          follow[l] = k;
      if (numFinite != 1)
        return false; // if there is none, removeForbidden removes l
      continue;
    }
    std::vector<uint32_t> finite;
    for (uint32_t k = 0; k < node.size(); ++k)
      if (model.getCost(edge, index, k, l) < infiniteCost)
        finite.push_back(k);
    if (finite.empty())
      return false; // removeForbidden removes l
    follow[l] = finite[0];
    if (finite.size() == 1)
      continue;
    for (uint32_t k : finite)
      if (isBetter(k, follow[l], l))
        follow[l] = k;
    for (uint32_t k : finite)
      if (!isBetter(follow[l], k, l))
        return false;
  }
  return true;
}

bool Folding::foldFollower(uint32_t index) {
  const ModelNode &node = model.nodes[index];
  std::vector<uint32_t> edges = getEdges(index);
  size_t neighbours = 0;
  for (uint32_t e : edges)
    neighbours += model.nodes[model.edges[e].getOther(index)].size();
  for (uint32_t e : edges) {
    uint32_t leader = model.edges[e].getOther(index);
    size_t others = neighbours - model.nodes[leader].size();
    // The node's other edges move to the leader, whose tables may be larger.
    if (others * model.nodes[leader].size() > 4 * node.size() * neighbours)
      continue;
    std::vector<uint32_t> strategies;
    if (!findLeader(index, model.edges[e], strategies))
      continue;
    // Moving many edges to a node that could itself be a follower would be slow.
    if (std::vector<uint32_t> back;
        node.degree > model.nodes[leader].degree && findLeader(leader, model.edges[e], back))
      continue;
    if (movedEdges + node.degree > mostMovedEdges)
      continue;
    movedEdges += node.degree;
    follow(index, leader, e, strategies);
    return true;
  }
  return false;
}

/// Moves the node's cost, memory and edges to its leader, and removes it.
void Folding::follow(uint32_t index, uint32_t leaderIndex, uint32_t edgeIndex,
                     const std::vector<uint32_t> &follow) {
  ModelNode &node = model.nodes[index], &leader = model.nodes[leaderIndex];
  decide(index, {leaderIndex}, std::make_shared<const std::vector<uint32_t>>(follow));
  touch(index);
  for (size_t l = 0; l < leader.size(); ++l)
    leader.cost[l] = addCosts(
        leader.cost[l],
        addCosts(node.cost[follow[l]], model.getCost(model.edges[edgeIndex], index, follow[l], l)));
  model.removeEdge(edgeIndex);
  for (const Piece &piece : node.pieces) {
    Piece moved{piece.begin, piece.end, {}};
    for (uint32_t k : follow)
      moved.usage.push_back(piece.usage[k]);
    leader.pieces.push_back(std::move(moved));
  }
  for (uint32_t e : getEdges(index)) {
    uint32_t other = model.edges[e].getOther(index);
    const ModelEdge &edge = model.edges[e];
    Table moved = model.tables.select(edge.cost, node.size(), edge.first == index, follow);
    model.removeEdge(e);
    model.addEdge(leaderIndex, other, moved);
  }
  model.removeNode(index);
  leaders.push_back(leaderIndex);
}

/// The least costs of a node between two others, for each pair of their strategies, and the node's
/// strategies that have these costs.
static std::pair<std::vector<Cost>, std::vector<uint32_t>>
joinTables(const std::vector<Cost> &costs, const TableView &left, const TableView &right) {
  size_t rows = left.columns, columns = right.columns;
  std::vector<Cost> least(rows * columns, infiniteCost);
  std::vector<uint32_t> best(rows * columns);
  for (uint32_t i = 0; i < costs.size(); ++i)
    for (size_t k = 0; k < rows; ++k) {
      Cost begin = addCosts(left.getRow(i)[k], costs[i]);
      if (begin >= infiniteCost)
        continue;
      std::span<const Cost> row = right.getRow(i);
      for (size_t l = 0; l < columns; ++l) {
        Cost sum = addCosts(begin, row[l]);
        if (sum < least[k * columns + l]) {
          least[k * columns + l] = sum;
          best[k * columns + l] = i;
        }
      }
    }
  return {std::move(least), std::move(best)};
}

/// Replaces a node without memory and with two edges by an edge of its neighbours.
bool Folding::eliminateBridge(uint32_t index) {
  const ModelNode &node = model.nodes[index];
  if (!node.pieces.empty() || node.degree != 2)
    return false;
  std::vector<uint32_t> edges = getEdges(index);
  const ModelEdge &left = model.edges[edges[0]], &right = model.edges[edges[1]];
  uint32_t a = left.getOther(index), b = right.getOther(index);
  size_t rows = model.nodes[a].size(), columns = model.nodes[b].size();
  if (rows * columns > std::max<size_t>(1024, 2 * node.size() * (rows + columns)))
    return false;
  std::vector<int64_t> key{int64_t(node.size())};
  key.insert(key.end(), node.cost.begin(), node.cost.end());
  for (const ModelEdge *edge : {&left, &right}) {
    key.push_back(getNumber(edge->cost));
    key.push_back(edge->first == index);
  }
  size_t weight = 2 * (left.cost->size() + right.cost->size() + rows * columns);
  const Bridge &bridge = bridges.get(std::move(key), weight, [&] {
    Bridge made{nullptr, {}, model.getView(left, index), model.getView(right, index)};
    auto [cost, best] = joinTables(node.cost, *made.left, *made.right);
    made.cost = model.tables.add(std::move(cost));
    made.best = std::make_shared<const std::vector<uint32_t>>(std::move(best));
    return made;
  });
  decide(index, {a, b}, bridge.best);
  touch(index);
  model.removeEdge(edges[0]);
  model.removeEdge(edges[1]);
  model.addEdge(a, b, bridge.cost);
  model.removeNode(index);
  return true;
}

void Folding::decide(uint32_t node, std::vector<uint32_t> parents,
                     std::shared_ptr<const std::vector<uint32_t>> choice) {
  Decision decision{node, std::move(parents), std::move(choice), model.nodes[node].strategies, {}};
  for (uint32_t parent : decision.parents)
    decision.parentStrategies.push_back(model.nodes[parent].strategies);
  decisions.push_back(std::move(decision));
}

Assignment Folding::unfold(Assignment strategies) const {
  for (size_t i = decisions.size(); i-- > 0;) {
    const Decision &decision = decisions[i];
    size_t place = 0;
    for (size_t p = 0; p < decision.parents.size(); ++p) {
      const std::vector<uint32_t> &left = decision.parentStrategies[p];
      auto chosen = std::lower_bound(left.begin(), left.end(), strategies[decision.parents[p]]);
      place = place * left.size() + size_t(chosen - left.begin());
    }
    strategies[decision.node] = decision.strategies[(*decision.choice)[place]];
  }
  return strategies;
}
