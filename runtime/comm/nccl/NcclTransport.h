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
  /// Broadcasts the bytes of ranks.front() to all of `ranks`, which call it in the same order. Used
  /// once per communicator.
  std::function<void(std::span<std::byte> bytes, std::span<const int> ranks,
                     const std::string &name)>
      exchange;
  /// Called often by the watchdog; throws PeerFailed if a peer is gone. Optional: without it, a
  /// death that NCCL does not notice is reported at the deadline.
  std::function<void()> checkPeers;
  /// Called instead while an operation with `ranks` takes longer than `liveness`; throws also if
  /// one of them has left properly. Optional.
  std::function<void(std::span<const int> ranks)> checkAwaited;
  /// Notifies the other ranks that this one has failed. Optional.
  std::function<void(const std::string &reason)> abortPeers;
  /// Optional.
  std::shared_ptr<ProgressBoard> progress;
  /// Aborting the communicators for longer ends the process (see abortTogether).
  std::chrono::milliseconds abortLimit{60000};
  /// Registers memory of Transport::allocate if NCCL supports it (2.19 and later; as symmetric
  /// windows since 2.27). Must be equal on all ranks.
  bool registerBuffers = true;
  /// Runs all-gathers and all-to-alls of registered buffers on copy engines (2.28 and later):
  /// within one NVLink domain they then take no SMs from computation. Must be equal on all ranks.
  /// Off by default: a copy starts later than a kernel, which costs more for small messages.
  bool copyEngines = false;
};

/// Connects rank `rank` of `size`, whose GPU is `device`, through NCCL. `device` must outlive the
/// transport. Streams passed to the communicators must be `device`'s.
///
/// NCCL neither detects hangs nor times out, so a watchdog thread does: it polls asynchronous
/// errors and the deadline of every operation that its stream has reached. On failure it aborts all
/// communicators of this rank, after which Stream::synchronize throws. One thread at a time may
/// call the communicators of a transport.
///
/// Throws Unavailable if there is no NCCL or it is older than 2.18.
std::unique_ptr<Transport> createNcclTransport(CudaDevice &device, int rank, int size,
                                               NcclOptions options);

/// Options whose callbacks use `bootstrap`, a transport between the same ranks on host memory,
/// which must outlive the NCCL transport.
NcclOptions makeNcclOptions(Transport &bootstrap, const TransportOptions &transport = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLTRANSPORT_H
