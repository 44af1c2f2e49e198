//===- Machine.cpp - a cluster as a mesh sees it ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Machine.h"

#include "cluster/Components.h"
#include "cluster/Passages.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <queue>

using namespace gridloom::cluster;

std::string Machine::getName() const {
  std::string name;
  for (const DeviceKind &kind : kinds)
    name += (name.empty() ? "" : "+") + kind.name;
  return name;
}

int64_t Machine::getMemoryBytes() const {
  int64_t least = 0;
  for (const DeviceKind &kind : kinds)
    if (kind.memoryBytes && (!least || kind.memoryBytes < least))
      least = kind.memoryBytes;
  return least;
}

//===----------------------------------------------------------------------===//
// Levels
//===----------------------------------------------------------------------===//

namespace {

/// Links that are slower by more than this factor are another level.
constexpr double kLevelSpread = 2;

/// A link, and the bandwidth of it that each device using it has.
struct SharedLink {
  double bytesPerSecond;
  const Link *link;
};

class LevelFinder {
public:
  LevelFinder(const Cluster &cluster, uint32_t numUsed)
      : cluster(cluster), numUsed(numUsed), components(cluster.getNumNodes()),
        links(cluster.getNumNodes()) {
    for (const Link &link : cluster.links) {
      links[link.from].push_back(&link);
      links[link.to].push_back(&link);
    }
  }
  std::vector<Level> find();

private:
  static uint32_t getOther(const Link &link, uint32_t node) {
    return link.from == node ? link.to : link.from;
  }
  void findHeights();
  void findLoads();
  double getShare(const Link &link) const;
  bool join(const Link &link);
  std::optional<int64_t> findBlock();
  double findLatency(double slowest);

  const Cluster &cluster;
  uint32_t numUsed; ///< devices, the first ones
  Components components;
  std::vector<std::vector<const Link *>> links; ///< by node
  std::vector<uint32_t> heights;                ///< links to the nearest device
  std::vector<uint32_t> order;                  ///< nodes by height
  std::vector<double> loads;                    ///< devices whose path upward goes through the node
  std::vector<double> upward;                   ///< bandwidth of all links to higher nodes
};

} // namespace

void LevelFinder::findHeights() {
  constexpr uint32_t unknown = ~0U;
  heights.assign(cluster.getNumNodes(), unknown);
  for (uint32_t device = 0; device < cluster.devices.size(); ++device) {
    heights[device] = 0;
    order.push_back(device);
  }
  for (size_t next = 0; next < order.size(); ++next)
    for (const Link *link : links[order[next]])
      if (uint32_t other = getOther(*link, order[next]); heights[other] == unknown) {
        heights[other] = heights[order[next]] + 1;
        order.push_back(other);
      }
}

/// Traffic up from a switch spreads evenly over its links upward; a device's own links each lead
/// into another network.
void LevelFinder::findLoads() {
  loads.assign(cluster.getNumNodes(), 0);
  upward.assign(cluster.getNumNodes(), 0);
  for (uint32_t node : order) {
    if (heights[node] == 0)
      loads[node] = 1;
    double ways = 0;
    for (const Link *link : links[node])
      if (heights[getOther(*link, node)] > heights[node]) {
        upward[node] += link->getBytesPerSecond();
        ++ways;
      }
    for (const Link *link : links[node])
      if (uint32_t other = getOther(*link, node); heights[other] > heights[node])
        loads[other] += loads[node] / (heights[node] == 0 ? 1 : ways);
  }
}

double LevelFinder::getShare(const Link &link) const {
  uint32_t lower = heights[link.from] <= heights[link.to] ? link.from : link.to;
  uint32_t upper = getOther(link, lower);
  if (heights[lower] < heights[upper])
    return heights[lower] == 0 ? link.getBytesPerSecond() : upward[lower] / loads[lower];
  return link.getBytesPerSecond() / std::min(loads[lower], loads[upper]);
}

/// Joins the link's ends. Returns whether that connects ranks that were separate. A set's number is
/// that of its first node, and ranks come first.
bool LevelFinder::join(const Link &link) {
  bool hasRanks = std::max(components.find(link.from), components.find(link.to)) < numUsed;
  return components.join(link.from, link.to) && hasRanks;
}

/// The number of consecutive ranks that are always connected; none if all are.
std::optional<int64_t> LevelFinder::findBlock() {
  int64_t block = 0;
  for (uint32_t device = 1; device < numUsed; ++device)
    if (components.find(device) != components.find(device - 1))
      block = std::gcd(block, static_cast<int64_t>(device));
  return block ? std::optional(block) : std::nullopt;
}

