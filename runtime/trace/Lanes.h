//===- Lanes.h - a run as blocks on streams ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What a picture of a run draws. A run may have millions of steps; short ones beside each other
// become one block until there are few enough.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRACE_LANES_H
#define GRIDLOOM_RUNTIME_TRACE_LANES_H

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace gridloom::rt {

/// Steps that ran one after another on a stream.
struct Block {
  int64_t begin = 0, end = 0; ///< ns
  size_t step = 0;            ///< of several steps the longest
  int64_t iteration = 0;      ///< of that step: its micro-batch
  int64_t count = 1;          ///< steps
};

/// The blocks of one stream, in order of time.
using Lane = std::vector<Block>;

/// Joins neighbours that are short, and have short gaps between them, until all lanes together
/// have at most `most` blocks, or one each. Returns the nanoseconds up to which a step counts as
/// short; 0 where nothing had to be joined.
int64_t joinShort(std::vector<Lane> &lanes, size_t most);

/// Five numbers for each block: the gap since the last one's end (of the first one since 0) and
/// the duration, in ns, then step, iteration and count.
nlohmann::json packLane(const Lane &lane);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRACE_LANES_H
