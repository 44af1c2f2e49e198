//===- SearchLimits.h - limits of a search -----------------------*- C++ -*-===//
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

/// Limits at which a search settles for the best splits found so far, and its progress. A search
/// continues until it has found some. Not thread-safe.
struct SearchLimits {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  std::function<bool()> isOver; ///< out of time; may be null
  uint64_t mostRounds = kNone;  ///< of the solver, per search
  uint64_t rounds = 0;          ///< run so far, by all searches
  bool isCut = false;           ///< a search was cut short
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SEARCHLIMITS_H
