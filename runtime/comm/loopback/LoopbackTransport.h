//===- LoopbackTransport.h - N logical ranks on one GPU ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOOPBACK_LOOPBACKTRANSPORT_H
#define GRIDLOOM_RUNTIME_COMM_LOOPBACK_LOOPBACKTRANSPORT_H

#include "runtime/comm/loopback/LoopbackHub.h"

namespace gridloom::rt {

/// Connects rank `rank` of `hub`, whose ranks are threads of this process that share one GPU. It is
/// for checking split programs on one GPU, not for speed.
///
/// Collectives are copies and reductions by the ranks' communication streams, ordered by events. A
/// call returns when all members have made theirs; it does not wait for the GPU. `device` must
/// outlive the transport.
std::unique_ptr<Transport> createLoopbackTransport(CudaDevice &device,
                                                   std::shared_ptr<LoopbackHub> hub, int rank,
                                                   const TransportOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOOPBACK_LOOPBACKTRANSPORT_H
