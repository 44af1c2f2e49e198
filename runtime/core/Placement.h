//===- Placement.h - device and transport of a rank -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PLACEMENT_H
#define GRIDLOOM_RUNTIME_CORE_PLACEMENT_H

#include "runtime/comm/Registry.h"
#include "runtime/core/Plan.h"
#include "runtime/device/Registry.h"

#include <memory>

namespace gridloom::rt {

/// Options of devices and transports, the same for all ranks of a job.
struct PlacementOptions {
  /// A name of runtime/comm/Transports.def; empty: the first that connects the target's devices.
  std::string transport;
  /// The GPU of all ranks; negative: local rank i uses GPU i modulo the number that its process
  /// sees.
  int gpu = -1;
  /// Intra-op threads of a CPU rank; 0: cores divided by local ranks.
  unsigned threads = 0;
  TransportOptions limits;
  /// See NcclOptions.
  bool copyEngines = false;
  /// Allows several ranks per GPU with transports that need a GPU for each rank.
  bool shareGpu = false;
  /// Creates the transport for a single rank too: shows whether NCCL works here.
  bool connectsOne = false;
  // Set by prepare.
  const DeviceKind *device = nullptr;
  const TransportKind *kind = nullptr;
  std::shared_ptr<void> shared; // what TransportKind::prepare made

  /// Chooses the transport for ranks on devices of `deviceKind`, a name of Devices.def, and creates
  /// what they share. `subject` names the plan in errors. Throws InvalidArgument if options
  /// contradict each other or do not fit.
  void prepare(const std::string &deviceKind, int ranks, bool inProcess,
               const std::string &subject);
};

/// The device of one rank, and the transport between such devices.
struct Placement {
  std::unique_ptr<Device> device;
  /// Null if the host's transport also serves the device.
  std::unique_ptr<Transport> deviceTransport;
};

/// Places rank `rank`, which is local rank `localRank` of `localSize`; `options` are prepared.
/// `host`, a transport between all ranks on host memory, must outlive the placement; it may be null
/// for one rank. Collective over its ranks.
Placement placeRank(const PlacementOptions &options, int rank, int localRank, int localSize,
                    Transport *host);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PLACEMENT_H
