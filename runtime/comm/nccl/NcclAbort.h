//===- NcclAbort.h - abort several communicators ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_NCCL_NCCLABORT_H
#define GRIDLOOM_RUNTIME_COMM_NCCL_NCCLABORT_H

#include "runtime/comm/nccl/NcclLibrary.h"
#include "runtime/device/cuda/CudaStream.h"

#include <chrono>
#include <span>

namespace gridloom::rt {

/// The time limit of an abort, and the message before it ends the process.
struct AbortLimit {
  std::chrono::milliseconds time;
  std::string subject; // "rank 3: all_reduce #12 failed"
};

/// The exit status of a process whose abort exceeded its limit.
inline constexpr int abortExitStatus = 70;

/// Aborts `communicators` of one GPU, which must not be used by any thread or graph, and returns
/// when their kernels have ended. ncclCommAbort waits for the kernels of its communicator, which
/// may be queued behind a stuck kernel of another: so all abort flags are set before any is waited
/// for. If that exceeds `limit`, writes one line to stderr and ends the process with
/// abortExitStatus: a thread cannot leave NCCL otherwise. Never throws.
void abortTogether(const NcclLibrary &library, const CudaContext &context,
                   std::span<const nccl::Comm> communicators, const AbortLimit &limit) noexcept;

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLABORT_H
