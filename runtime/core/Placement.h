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

class LoopbackHub;

/// How ranks are placed and connected, the same for all ranks of a job.
struct PlacementOptions {
  /// local (CPU ranks), nccl (a GPU per rank) or loopback (logical ranks on one GPU, threads of one
  /// process); empty: by the target.
  std::string transport;
  /// The GPU of all ranks; negative: local rank i has GPU i.
  int gpu = -1;
  /// Intra-op threads of a CPU rank; 0: cores divided by local ranks.
  unsigned threads = 0;
  TransportOptions limits;
  /// NCCL's: see NcclOptions.
  bool copyEngines = false;
  /// Lets NCCL try with several ranks on one GPU.
  bool shareGpu = false;
  /// Connects a rank that is alone too: shows whether NCCL works here.
  bool connectsOne = false;
  // Set by prepare.
  bool onGpu = false;
  std::shared_ptr<LoopbackHub> hub; // where loopback's ranks meet

  /// Chooses the transport for ranks on devices of `kind` ("cpu", "cuda") and makes what they
  /// share. `subject` is what is to run, for errors. Throws InvalidArgument when the options
  /// contradict each other or do not fit.
  void prepare(const std::string &kind, int ranks, bool inProcess, const std::string &subject);
};

/// What one rank runs on: a device, and the transport between such devices.
struct Placement {
  std::unique_ptr<Device> device;
  /// Null where the host's transport serves the device too.
  std::unique_ptr<Transport> deviceTransport;
};

/// What rank `rank` runs on, which is local rank `localRank` of `localSize`; `options` are
/// prepared. `host`, a transport between all ranks on host memory, may be null for one rank; it
/// must outlive the placement. Collective over its ranks.
Placement placeRank(const PlacementOptions &options, int rank, int localRank, int localSize,
                    Transport *host);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PLACEMENT_H
