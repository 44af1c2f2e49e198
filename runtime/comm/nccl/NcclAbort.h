//===- NcclAbort.h - giving up communicators together -----------*- C++ -*-===//
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

/// The limit of an abort, and its message before it ends the process.
struct AbortLimit {
  std::chrono::milliseconds time;
  std::string subject; // "rank 3: all_reduce #12 failed"
};

/// The exit status of a process that an abort would not let go.
inline constexpr int abortExitStatus = 70;

/// Aborts `communicators` of one GPU, which nobody uses any more and no graph holds, and returns
/// when their kernels have ended. ncclCommAbort waits for the kernels of its communicator, and
/// these may stand behind a stuck kernel of another: so all get their flag before any is waited
/// for. Where that takes longer than `limit`, writes one line to stderr and ends the process with
/// abortExitStatus: nothing else gets a thread out of NCCL. Never throws.
void abortTogether(const NcclLibrary &library, const CudaContext &context,
                   std::span<const nccl::Comm> communicators, const AbortLimit &limit) noexcept;

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLABORT_H
