//===- Costs.cpp - times and bytes of work and communication ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Costs.h"

#include <bit>

using namespace gridloom::cluster;

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

double gridloom::cluster::getComputeSeconds(const DeviceKind &kind, const Work &work) {
  double bytes = work.readBytes + work.writtenBytes;
  if (work.flops <= 0 && bytes <= 0)
    return 0;
  double arithmetic = 0, memory = 0;
  if (work.flops > 0)
    arithmetic = work.flops / (kind.getRate(work.kind, work.type) *
                               kind.efficiency[static_cast<size_t>(work.kind)].at(work.flops));
  if (bytes > 0)
    memory = bytes / (kind.bytesPerSecond * kind.memoryEfficiency.at(bytes));
  return kind.launchSeconds + std::max(arithmetic, memory);
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

/// True for what goes from one rank to another in one message.
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

double gridloom::cluster::getRingSeconds(Collective kind, double bytes, const Tier &tier) {
  auto n = static_cast<double>(tier.members);
  double alpha = tier.latencySeconds, all = bytes / tier.bytesPerSecond;
  if (isMessage(kind))
    return alpha + all;
  double once = (n - 1) * (alpha + all / n);
  return kind == Collective::AllReduce ? 2 * once : once;
}

double gridloom::cluster::getTreeSeconds(Collective kind, double bytes, const Tier &tier) {
  auto n = static_cast<double>(tier.members);
  double alpha = tier.latencySeconds, all = bytes / tier.bytesPerSecond;
  auto steps = static_cast<double>(std::bit_width(static_cast<uint64_t>(tier.members - 1)));
  switch (kind) {
  case Collective::AllReduce: {
    // Ranks beyond a power of two give theirs to others first, and get the sum in the end.
    bool isPower = std::has_single_bit(static_cast<uint64_t>(tier.members));
    double exchanges = isPower ? steps : steps + 1;
    return std::min(2 * (steps * alpha + all), exchanges * (alpha + all));
  }
  case Collective::ReduceScatter:
  case Collective::AllGather:
    return steps * alpha + all * (n - 1) / n;
  case Collective::AllToAll: // every step moves half of what there is
    return steps * (alpha + all / 2);
  case Collective::Broadcast:
    return steps * alpha + all;
  case Collective::Permute:
  case Collective::Send:
  case Collective::Recv:
    return alpha + all;
  }
  return 0;
}

static double getBetterSeconds(Collective kind, double bytes, const Tier &tier) {
  return std::min(getRingSeconds(kind, bytes, tier), getTreeSeconds(kind, bytes, tier));
}

double gridloom::cluster::getTieredSeconds(Collective kind, double bytes, const Group &group) {
  double seconds = 0, share = bytes;
  for (const Tier &tier : group) {
    bool isOutermost = &tier == &group.back();
    auto n = static_cast<double>(tier.members);
    switch (kind) {
    case Collective::AllReduce:
      seconds += isOutermost ? getBetterSeconds(kind, share, tier)
                             : getBetterSeconds(Collective::ReduceScatter, share, tier) +
                                   getBetterSeconds(Collective::AllGather, share, tier);
      share /= n;
      break;
    case Collective::ReduceScatter:
    case Collective::AllGather:
      seconds += getBetterSeconds(kind, share, tier);
      share /= n;
      break;
    case Collective::AllToAll:
    case Collective::Broadcast:
      seconds += getBetterSeconds(kind, bytes, tier);
      break;
    case Collective::Permute:
    case Collective::Send:
    case Collective::Recv:
      seconds = std::max(seconds, getRingSeconds(kind, bytes, tier));
      break;
    }
  }
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
  return getStartSeconds(machine) + std::min(getBetterSeconds(kind, bytes, flatten(kind, group)),
                                             getTieredSeconds(kind, bytes, group));
}
