//===- Bound.cpp - lower bounds and memory prices -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Bound.h"

#include <cmath>
#include <limits>

using namespace gridloom::solver;

/// The scale of steps shrinks after steps that did not raise the bound. Once it is too small to
/// matter, it is reset.
static constexpr int stepsBeforeShortening = 8;
static constexpr double shortening = 0.75, leastStepScale = 1e-4, restartStepScale = 0.25;

Bound::Bound(const Network &network)
    : network(network), prices(network.limits.size()), direction(network.limits.size()),
      memoryCosts(network.costs.size()), bestMemoryCosts(network.costs.size()),
      suggestion(network.getNumNodes()), bestBound(-std::numeric_limits<double>::infinity()) {
  uint32_t largest = 0;
  size_t count = 0;
  for (uint32_t node = 0; node < network.getNumNodes(); ++node) {
    size_t before = 0, links = network.getLinks(node).size();
    for (const Network::Link &link : network.getLinks(node)) {
      messagesAt.push_back(count);
      count += network.size[node];
      before += link.node < node;
    }
    weight.push_back(1.0 / double(std::max<size_t>({1, before, links - before})));
    largest = std::max(largest, network.size[node]);
  }
  messages.resize(count);
  belief.resize(largest);
  outgoing.resize(largest);
}

size_t Bound::getWork() const {
  return 2 * network.numEntries + network.costs.size() + network.limits.size();
}

/// Sums the node's costs and incoming messages in `belief`.
void Bound::collect(uint32_t node) {
  size_t size = network.size[node];
  for (size_t k = 0; k < size; ++k)
    belief[k] = network.costs[network.costsAt[node] + k] + memoryCosts[network.costsAt[node] + k];
  size_t links = network.getLinks(node).size();
  for (size_t i = 0; i < links; ++i) {
    const double *message = messages.data() + messagesAt[network.linksAt[node] + i];
    for (size_t k = 0; k < size; ++k)
      belief[k] += message[k];
  }
}

/// Sends the node's belief to its neighbours after it (`isForward`) or before it. The least of each
/// message moves into the bound.
void Bound::send(uint32_t node, bool isForward) {
  size_t size = network.size[node];
  std::span<const Network::Link> links = network.getLinks(node);
  for (size_t i = 0; i < links.size(); ++i) {
    const Network::Link &link = links[i];
    if ((link.node > node) != isForward)
      continue;
    const double *incoming = messages.data() + messagesAt[network.linksAt[node] + i];
    for (size_t k = 0; k < size; ++k)
      outgoing[k] = weight[node] * belief[k] - incoming[k];
    double *message = messages.data() + messagesAt[network.linksAt[link.node] + link.back];
    uint32_t others = network.size[link.node];
    network.getLeastSums(link, node, outgoing.data(), message);
    double least = *std::min_element(message, message + others);
    for (uint32_t l = 0; l < others; ++l)
      message[l] -= least;
    bound += least;
  }
}

void Bound::passForward() {
  for (uint32_t node = 0; node < network.getNumNodes(); ++node) {
    collect(node);
    send(node, true);
  }
}

/// Also suggests an assignment: each node takes the best strategy by its costs, the choices of
/// later nodes and the messages of earlier ones. Returns the bound.
double Bound::passBack() {
  bound = network.constant;
  double magnitude = std::abs(bound);
  for (uint32_t node = uint32_t(network.getNumNodes()); node-- > 0;) {
    collect(node);
    size_t size = network.size[node], after = 0;
    std::span<const Network::Link> links = network.getLinks(node);
    send(node, false);
    for (const Network::Link &link : links)
      after += link.node > node;
    // The share of the belief that is not sent.
    double rest = 1 - weight[node] * double(links.size() - after);
    double least = *std::min_element(belief.begin(), belief.begin() + size);
    bound += rest * least;
    magnitude += std::abs(least);
    for (size_t i = 0; i < links.size(); ++i) {
      if (links[i].node < node)
        continue;
      const double *row = network.getRow(links[i], node, suggestion[links[i].node]);
      const double *message = messages.data() + messagesAt[network.linksAt[node] + i];
      for (size_t k = 0; k < size; ++k)
        belief[k] += row[k] - message[k];
    }
    suggestion[node] =
        uint32_t(std::min_element(belief.begin(), belief.begin() + size) - belief.begin());
  }
  for (size_t t = 0; t < prices.size(); ++t)
    bound -= prices[t] * double(network.limits[t]);
  return bound - 1e-11 * magnitude;
}

