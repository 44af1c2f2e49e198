//===- Walk.cpp - improve an assignment around one place ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Walk.h"

#include <cmath>

using namespace gridloom::solver;

/// Forests that are solved in one walk.
static constexpr int forestsPerWalk = 12;
/// The most prices of memory that are tried until a forest's choices fit.
static constexpr int pricesPerForest = 8;

//===----------------------------------------------------------------------===//
// Which nodes
//===----------------------------------------------------------------------===//

/// Adds neighbours of members in random order until there are `size` members.
void Walk::grow(size_t size, Random &random) {
  frontier.clear();
  auto addNeighbours = [&](uint32_t node) {
    for (const Network::Link &link : network.getLinks(node))
      if (!forest.has(link.node))
        frontier.push_back(link.node);
  };
  for (uint32_t node : forest.getNodes())
    addNeighbours(node);
  while (!frontier.empty() && forest.getNodes().size() < size) {
    std::swap(frontier[random.below(frontier.size())], frontier.back());
    uint32_t node = frontier.back();
    frontier.pop_back();
    if (forest.add(node))
      addNeighbours(node);
  }
}

void Walk::growConnected(uint32_t seed, size_t size, Random &random) {
  forest.add(seed);
  grow(size, random);
}

/// Several trees of nodes with memory at `time`, so that one can use what another frees.
void Walk::growAtTime(uint32_t time, size_t size, Random &random) {
  size_t trees = 1 + random.below(std::min<size_t>(size, 16));
  for (size_t i = 0; i < trees; ++i)
    forest.add(pickNodeAt(time, random));
  grow(size, random);
}

/// A node with memory at `time`, or any node after 32 tries.
uint32_t Walk::pickNodeAt(uint32_t time, Random &random) const {
  uint32_t node = 0;
  for (int tries = 0; tries < 32; ++tries) {
    node = random.below(network.getNumNodes());
    for (const Network::Span &span : network.getSpans(node))
      if (span.begin <= time && time < span.end)
        return node;
  }
  return node;
}

/// The time with the least memory left, of a few at which the node has memory; any time for a node
/// without memory.
uint32_t Walk::pickTime(const State &state, uint32_t node, Random &random) const {
  std::span<const Network::Span> spans = network.getSpans(node);
  uint32_t best = random.below(network.limits.size());
  for (int tries = 0; tries < 4 && !spans.empty(); ++tries) {
    const Network::Span &span = spans[random.below(spans.size())];
    uint32_t time = span.begin + random.below(span.end - span.begin);
    if (tries == 0 || state.ledger.getSlack(time) < state.ledger.getSlack(best))
      best = time;
  }
  return best;
}

void Walk::selectForest(const State &state, uint32_t place, size_t size, Random &random) {
  forest.clear();
  if (state.ledger.getExcess() > 0 && random.below(4) != 0)
    growAtTime(state.ledger.getWorstTime(), size, random);
  else if (network.limits.empty() || random.below(2) == 0)
    growConnected(place, size, random);
  else
    growAtTime(pickTime(state, place, random), size, random);
}

//===----------------------------------------------------------------------===//
// Which strategies
//===----------------------------------------------------------------------===//

/// Makes `changes` unless the state gets worse; false if it stays.
bool Walk::take(State &state) {
  state.ledger.compute(state.chosen, changes, effect);
  if (effect.excess > state.ledger.getExcess())
    return false;
  double added = state.exchange(network, changes);
  bool isTaken = effect.excess < state.ledger.getExcess() || added <= 0;
  if (isTaken)
    state.ledger.apply(effect);
  else
    state.exchange(network, changes);
  return isTaken;
}

/// Solves a small forest with random surcharges. Their best size depends on the problem and on the
/// progress, so all magnitudes are tried. Half of the time memory may exceed its limit: `run` drops
/// a walk that does not repair that.
void Walk::disturb(State &state, Random &random) {
  forest.loadCosts(state);
  forest.addNoise(std::abs(state.cost) * std::pow(10.0, -1 - 6 * random.unit()), random);
  forest.solve(state, changes);
  state.ledger.compute(state.chosen, changes, effect);
  if (effect.excess > state.ledger.getExcess() && random.below(2) == 0)
    return;
  state.exchange(network, changes);
  state.ledger.apply(effect);
}

/// Raises the price of memory at the time where `changes` exceed the limit most, by enough to make
/// the old choices as good as the new ones, which gain `gain`.
void Walk::raisePrice(const State &state, double gain) {
  double added = 0;
  for (auto [node, strategy] : changes)
    added += double(network.getUsage(node, strategy, effect.worstTime) -
                    network.getUsage(node, state.chosen[node], effect.worstTime));
  double least = 1e-9 * std::abs(state.cost) + 1e-3;
  forest.addPrice(effect.worstTime, 1.1 * std::max(gain, least) / std::max(added, 1.0));
}

/// Solves the forest with rising prices of memory until the choices fit; false if the state stays.
bool Walk::improve(State &state, const std::vector<double> &memoryCosts, Random &random) {
  forest.loadCosts(state);
  if (random.below(2) == 0)
    forest.addCosts(memoryCosts, 1.5 * random.unit());
  if (state.ledger.getExcess() > 0) {
    uint32_t time = state.ledger.getWorstTime();
    double worth = (std::abs(state.cost) + 1) * std::pow(10.0, -6 * random.unit());
    forest.addPrice(time, worth / double(-state.ledger.getSlack(time)));
  }
  for (int i = 0; i < pricesPerForest; ++i) {
    double surcharge = forest.solve(state, changes);
    if (changes.empty())
      return false;
    state.ledger.compute(state.chosen, changes, effect);
    if (effect.excess < state.ledger.getExcess() || effect.worst == 0)
      return take(state);
    double added = state.exchange(network, changes);
    state.exchange(network, changes);
    raisePrice(state, -(added + surcharge));
  }
  return false;
}

std::vector<Change> Walk::run(const State &best, const State &start,
                              const std::vector<double> &memoryCosts, Random random) {
  State state = start;
  uint32_t numNodes = uint32_t(network.getNumNodes());
  uint32_t place = random.below(numNodes);
  // Log-uniform between 2 and twice the most.
  auto pickSize = [&](double most) {
    return size_t(std::exp2(1 + random.unit() * std::log2(most)));
  };
  if (&start == &best && random.below(4) != 0) {
    selectForest(state, place, pickSize(random.below(2) == 0 ? 16 : numNodes), random);
    disturb(state, random);
  }
  // Some walks stay around their place, others are all over the network.
  double most = std::exp2(random.unit() * std::log2(double(numNodes)));
  for (int i = 0; i < forestsPerWalk; ++i) {
    selectForest(state, place, pickSize(most), random);
    improve(state, memoryCosts, random);
    std::span<const uint32_t> nodes = forest.getNodes();
    place = nodes[random.below(nodes.size())];
  }
  std::vector<Change> result;
  if (best.isBetterThan(state))
    return result;
  for (uint32_t node = 0; node < numNodes; ++node)
    if (state.chosen[node] != best.chosen[node])
      result.push_back({node, state.chosen[node]});
  return result;
}
