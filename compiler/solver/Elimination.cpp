//===- Elimination.cpp - the best assignment of a narrow network ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Elimination.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

using namespace gridloom::solver;

//===----------------------------------------------------------------------===//
// The order
//===----------------------------------------------------------------------===//

bool Elimination::findOrder(double mostEntries, double mostWork) {
  size_t numNodes = network.getNumNodes();
  std::vector<std::set<uint32_t>> neighbours(numNodes);
  for (uint32_t node = 0; node < numNodes; ++node)
    for (const Network::Link &link : network.getLinks(node))
      neighbours[node].insert(link.node);
  // Infinitely many if too many, so that nodes with many neighbours are not counted over and over.
  auto countEntries = [&](uint32_t node) {
    double entries = 1;
    for (uint32_t other : neighbours[node]) {
      entries *= network.size[other];
      if (entries > mostEntries)
        return std::numeric_limits<double>::infinity();
    }
    return entries;
  };
  // Greedily the smallest table, as in the order of least weight.
  std::set<std::pair<double, uint32_t>> next;
  std::vector<double> entries(numNodes);
  for (uint32_t node = 0; node < numNodes; ++node)
    next.emplace(entries[node] = countEntries(node), node);
  double allEntries = 0, tries = 0;
  steps.clear();
  stepOf.resize(numNodes);
  while (!next.empty()) {
    auto [size, node] = *next.begin();
    next.erase(next.begin());
    allEntries += size;
    tries += size * network.size[node]; // with at least one addition each
    if (allEntries > mostEntries || tries > mostWork)
      return false;
    stepOf[node] = steps.size();
    std::set<uint32_t> scope = std::move(neighbours[node]);
    steps.push_back({node, {scope.begin(), scope.end()}});
    for (uint32_t other : scope) {
      neighbours[other].erase(node);
      neighbours[other].insert(scope.begin(), scope.end());
      neighbours[other].erase(other);
      next.erase({entries[other], other});
      next.emplace(entries[other] = countEntries(other), other);
    }
  }
  tablesToRead.assign(numNodes, {});
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<uint32_t> &scope = steps[i].scope;
    std::sort(scope.begin(), scope.end(),
              [&](uint32_t a, uint32_t b) { return stepOf[a] > stepOf[b]; });
    if (!scope.empty())
      tablesToRead[stepOf[scope.back()]].push_back(i);
  }
  return countWork() <= mostWork;
}

/// Every term may be added for every entry and strategy.
double Elimination::countWork() {
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto &[node, scope] = steps[i];
    double tries = network.size[node];
    for (uint32_t other : scope)
      tries *= network.size[other];
    sum += tries * double(1 + network.getLinks(node).size() + tablesToRead[i].size());
  }
  work = uint64_t(std::min(sum, 1e18));
  return sum;
}

//===----------------------------------------------------------------------===//
// The tables
//===----------------------------------------------------------------------===//

/// The costs that depend on the step's node: of its edges to nodes that are left, and of earlier
/// steps; sorted by depth.
std::vector<Elimination::Term> Elimination::listTerms(size_t step) const {
  const auto &[node, scope] = steps[step];
  auto findPlace = [&](uint32_t other) {
    return size_t(std::find(scope.begin(), scope.end(), other) - scope.begin());
  };
  std::vector<Term> terms;
  for (const Network::Link &link : network.getLinks(node)) {
    if (stepOf[link.node] < step)
      continue;
    Term term{network.getRow(link, node, 0), std::vector<size_t>(scope.size()), 0};
    size_t place = findPlace(link.node);
    term.strides[place] = network.size[node];
    term.depth = place + 1;
    terms.push_back(std::move(term));
  }
  for (size_t earlier : tablesToRead[step]) {
    Term term{tables[earlier].data(), std::vector<size_t>(scope.size()), 0};
    const std::vector<uint32_t> &read = steps[earlier].scope; // ends with the node
    size_t stride = network.size[node];
    for (size_t i = read.size() - 1; i-- > 0;) {
      size_t place = findPlace(read[i]);
      term.strides[place] = stride;
      term.depth = std::max(term.depth, place + 1);
      stride *= network.size[read[i]];
    }
    terms.push_back(std::move(term));
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term &a, const Term &b) { return a.depth < b.depth; });
  return terms;
}

