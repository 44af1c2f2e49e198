//===- Costs.cpp - times and bytes of work and communication ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Passages.h"

#include <bit>

using namespace gridloom::cluster;

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

ComputeParts gridloom::cluster::getComputeParts(const DeviceKind &kind, const Work &work) {
  double bytes = work.readBytes + work.writtenBytes;
  ComputeParts parts;
  if (work.flops > 0)
    parts.arithmetic =
        work.flops / (kind.getRate(work.kind, work.type) *
                      kind.efficiency[static_cast<size_t>(work.kind)].at(work.flops));
  if (bytes > 0)
    parts.memory = bytes / (kind.bytesPerSecond * kind.memoryEfficiency.at(bytes));
  return parts;
}

double gridloom::cluster::getComputeSeconds(const DeviceKind &kind, const Work &work) {
  if (work.flops <= 0 && work.readBytes + work.writtenBytes <= 0)
    return 0;
  auto [arithmetic, memory] = getComputeParts(kind, work);
  return kind.launchSeconds + std::max(arithmetic, memory) +
         kind.getUnhidden(work.kind) * std::min(arithmetic, memory);
}

double gridloom::cluster::getComputeSeconds(const Machine &machine, const Work &work) {
  double slowest = 0;
  for (const DeviceKind &kind : machine.kinds)
    slowest = std::max(slowest, getComputeSeconds(kind, work));
  return slowest;
}

//===----------------------------------------------------------------------===//
// Communication
//===----------------------------------------------------------------------===//

std::optional<Collective> gridloom::cluster::findCollective(std::string_view name) {
  static constexpr std::string_view names[] = {
      "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
      "broadcast",  "permute",        "send",       "recv"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name)
      return static_cast<Collective>(i);
  return std::nullopt;
}

/// True for a single message from one rank to another.
static bool isMessage(Collective kind) {
  return kind == Collective::Permute || kind == Collective::Send || kind == Collective::Recv;
}

double gridloom::cluster::getSentBytes(Collective kind, double bytes, int64_t members) {
  auto n = static_cast<double>(members);
  if (members < 2 || kind == Collective::Recv)
    return 0;
  if (isMessage(kind))
    return bytes;
  return (kind == Collective::AllReduce ? 2 : 1) * bytes * (n - 1) / n;
}

Steps gridloom::cluster::getRingSteps(Collective kind, double bytes, const Tier &tier) {
  auto n = static_cast<double>(tier.members);
  double alpha = tier.latencySeconds, all = bytes / tier.bytesPerSecond;
  if (isMessage(kind))
    return {alpha, all};
  double turns = kind == Collective::AllReduce ? 2 : 1;
  return {turns * (n - 1) * alpha, turns * (n - 1) * (all / n)};
}

Steps gridloom::cluster::getTreeSteps(Collective kind, double bytes, const Tier &tier) {
  auto n = static_cast<double>(tier.members);
  double alpha = tier.latencySeconds, all = bytes / tier.bytesPerSecond;
  auto steps = static_cast<double>(std::bit_width(static_cast<uint64_t>(tier.members - 1)));
  switch (kind) {
  case Collective::AllReduce: {
    // Ranks beyond a power of two give theirs to others first, and get the sum in the end.
    bool isPower = std::has_single_bit(static_cast<uint64_t>(tier.members));
    double exchanges = isPower ? steps : steps + 1;
    Steps trees{2 * steps * alpha, 2 * all}, exchange{exchanges * alpha, exchanges * all};
    return trees.getSeconds() < exchange.getSeconds() ? trees : exchange;
  }
  case Collective::ReduceScatter:
  case Collective::AllGather:
    return {steps * alpha, all * (n - 1) / n};
  case Collective::AllToAll: // every step moves half of what there is
    return {steps * alpha, steps * all / 2};
  case Collective::Broadcast:
    return {steps * alpha, all};
  case Collective::Permute:
  case Collective::Send:
  case Collective::Recv:
    return {alpha, all};
  }
  return {};
}

double gridloom::cluster::getRingSeconds(Collective kind, double bytes, const Tier &tier) {
  return getRingSteps(kind, bytes, tier).getSeconds();
}

double gridloom::cluster::getTreeSeconds(Collective kind, double bytes, const Tier &tier) {
  return getTreeSteps(kind, bytes, tier).getSeconds();
}

static Steps getBetterSteps(Collective kind, double bytes, const Tier &tier) {
  Steps ring = getRingSteps(kind, bytes, tier), tree = getTreeSteps(kind, bytes, tier);
  return tree.getSeconds() < ring.getSeconds() ? tree : ring;
}

