//===- FakeNccl.h - NCCL between threads of one process ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// libfake_nccl exports NCCL's entry points on the fake driver's streams: each rank is a thread with
// its own fake device. Collectives run when all members' streams have reached them, sends when
// their receives have, as NCCL's do, so wrong programs hang or are found; its findings are among
// those of takeFindings(). libfake_nccl_old is the same, of a version without ncclAlltoAll.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKENCCL_H
#define GRIDLOOM_TEST_FAKE_FAKENCCL_H

#include "test/fake/FakeCuda.h"

namespace gridloom::fake {

struct NcclSettings {
  int version = 22809;
  /// How many polls of ncclCommGetAsyncError it takes until a call is on its stream, as when NCCL
  /// still connects. What a caller does before that happens before the operation.
  int polls = 0;
  /// ncclCommAbort does not return before releaseNcclAborts, as where a kernel never sees its flag.
  bool holdsAborts = false;
};

/// Forgets all communicators.
GRIDLOOM_FAKE_EXPORT void resetNccl(const NcclSettings &settings = {});

/// Lets aborts go that NcclSettings::holdsAborts holds.
GRIDLOOM_FAKE_EXPORT void releaseNcclAborts();

/// All communicators of rank `rank` report `result` as their asynchronous error.
GRIDLOOM_FAKE_EXPORT void setNcclError(int rank, int result);

/// A call of an operation, in the order of each rank's calls.
struct NcclLogEntry {
  int communicator = 0;
  int rank = 0;
  bool isTransfer = false;
  std::string what;
};
GRIDLOOM_FAKE_EXPORT std::vector<NcclLogEntry> getNcclLog();

enum class NcclFault {
  Error, // the call returns an error
  Lost,  // the operation is never done, as where a GPU or a network is stuck
};
/// Plants a fault in call number `number`, from 0, of those that device `device` makes to connect,
/// to register memory and to communicate.
GRIDLOOM_FAKE_EXPORT void failNcclCall(int device, int number, NcclFault fault);
/// How many such calls a device has made.
GRIDLOOM_FAKE_EXPORT int countNcclCalls(int device);

/// Whether some order of execution of one kernel after the other on each device, in the order of
/// the calls, would wait in a circle: what NCCL's documentation forbids for several communicators
/// on a device. One line for each circle of two operations.
GRIDLOOM_FAKE_EXPORT std::vector<std::string> findNcclCycles();

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKENCCL_H
