//===- Costs.h - times and bytes of work and communication ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The only source of estimated times and sent bytes: all code that compares alternatives asks here.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_COSTS_H
#define GRIDLOOM_CLUSTER_COSTS_H

#include "cluster/Machine.h"

#include <string_view>

namespace gridloom::cluster {

/// What one kernel or library call does on a device.
struct Work {
  WorkClass kind = WorkClass::Other;
  NumberType type = NumberType::F32;
  double flops = 0; ///< a multiply-add counts as two
  double readBytes = 0, writtenBytes = 0;
};

/// Seconds that the work's arithmetic and its memory traffic would each take alone.
struct ComputeParts {
  double arithmetic = 0, memory = 0;
};
ComputeParts getComputeParts(const DeviceKind &kind, const Work &work);

/// Launch plus the longer of arithmetic and memory traffic (the roofline of Williams, Waterman and
/// Patterson 2009) plus the share of the shorter that is not hidden. Work that does nothing takes
/// no time.
double getComputeSeconds(const DeviceKind &kind, const Work &work);
/// The same on the mesh's slowest device: all have an equal share.
double getComputeSeconds(const Machine &machine, const Work &work);

enum class Collective : uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  Broadcast,
  Permute,
  Send,
  Recv
};

/// By its name in IR and in plans: "all_reduce".
std::optional<Collective> findCollective(std::string_view name);

/// Bytes that a rank sends in a ring. Here and below `bytes` are those of a rank's operand or
/// result, whichever is larger; a group of one rank sends nothing and takes no time.
double getSentBytes(Collective kind, double bytes, int64_t members);

/// One ring, or messages to one rank after another: 2 (n - 1) (a + S / (n b)) for an all_reduce of
/// S bytes over n ranks with latency a and bandwidth b (Thakur, Rabenseifner and Gropp 2005).
double getRingSeconds(Collective kind, double bytes, const Tier &tier);

/// The number of steps is logarithmic in the ranks. An all_reduce goes up and down two trees, 2
/// log2(n) a + 2 S / b (Sanders, Speck and Träff 2009), or, if it is short, ranks at doubled
/// distances exchange all they have, log2(n) (a + S / b); the others double distances (Bruck et al.
/// 1997).
double getTreeSeconds(Collective kind, double bytes, const Tier &tier);

/// Inner tiers reduce_scatter before the outer ones communicate their share, and all_gather after
/// them; each tier by the better of ring and tree.
double getTieredSeconds(Collective kind, double bytes, const Group &group);

/// All tiers as one, with the outermost latency. A ring leaves a block of an inner tier once, over
/// the links of all its members; other messages use only their own rank's links.
Tier flatten(Collective kind, const Group &group);

/// The time to start a collective or transfer, on the slowest device.
double getStartSeconds(const Machine &machine);

/// The best of the above, plus the start.
double getCollectiveSeconds(const Machine &machine, Collective kind, double bytes,
                            const Group &group);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_COSTS_H
