//===- Deferral.cpp - later starts that save memory -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Deferral.h"

#include "llvm/Support/MathExtras.h"

#include <array>

using namespace mlir;

namespace gridloom {
namespace {

using Kind = ScheduleNode::Kind;

/// Relative difference up to which two sums may be equal but for rounding.
constexpr double kRounding = 1e-9;
/// An order has to save more than this fraction of the memory.
constexpr int64_t kWorth = 32;

/// Per node, when its results are needed if compute runs as in a given order, and the latest time
/// at which it has to begin.
struct Needs {
  std::vector<double> needed, latest;
};

Needs findNeeds(ArrayRef<ScheduleNode> nodes, const ListOrder &first) {
  Needs needs{std::vector<double>(nodes.size(), first.end), {}};
  needs.latest = needs.needed;
  SmallVector<double> streamNeeds;
  for (unsigned index : llvm::reverse(first.order)) {
    const ScheduleNode &node = nodes[index];
    double &needed = needs.needed[index];
    for (unsigned successor : node.successors)
      needed = std::min(needed, needs.latest[successor]);
    needs.latest[index] = needed;
    if (node.kind == Kind::Compute) {
      needs.latest[index] = first.begin[index];
    } else if (node.kind == Kind::Start) {
      if (streamNeeds.size() <= node.stream)
        streamNeeds.resize(node.stream + 1, first.end);
      double &next = streamNeeds[node.stream];
      needs.latest[index] = next = std::min(needed, next) - node.seconds;
    }
  }
  return needs;
}

/// Releases a start when the results of the previous start of about its size or more are needed:
/// then two results are in memory, one in use and one under way. As estimates err, the release is
/// kLeast to kMost margins before the latest time; a margin is `times` the start's duration.
std::vector<double> findReleases(ArrayRef<ScheduleNode> nodes, ArrayRef<unsigned> candidates,
                                 ArrayRef<int64_t> added, const Needs &needs, double times) {
  constexpr double kLeast = 0.5, kMost = 8;
  SmallVector<unsigned> byNeed(candidates);
  llvm::stable_sort(byNeed,
                    [&](unsigned a, unsigned b) { return needs.needed[a] < needs.needed[b]; });
  // By the logarithm of their sizes: when results were needed last, and before that.
  std::array<std::pair<double, double>, 64> last{};
  std::vector<double> release(nodes.size(), 0);
  for (unsigned index : byNeed) {
    double needed = needs.needed[index], latest = needs.latest[index], before = 0;
    unsigned level = llvm::Log2_64(static_cast<uint64_t>(added[index]));
    for (unsigned of = level > 0 ? level - 1 : 0; of < last.size(); ++of)
      before = std::max(before, last[of].first < needed ? last[of].first : last[of].second);
    double margin = times * nodes[index].seconds;
    release[index] = std::min(latest - kLeast * margin, std::max(before, latest - kMost * margin));
    if (needed > last[level].first)
      last[level] = {needed, last[level].first};
  }
  return release;
}

} // namespace

std::vector<unsigned> deferStarts(ArrayRef<ScheduleNode> nodes, ArrayRef<int64_t> added,
                                  llvm::function_ref<int64_t(ArrayRef<unsigned>)> getPeak,
                                  ListOrder &order) {
  SmallVector<unsigned> candidates;
  for (unsigned i = 0; i < nodes.size(); ++i)
    if (nodes[i].kind == Kind::Start && added[i] > 0)
      candidates.push_back(i);
  if (candidates.empty())
    return {};
  Needs needs = findNeeds(nodes, order);
  int64_t peak = getPeak(order.order);
  for (double times : {1., 4., 16.}) {
    std::vector<double> release = findReleases(nodes, candidates, added, needs, times);
    std::vector<unsigned> deferred;
    for (unsigned i : candidates)
      if (release[i] > order.issued[i])
        deferred.push_back(i);
    if (deferred.empty())
      break;
    ListOrder other = runList(nodes, release);
    if (other.end > order.end * (1 + kRounding))
      continue;
    if (getPeak(other.order) > peak - peak / kWorth)
      break;
    order = std::move(other);
    return deferred;
  }
  return {};
}

} // namespace gridloom
