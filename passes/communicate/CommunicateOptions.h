//===- CommunicateOptions.h - options of the phase communicate --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATEOPTIONS_H
#define GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATEOPTIONS_H

#include <cstdint>

namespace gridloom {

/// Size in bytes at which a message of a training step's gradients is full. Such a message takes
/// some milliseconds even on fast links, so that the tens of microseconds to start it do not count;
/// and a model of some hundred MiB has enough of them for all but the last to travel during the
/// backward part.
inline constexpr int64_t kBucketBytes = 25 << 20;

/// Plain data, free of MLIR.
struct CommunicateOptions {
  int64_t chunks = 0; ///< of a matmul, to overlap collectives of its values; 0 or 1: none
  int64_t bucketBytes = kBucketBytes; ///< of gradients in one message; 0: each has its own
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_COMMUNICATE_COMMUNICATEOPTIONS_H
