//===- TcpTransport.h - ranks of several machines ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The host side of a transport between GPUs on several machines: exchanges NCCL's ids, detects lost
// ranks and broadcasts failures. It creates no communicators: CPU ranks must be on one machine.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_TCP_TCPTRANSPORT_H
#define GRIDLOOM_RUNTIME_COMM_TCP_TCPTRANSPORT_H

#include "runtime/comm/Transport.h"

namespace gridloom::rt {

/// Joins the job `job` of `size` ranks as `rank`, and returns when all have joined. `master` is
/// HOST:PORT, an address of rank 0's machine: rank 0 listens only there. Throws InvalidArgument if
/// `master` is empty or ranks disagree, Unavailable if rank 0 cannot listen, DeadlineExceeded
/// naming what is missing.
std::unique_ptr<Transport> joinTcpTransport(const std::string &master, const std::string &job,
                                            int rank, int size,
                                            const TransportOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_TCP_TCPTRANSPORT_H
