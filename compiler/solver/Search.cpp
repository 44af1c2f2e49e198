//===- Search.cpp - rounds of walks and bounds on several threads ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Search.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

using namespace gridloom::solver;

/// Walks of a round. More use more threads; fewer waste less if two change the same place.
static constexpr size_t walksPerRound = 16;
/// The walks among them that start at the last suggestion, if it is new; half as many if the search
/// had a start.
static constexpr size_t walksFromSuggestion = 4;
/// The bound runs in each round until it has run so often, since its prices guide the walks.
static constexpr int boundsAtFirst = 100;
/// The share of all work that goes into the bound after that.
static constexpr double boundShare = 0.2;
/// Rounds between two eliminations; they take at most half of all work.
static constexpr uint64_t roundsPerElimination = 10;

Search::Search(const Network &network, unsigned numThreads, Elimination *elimination,
               double knownBound)
    : network(network), numThreads(std::max(1u, numThreads)), bound(network),
      elimination(elimination), eliminationBound(knownBound) {
  for (unsigned i = 0; i < this->numThreads; ++i)
    walks.push_back(std::make_unique<Walk>(network));
  state = std::make_unique<State>(network, std::vector<uint32_t>(network.getNumNodes()));
}

double Search::getBound() const {
  // The tolerance covers rounding errors of a whole number.
  return std::ceil(std::max(bound.getBound(), eliminationBound) - 1e-6);
}

bool Search::wantsBound() const {
  return numBounds < boundsAtFirst || double(boundWork) < boundShare * double(boundWork + walkWork);
}

/// Runs task(0, thread) to task(count - 1, thread) on several threads.
static void runTasks(size_t count, unsigned numThreads,
                     const std::function<void(size_t, unsigned)> &task) {
  std::atomic<size_t> next = 0;
  auto work = [&](unsigned thread) {
    for (size_t i = next++; i < count; i = next++)
      task(i, thread);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min<size_t>(numThreads, count); ++i)
    threads.emplace_back(work, i);
  work(0);
  for (std::thread &thread : threads)
    thread.join();
}

void Search::startFrom(std::vector<uint32_t> chosen) {
  State start(network, std::move(chosen));
  if (start.isBetterThan(*state))
    *state = std::move(start);
  hasStart = true;
}

void Search::runRound() {
  bool hasBound = wantsBound();
  // At first the bound's suggestions are better than what walks find without prices.
  size_t numWalks = numBounds < 8               ? 0
                    : numBounds < boundsAtFirst ? walksFromSuggestion
                                                : walksPerRound;
  // A copy: the bound changes its memory costs while walks read them.
  std::vector<double> memoryCosts = bound.getMemoryCosts();
  std::vector<std::vector<Change>> changes(numWalks);
  std::vector<uint64_t> work(numWalks);
  runTasks(numWalks + hasBound, numThreads, [&](size_t task, unsigned thread) {
    if (hasBound && task == 0) {
      bound.iterate(isFeasible() ? state->cost : std::numeric_limits<double>::infinity());
      return;
    }
    size_t i = task - hasBound;
    uint64_t before = walks[thread]->getWork();
    bool isFromSuggestion = suggestion && i < walksFromSuggestion && !(hasStart && i % 2 == 1);
    const State &start = isFromSuggestion ? *suggestion : *state;
    changes[i] =
        walks[thread]->run(*state, start, memoryCosts, Random(numRounds * walksPerRound + i));
    work[i] = walks[thread]->getWork() - before;
  });
  for (uint64_t done : work)
    walkWork += done;
  if (hasBound) {
    boundWork += bound.getWork();
    ++numBounds;
  }
  for (std::vector<Change> &found : changes)
    takeChanges(found);
  suggestion.reset();
  if (hasBound)
    takeSuggestion(bound.getSuggestion());
  ++numRounds;
  if (elimination && numRounds % roundsPerElimination == 0 &&
      eliminationWork + elimination->getWork() <= boundWork + walkWork)
    eliminate();
}

/// Applies what a walk found, unless earlier walks of this round turned it into a loss.
void Search::takeChanges(std::vector<Change> &changes) {
  if (changes.empty())
    return;
  state->ledger.compute(state->chosen, changes, effect);
  if (effect.excess > state->ledger.getExcess())
    return;
  double added = state->exchange(network, changes);
  if (effect.excess == state->ledger.getExcess() && added > 0) {
    state->exchange(network, changes);
    return;
  }
  state->ledger.apply(effect);
  state->cost = network.getCost(state->chosen); // drops the rounding errors of many changes
}

void Search::takeSuggestion(std::vector<uint32_t> chosen) {
  suggestion = std::make_unique<State>(network, std::move(chosen));
  if (suggestion->isBetterThan(*state))
    *state = *suggestion;
}

/// Also a bound: what the cheapest assignment costs at the prices of memory, less the limits'
/// price.
void Search::eliminate() {
  const std::vector<double> &prices = bound.getMemoryCosts();
  if (prices == eliminatedPrices)
    return;
  eliminatedPrices = prices;
  eliminationWork += elimination->getWork();
  takeSuggestion(elimination->solve(prices));
  double memory = 0, limits = bound.getLimitsCost();
  for (uint32_t node = 0; node < network.getNumNodes(); ++node)
    memory += prices[network.costsAt[node] + suggestion->chosen[node]];
  double magnitude = std::abs(suggestion->cost) + memory + limits;
  eliminationBound =
      std::max(eliminationBound, suggestion->cost + memory - limits - 1e-11 * magnitude);
}
