//===- Ledger.cpp - memory in use over time -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Ledger.h"

using namespace gridloom::solver;

Ledger::Ledger(const Network &network, const std::vector<uint32_t> &chosen)
    : network(&network), slack(network.limits) {
  std::vector<int64_t> steps(slack.size() + 1);
  for (uint32_t node = 0; node < network.getNumNodes(); ++node)
    for (const Network::Span &span : network.getSpans(node)) {
      int64_t usage = network.usages[span.usageAt + chosen[node]];
      steps[span.begin] += usage;
      steps[span.end] -= usage;
    }
  int64_t usage = 0;
  for (size_t t = 0; t < slack.size(); ++t) {
    usage += steps[t];
    slack[t] -= usage;
    excess += double(std::max<int64_t>(0, -slack[t]));
  }
  leastSlack.resize((slack.size() + blockSize - 1) / blockSize);
  for (uint32_t block = 0; block < leastSlack.size(); ++block)
    updateBlock(block);
}

void Ledger::updateBlock(uint32_t block) {
  auto begin = slack.begin() + ptrdiff_t(block) * blockSize;
  auto end = slack.begin() + std::min<size_t>(slack.size(), size_t(block + 1) * blockSize);
  leastSlack[block] = *std::min_element(begin, end);
}

uint32_t Ledger::getWorstTime() const {
  auto block = std::min_element(leastSlack.begin(), leastSlack.end());
  auto begin = slack.begin() + (block - leastSlack.begin()) * blockSize;
  return uint32_t(std::find(begin, slack.end(), *block) - slack.begin());
}

/// Calls visit(block, begin, end, added usage) for the ranges of times with one change each, split
/// at blocks.
template <typename Visit> void Ledger::forEachRange(const Effect &effect, Visit visit) const {
  int64_t added = 0;
  for (size_t i = 0; i + 1 < effect.steps.size(); ++i) {
    added += effect.steps[i].second;
    if (added == 0)
      continue;
    uint32_t end = effect.steps[i + 1].first;
    for (uint32_t t = effect.steps[i].first; t < end;) {
      uint32_t block = t / blockSize, stop = std::min(end, (block + 1) * blockSize);
      visit(block, t, stop, added);
      t = stop;
    }
  }
}

void Ledger::compute(const std::vector<uint32_t> &chosen, std::span<const Change> changes,
                     Effect &effect) const {
  effect.steps.clear();
  for (auto [node, strategy] : changes)
    for (const Network::Span &span : network->getSpans(node)) {
      int64_t added =
          network->usages[span.usageAt + strategy] - network->usages[span.usageAt + chosen[node]];
      if (added == 0)
        continue;
      effect.steps.emplace_back(span.begin, added);
      effect.steps.emplace_back(span.end, -added);
    }
  std::sort(effect.steps.begin(), effect.steps.end());
  effect.excess = excess;
  effect.worst = 0;
  forEachRange(effect, [&](uint32_t block, uint32_t begin, uint32_t end, int64_t added) {
    if (leastSlack[block] >= std::max<int64_t>(0, added))
      return;
    for (uint32_t t = begin; t < end; ++t) {
      int64_t over = added - slack[t];
      effect.excess += double(std::max<int64_t>(0, over) - std::max<int64_t>(0, -slack[t]));
      if (over > effect.worst) {
        effect.worst = over;
        effect.worstTime = t;
      }
    }
  });
}

void Ledger::apply(const Effect &effect) {
  forEachRange(effect, [&](uint32_t block, uint32_t begin, uint32_t end, int64_t added) {
    for (uint32_t t = begin; t < end; ++t)
      slack[t] -= added;
    updateBlock(block);
  });
  excess = effect.excess;
}
