//===- SearchLimits.h - when a search takes what it has ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SEARCHLIMITS_H
#define GRIDLOOM_PASSES_SHARD_SEARCHLIMITS_H

#include <cstdint>
#include <functional>
#include <limits>

namespace gridloom {

/// When a search takes the best splits it has found so far, and what it did until then. It always
/// goes on until it has found some. One thread at a time uses it.
struct SearchLimits {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  std::function<bool()> isOver; ///< there is no more time; may be null
  uint64_t mostRounds = kNone;  ///< of the solver, in one search
  uint64_t rounds = 0;          ///< that were run, of all searches
  bool isCut = false;           ///< a search was not finished
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SEARCHLIMITS_H
