//===- Placement.h - what a rank runs on ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PLACEMENT_H
#define GRIDLOOM_RUNTIME_CORE_PLACEMENT_H

#include "runtime/comm/Transport.h"
#include "runtime/core/Plan.h"
#include "runtime/device/Device.h"

#include <memory>

namespace gridloom::rt {

/// What one rank runs on: the plan's kind of device, and the transport between such devices.
struct Placement {
  std::unique_ptr<Device> device;
  /// Null where the host's transport serves the device too.
  std::unique_ptr<Transport> deviceTransport;
};

/// The device of local rank `localRank` of `localSize`: the CPU with `threads` intra-op threads (0:
/// cores divided by `localSize`), or that GPU and NCCL. `host`, a transport between all ranks on
/// host memory, may be null for one rank; it must outlive the placement. Collective over its ranks.
Placement placeRank(const Plan &plan, int localRank, int localSize, unsigned threads,
                    Transport *host, const TransportOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PLACEMENT_H
