//===- FakeNccl.h - NCCL between threads of one process ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// libfake_nccl exports NCCL's entry points on the fake driver's streams: each rank is a thread with
// its own fake device. As in NCCL, collectives run when the streams of all members have reached
// them, and sends when their receives have, so wrong programs hang or give findings, which
// takeFindings() returns. libfake_nccl_old is the same as a version without ncclAlltoAll.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKENCCL_H
#define GRIDLOOM_TEST_FAKE_FAKENCCL_H

#include "test/fake/FakeCuda.h"

namespace gridloom::fake {

struct NcclSettings {
  int version = 22809;
  /// Polls of ncclCommGetAsyncError until a call is on its stream, as while NCCL still connects.
  /// What the caller does before that happens before the operation.
  int polls = 0;
  /// ncclCommAbort blocks until releaseNcclAborts, as if a kernel never saw its flag.
  bool holdsAborts = false;
};

/// Forgets all communicators.
GRIDLOOM_FAKE_EXPORT void resetNccl(const NcclSettings &settings = {});

/// Releases aborts that NcclSettings::holdsAborts holds.
GRIDLOOM_FAKE_EXPORT void releaseNcclAborts();

/// All communicators of rank `rank` report `result` as their asynchronous error.
GRIDLOOM_FAKE_EXPORT void setNcclError(int rank, int result);

/// A call of an operation, in the order of its rank's calls.
struct NcclLogEntry {
  int communicator = 0;
  int rank = 0;
  bool isTransfer = false;
  std::string what;
};
GRIDLOOM_FAKE_EXPORT std::vector<NcclLogEntry> getNcclLog();

enum class NcclFault {
  Error, // the call returns an error
  Lost,  // the operation never completes, as if a GPU or network is stuck
};
/// Plants a fault in call number `number`, from 0, of device `device`'s calls that connect,
/// register memory and communicate.
GRIDLOOM_FAKE_EXPORT void failNcclCall(int device, int number, NcclFault fault);
/// The number of such calls by a device.
GRIDLOOM_FAKE_EXPORT int countNcclCalls(int device);

/// Cycles: whether some order, with one kernel at a time on each device in the order of the calls,
/// would deadlock, which NCCL's documentation forbids for several communicators on a device.
/// Returns one line for each cycle of two operations.
GRIDLOOM_FAKE_EXPORT std::vector<std::string> findNcclCycles();

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKENCCL_H