/// The longest of the shortest paths from a block's first rank to its others, in seconds, over
/// links that give a device at least `slowest`.
double LevelFinder::findLatency(double slowest) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> reached(cluster.getNumNodes(), infinite);
  using Entry = std::pair<double, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  double longest = 0;
  for (uint32_t first = 0; first < numUsed; ++first) {
    if (reached[first] != infinite)
      continue;
    open.emplace(reached[first] = 0, first);
    while (!open.empty()) {
      auto [seconds, node] = open.top();
      open.pop();
      if (seconds > reached[node])
        continue;
      if (node < numUsed)
        longest = std::max(longest, seconds);
      for (const Link *link : links[node])
        if (uint32_t other = getOther(*link, node);
            getShare(*link) >= slowest && seconds + link->latencySeconds < reached[other]) {
          reached[other] = seconds + link->latencySeconds;
          open.emplace(reached[other], other);
        }
    }
  }
  return longest;
}

std::vector<Level> LevelFinder::find() {
  std::vector<Level> levels;
  if (numUsed < 2)
    return levels;
  findHeights();
  findLoads();
  std::vector<SharedLink> shared;
  for (const Link &link : cluster.links)
    shared.push_back({getShare(link), &link});
  std::stable_sort(shared.begin(), shared.end(), [](const SharedLink &a, const SharedLink &b) {
    return a.bytesPerSecond > b.bytesPerSecond;
  });
  int64_t before = 1;
  for (auto next = shared.begin(); next != shared.end();) {
    double fastest = next->bytesPerSecond, slowest = fastest;
    for (; next != shared.end() && next->bytesPerSecond * kLevelSpread >= fastest; ++next)
      if (join(*next->link))
        slowest = next->bytesPerSecond;
    std::optional<int64_t> block = findBlock();
    if (block == before)
      continue; // connects no more consecutive ranks
    levels.push_back({block.value_or(numUsed), findLatency(slowest), slowest});
    if (!block)
      break;
    before = *block;
  }
  return levels;
}

/// The fewest cores of a device, by kind; a device that shares none has those of the kind's rates.
static std::vector<double> shareCores(const Cluster &cluster, uint32_t numUsed) {
  std::vector<double> cores(cluster.kinds.size(), std::numeric_limits<double>::infinity());
  std::vector<uint32_t> alone(cluster.kinds.size(), 0);
  for (uint32_t kind : std::span(cluster.devices).first(numUsed))
    ++alone[kind];
  for (const SharedCores &shared : cluster.sharedCores) {
    if (shared.first >= numUsed)
      break;
    uint32_t kind = cluster.devices[shared.first],
             count = std::min(shared.count, numUsed - shared.first);
    int64_t whole = shared.cores / count; // as threads are
    double each =
        whole > 0 ? static_cast<double>(whole) : static_cast<double>(shared.cores) / count;
    cores[kind] = std::min(cores[kind], each);
    alone[kind] -= count;
  }
  for (uint32_t kind = 0; kind < cores.size(); ++kind)
    if (alone[kind] > 0)
      cores[kind] = std::min(cores[kind], cluster.kinds[kind].cores);
  return cores;
}

Machine gridloom::cluster::makeMachine(const Cluster &cluster, int64_t numDevices) {
  assert(numDevices <= cluster.getNumDevices() && "fewer devices than are wanted");
  Machine machine;
  std::vector<bool> isTaken(cluster.kinds.size(), false);
  std::vector<double> cores = shareCores(cluster, static_cast<uint32_t>(numDevices));
  for (uint32_t kind : std::span(cluster.devices).first(static_cast<size_t>(numDevices)))
    if (!isTaken[kind]) {
      isTaken[kind] = true;
      machine.kinds.push_back(withCores(cluster.kinds[kind], cores[kind]));
    }
  machine.levels = LevelFinder(cluster, static_cast<uint32_t>(numDevices)).find();
  return machine;
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// How many neighbours along the axis are always in one block.
static int64_t countInside(const PlacedAxis &axis, int64_t block) {
  return block % axis.stride == 0 ? std::gcd(axis.size, block / axis.stride) : 1;
}

PlacedGroup gridloom::cluster::placeOnLevels(const Machine &machine,
                                             std::span<const PlacedAxis> axes) {
  PlacedGroup group;
  int64_t inner = 1;
  for (size_t i = 0; i < machine.levels.size(); ++i) {
    const Level &level = machine.levels[i];
    bool isLast = i + 1 == machine.levels.size();
    int64_t members = 1;
    for (const PlacedAxis &axis : axes)
      members *= isLast ? axis.size : countInside(axis, level.block);
    if (members > inner) {
      group.tiers.push_back({members / inner, level.latencySeconds, level.bytesPerSecond});
      group.levels.push_back(i);
    }
    inner = members;
  }
  return group;
}

Group gridloom::cluster::placeGroup(const Machine &machine, std::span<const PlacedAxis> axes) {
  return placeOnLevels(machine, axes).tiers;
}
