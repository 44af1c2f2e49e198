//===- TcpTransport.h - ranks of several machines ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The host side of a transport between GPUs: shares NCCL's ids, notices ranks that are gone and
// notifies all of a failure. It makes no communicators: CPU ranks are joined on one machine only.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_TCP_TCPTRANSPORT_H
#define GRIDLOOM_RUNTIME_COMM_TCP_TCPTRANSPORT_H

#include "runtime/comm/Transport.h"

namespace gridloom::rt {

/// Joins the job `job` of `size` ranks as `rank`, and returns when all have joined. `master` is
/// HOST:PORT, an address of rank 0's machine: rank 0 listens there and on no other address. Throws
/// InvalidArgument without it or when ranks disagree, Unavailable when rank 0 cannot listen,
/// DeadlineExceeded naming what did not come.
std::unique_ptr<Transport> joinTcpTransport(const std::string &master, const std::string &job,
                                            int rank, int size,
                                            const TransportOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_TCP_TCPTRANSPORT_H