/// Calls `visit` with each tier's place in the group and its steps, in order. A message uses all
/// its links at once: only its slowest tier is visited.
template <typename VisitT>
static void forEachTier(Collective kind, double bytes, const Group &group, VisitT visit) {
  if (group.empty())
    return;
  if (isMessage(kind)) {
    size_t slowest = 0;
    for (size_t i = 1; i < group.size(); ++i)
      if (getRingSeconds(kind, bytes, group[i]) > getRingSeconds(kind, bytes, group[slowest]))
        slowest = i;
    return visit(slowest, getRingSteps(kind, bytes, group[slowest]));
  }
  bool scatters = kind == Collective::AllReduce || kind == Collective::ReduceScatter ||
                  kind == Collective::AllGather;
  double share = bytes;
  std::vector<Steps> gathers; // of an all_reduce, which come back in the end
  for (size_t i = 0; i < group.size(); ++i) {
    if (kind == Collective::AllReduce && i + 1 < group.size()) {
      visit(i, getBetterSteps(Collective::ReduceScatter, share, group[i]));
      gathers.push_back(getBetterSteps(Collective::AllGather, share, group[i]));
    } else {
      visit(i, getBetterSteps(kind, share, group[i]));
    }
    if (scatters)
      share /= static_cast<double>(group[i].members);
  }
  for (size_t i = gathers.size(); i-- > 0;)
    visit(i, gathers[i]);
}

double gridloom::cluster::getTieredSeconds(Collective kind, double bytes, const Group &group) {
  double seconds = 0;
  forEachTier(kind, bytes, group,
              [&](size_t, const Steps &steps) { seconds += steps.getSeconds(); });
  return seconds;
}

Tier gridloom::cluster::flatten(Collective kind, const Group &group) {
  Tier flat = group.front();
  bool isRing = kind != Collective::AllToAll && !isMessage(kind);
  for (const Tier &tier : std::span(group).subspan(1)) {
    double ways = isRing ? static_cast<double>(flat.members) : 1;
    flat.bytesPerSecond = std::min(flat.bytesPerSecond, ways * tier.bytesPerSecond);
    flat.latencySeconds = std::max(flat.latencySeconds, tier.latencySeconds);
    flat.members *= tier.members;
  }
  return flat;
}

double gridloom::cluster::getStartSeconds(const Machine &machine) {
  double start = 0;
  for (const DeviceKind &device : machine.kinds)
    start = std::max(start, device.collectiveSeconds);
  return start;
}

double gridloom::cluster::getCollectiveSeconds(const Machine &machine, Collective kind,
                                               double bytes, const Group &group) {
  if (group.empty())
    return 0;
  return getStartSeconds(machine) +
         std::min(getBetterSteps(kind, bytes, flatten(kind, group)).getSeconds(),
                  getTieredSeconds(kind, bytes, group));
}

double Passage::getTransferSeconds() const {
  double longest = 0;
  for (const Load &load : loads)
    longest = std::max(longest, load.seconds);
  return longest;
}

/// The passage over all tiers as one, as flatten models them.
static Passage getFlatPassage(Collective kind, const PlacedGroup &group, const Steps &steps) {
  Tier flat = flatten(kind, group.tiers);
  bool isRing = kind != Collective::AllToAll && !isMessage(kind);
  Passage passage{steps.latencySeconds, {}};
  double inner = 1;
  for (size_t i = 0; i < group.tiers.size(); ++i) {
    double ways = i && isRing ? inner : 1;
    double share = flat.bytesPerSecond / (ways * group.tiers[i].bytesPerSecond);
    if (steps.transferSeconds > 0)
      passage.loads.push_back({group.levels[i], steps.transferSeconds * share});
    inner *= static_cast<double>(group.tiers[i].members);
  }
  return passage;
}

std::vector<Passage> gridloom::cluster::getPassages(Collective kind, double bytes,
                                                    const PlacedGroup &group) {
  std::vector<Passage> passages;
  if (group.tiers.empty())
    return passages;
  Steps flat = getBetterSteps(kind, bytes, flatten(kind, group.tiers));
  if (flat.getSeconds() <= getTieredSeconds(kind, bytes, group.tiers))
    return {getFlatPassage(kind, group, flat)};
  forEachTier(kind, bytes, group.tiers, [&](size_t tier, const Steps &steps) {
    Passage &passage = passages.emplace_back(Passage{steps.latencySeconds, {}});
    if (steps.transferSeconds > 0)
      passage.loads.push_back({group.levels[tier], steps.transferSeconds});
  });
  return passages;
}