const double *Elimination::Term::getCosts(std::span<const uint32_t> at) const {
  const double *first = costs;
  for (size_t i = 0; i < at.size(); ++i)
    first += strides[i] * at[i];
  return first;
}

/// The least of a[k] + b[k]. Accumulators that do not depend on each other, so that the loop is
/// vectorised without reordering additions.
static double getLeastSum(std::span<const double> a, const double *b) {
  constexpr size_t kWidth = 16;
  std::array<double, kWidth> least;
  least.fill(std::numeric_limits<double>::infinity());
  size_t k = 0;
  for (; k + kWidth <= a.size(); k += kWidth)
    for (size_t j = 0; j < kWidth; ++j) {
      double sum = a[k + j] + b[k + j];
      least[j] = sum < least[j] ? sum : least[j];
    }
  for (; k < a.size(); ++k)
    least[0] = std::min(least[0], a[k] + b[k]);
  return *std::min_element(least.begin(), least.end());
}

std::vector<double> Elimination::getOwnCosts(uint32_t node, std::span<const double> added) const {
  std::vector<double> costs(network.size[node]);
  for (size_t k = 0; k < costs.size(); ++k) {
    size_t at = network.costsAt[node] + k;
    costs[k] = network.costs[at] + (added.empty() ? 0 : added[at]);
  }
  return costs;
}

void Elimination::eliminate(size_t step, std::span<const double> added) {
  const auto &[node, scope] = steps[step];
  size_t depth = scope.size(), entries = 1;
  for (uint32_t other : scope)
    entries *= network.size[other];
  std::vector<Term> terms = listTerms(step);
  tables[step].reserve(entries);
  // sums[d]: by the node's strategy, all terms that the first d nodes of the scope decide.
  std::vector<std::vector<double>> sums(depth + 1, getOwnCosts(node, added));
  std::vector<uint32_t> at(depth);
  auto addTerm = [&](const Term &term, size_t d) {
    const double *costs = term.getCosts(std::span(at).first(d));
    for (size_t k = 0; k < sums[d].size(); ++k)
      sums[d][k] += costs[k];
  };
  // The last term is only added to find the least. Often no other depends on all of the scope.
  std::span<const Term> others = std::span(terms).first(terms.size() - (depth > 0 ? 1 : 0));
  size_t deepest = others.empty() ? 0 : others.back().depth;
  auto addTerms = [&](size_t d) {
    if (d > 0)
      sums[d] = sums[d - 1];
    for (const Term &term : others)
      if (term.depth == d)
        addTerm(term, d);
  };
  for (size_t d = 0; d <= deepest; ++d)
    addTerms(d);
  for (;;) {
    const std::vector<double> &last = sums[deepest];
    tables[step].push_back(depth > 0 ? getLeastSum(last, terms.back().getCosts(at))
                                     : *std::min_element(last.begin(), last.end()));
    size_t d = depth;
    while (d > 0 && ++at[d - 1] == network.size[scope[d - 1]])
      at[--d] = 0;
    if (d == 0)
      break;
    for (; d <= deepest; ++d)
      addTerms(d);
  }
}

uint32_t Elimination::choose(size_t step, std::span<const double> added,
                             std::span<const uint32_t> chosen) const {
  const auto &[node, scope] = steps[step];
  std::vector<uint32_t> at;
  for (uint32_t other : scope)
    at.push_back(chosen[other]);
  std::vector<double> sums = getOwnCosts(node, added);
  for (const Term &term : listTerms(step)) {
    const double *costs = term.getCosts(at);
    for (size_t k = 0; k < sums.size(); ++k)
      sums[k] += costs[k];
  }
  return uint32_t(std::min_element(sums.begin(), sums.end()) - sums.begin());
}

std::vector<uint32_t> Elimination::solve(std::span<const double> added) {
  tables.assign(steps.size(), {});
  for (size_t step = 0; step < steps.size(); ++step)
    eliminate(step, added);
  std::vector<uint32_t> chosen(network.getNumNodes());
  for (size_t step = steps.size(); step-- > 0;)
    chosen[steps[step].node] = choose(step, added, chosen);
  tables.clear();
  return chosen;
}
