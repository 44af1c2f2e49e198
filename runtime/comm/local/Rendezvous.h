//===- Rendezvous.h - share a segment by job name ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_RENDEZVOUS_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_RENDEZVOUS_H

#include "runtime/comm/Transport.h"
#include "runtime/comm/local/Segment.h"

namespace gridloom::rt {

/// Gives all `size` ranks of job `job` one segment. Rank 0 creates it and passes its descriptor to
/// the others over an abstract socket, which disappears when rank 0 closes it. Throws
/// InvalidArgument if the ranks disagree on the size or two have the same rank, DeadlineExceeded
/// naming the missing ranks, and what options.whileJoining throws.
std::shared_ptr<Segment> meetAtSocket(const std::string &job, int rank, int size,
                                      const TransportOptions &options);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_RENDEZVOUS_H