/// A strategy's memory costs its usage times the prices of the times of its pieces.
void Bound::updateMemoryCosts() {
  std::vector<double> sums(prices.size() + 1);
  for (size_t t = 0; t < prices.size(); ++t)
    sums[t + 1] = sums[t] + prices[t];
  std::fill(memoryCosts.begin(), memoryCosts.end(), 0);
  for (uint32_t node = 0; node < network.getNumNodes(); ++node)
    for (const Network::Span &span : network.getSpans(node)) {
      double price = sums[span.end] - sums[span.begin];
      if (price == 0)
        continue;
      for (size_t k = 0; k < network.size[node]; ++k)
        memoryCosts[network.costsAt[node] + k] += price * double(network.usages[span.usageAt + k]);
    }
}

/// The suggestion's memory minus the limits, at times that have a price or are the worst of their
/// neighbourhood; 0 elsewhere. Neighbouring times that exceed their limits together need one price.
void Bound::findGradient(std::vector<double> &gradient) const {
  gradient.assign(prices.size() + 1, 0);
  for (uint32_t node = 0; node < network.getNumNodes(); ++node)
    for (const Network::Span &span : network.getSpans(node)) {
      double usage = double(network.usages[span.usageAt + suggestion[node]]);
      gradient[span.begin] += usage;
      gradient[span.end] -= usage;
    }
  gradient.pop_back();
  double usage = 0;
  for (size_t t = 0; t < gradient.size(); ++t) {
    usage += gradient[t];
    gradient[t] = usage - double(network.limits[t]);
  }
  constexpr size_t neighbourhood = 64;
  for (size_t begin = 0; begin < gradient.size(); begin += neighbourhood) {
    size_t end = std::min(begin + neighbourhood, gradient.size());
    size_t worst = size_t(std::max_element(gradient.begin() + begin, gradient.begin() + end) -
                          gradient.begin());
    for (size_t t = begin; t < end; ++t)
      if (prices[t] == 0 && (t != worst || gradient[t] <= 0))
        gradient[t] = 0;
  }
}

double Bound::getLimitsCost() const {
  double cost = 0;
  for (size_t t = 0; t < bestPrices.size(); ++t)
    cost += bestPrices[t] * double(network.limits[t]);
  return cost;
}

void Bound::updatePrices(double best) {
  std::vector<double> gradient;
  findGradient(gradient);
  double square = 0;
  for (size_t t = 0; t < prices.size(); ++t) {
    direction[t] = 0.7 * direction[t] + 0.3 * gradient[t];
    square += direction[t] * direction[t];
  }
  if (square == 0)
    return;
  // A first assignment may cost many times the optimum, which would make steps far too long.
  double gap = std::min(best - bound, 0.05 * std::abs(bound) + 1);
  double step = stepScale * std::max(gap, 1e-6 * std::abs(bound)) / square;
  for (size_t t = 0; t < prices.size(); ++t)
    prices[t] = std::max(0.0, prices[t] + step * direction[t]);
  updateMemoryCosts();
}

void Bound::iterate(double best) {
  passForward();
  double now = passBack();
  if (now > bestBound + 1e-7 * std::abs(bestBound) || !std::isfinite(bestBound)) {
    stepsWithoutGain = 0;
  } else if (++stepsWithoutGain >= stepsBeforeShortening) {
    stepScale *= shortening;
    stepsWithoutGain = 0;
  }
  if (now > bestBound) {
    bestBound = now;
    bestPrices = prices;
    bestMemoryCosts = memoryCosts;
  }
  if (stepScale < leastStepScale) {
    // There are more assignments to suggest around the best prices.
    prices = bestPrices;
    stepScale = restartStepScale;
  }
  updatePrices(best);
}
