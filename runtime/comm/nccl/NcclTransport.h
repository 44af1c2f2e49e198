//===- NcclTransport.h - GPUs connected by NCCL -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_NCCL_NCCLTRANSPORT_H
#define GRIDLOOM_RUNTIME_COMM_NCCL_NCCLTRANSPORT_H

#include "runtime/comm/Transport.h"
#include "runtime/device/cuda/CudaDevice.h"

namespace gridloom::rt {

struct NcclOptions {
  /// Empty: environment variable GRIDLOOM_NCCL, else libnccl.so.2.
  std::string library;
  TransportOptions transport;
  /// Gives every rank of `ranks` the bytes that ranks.front() has; all of them call it in the same
  /// order. NCCL needs it once for each communicator.
  std::function<void(std::span<std::byte> bytes, std::span<const int> ranks,
                     const std::string &name)>
      exchange;
  /// Called often by the watchdog; throws PeerFailed when a peer is gone. Optional: without it a
  /// death that NCCL does not notice ends at the deadline.
  std::function<void()> checkPeers;
  /// Called instead while an operation with `ranks` lasts longer than the time of liveness; throws
  /// also when one of them has left in order. Optional.
  std::function<void(std::span<const int> ranks)> checkAwaited;
  /// Notifies the other ranks that this one gave up. Optional.
  std::function<void(const std::string &reason)> abortPeers;
  /// Optional.
  std::shared_ptr<ProgressBoard> progress;
  /// An abort of the communicators that takes longer ends the process (see abortTogether).
  std::chrono::milliseconds abortLimit{60000};
  /// Registers what Transport::allocate made, where NCCL can (2.19 and later; as symmetric windows
  /// since 2.27). The same on all ranks.
  bool registerBuffers = true;
  /// Has the copy engines do all-gathers and all-to-alls of registered buffers (2.28 and later; the
  /// same on all ranks): they then take no SMs from computation, within one NVLink domain. Off by
  /// default: a copy starts later than a kernel, which costs more where messages are small.
  bool copyEngines = false;
};

/// Connects rank `rank` of `size`, whose GPU is `device`, through NCCL. `device` outlives the
/// transport. Streams given to the communicators must be `device`'s.
///
/// NCCL neither notices a hang nor gives up, so a watchdog thread does: it polls asynchronous
/// errors and the deadline of every operation that its stream has reached, and on failure aborts
/// all communicators of this rank, after which Stream::synchronize throws. One thread at a time
/// calls into the communicators of a transport.
///
/// Throws Unavailable with one line when there is no NCCL or it is older than 2.18.
std::unique_ptr<Transport> createNcclTransport(CudaDevice &device, int rank, int size,
                                               NcclOptions options);

/// Options whose exchange, abort, progress and checks of peers go through `bootstrap`, a transport
/// between the same ranks that works on host memory. It outlives the NCCL transport.
NcclOptions makeNcclOptions(Transport &bootstrap, const TransportOptions &transport = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLTRANSPORT_H
