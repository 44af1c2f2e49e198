//===- Rendezvous.h - processes find their segment --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_RENDEZVOUS_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_RENDEZVOUS_H

#include "runtime/comm/Transport.h"
#include "runtime/comm/local/Segment.h"

namespace gridloom::rt {

/// Gives all `size` ranks that name the same `job` one segment. Rank 0 makes it and hands its
/// descriptor to the others over an abstract socket, which vanishes with rank 0's last use of it.
/// Throws InvalidArgument when the ranks disagree about the size or two claim one rank,
/// DeadlineExceeded naming who did not come, and what options.whileJoining throws.
std::shared_ptr<Segment> meetAtSocket(const std::string &job, int rank, int size,
                                      const TransportOptions &options);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_RENDEZVOUS_H
