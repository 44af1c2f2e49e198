//===- CommunicateOptions.h - options of the phase communicate --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATEOPTIONS_H
#define GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATEOPTIONS_H

#include <cstdint>

namespace gridloom {

/// Gradients of a training step travel together until they have so many bytes. A message of so many
/// takes some milliseconds even on fast links, against which the tens of microseconds that each
/// one's start takes do not count; and a model of some hundred MiB has enough of them for all but
/// the last to travel during the backward part.
inline constexpr int64_t kBucketBytes = 25 << 20;

/// Plain data, free of MLIR.
struct CommunicateOptions {
  int64_t chunks = 0; ///< of a matmul beside a collective of its operand or result; 0 or 1: none
  int64_t bucketBytes = kBucketBytes; ///< of gradients in one all_reduce; 0: each has its own
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATEOPTIONS_H
