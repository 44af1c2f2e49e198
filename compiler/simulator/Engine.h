//===- Engine.h - streams, events and links over time -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs what stages submit to their streams. A stream does one thing after another; stages meet
// where they transfer. What holds one level of a stage's links at the same time shares it: each
// gets as much as the others, or less if another of its links is slower, as fluids in pipes do. A
// link has two directions; collectives use both. Cores that all
// stages have in common are shared in the same way, by work and by what copies bytes.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_ENGINE_H
#define GRIDLOOM_COMPILER_SIMULATOR_ENGINE_H

#include "cluster/Passages.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gridloom::sim {

/// One thing on a stream.
struct Item {
  enum class Kind : uint8_t {
    Work,       ///< the device computes
    Record,     ///< records an event, which is then there for good
    Wait,       ///< for the event
    Meet,       ///< every stream of the stage comes here
    Collective, ///< among the stage's ranks
    Send,
    Recv
  };
  Kind kind = Kind::Work;
  /// Of work how long it takes; of communication its start, before anything is on a link.
  double seconds = 0;
  int64_t event = 0; ///< of Record and Wait: unique in the stage; of Meet: its number, from 0
  /// Of Send and Recv: the other stage, and what tells apart transfers between the same stages.
  int64_t peer = 0, channel = 0, iteration = 0;
  /// Of communication; a transfer has those of its send.
  std::shared_ptr<const std::vector<cluster::Passage>> passages = {};
  /// Of work, and of communication while its bytes move: the share that it takes alone of cores
  /// that all stages have in common; 0: it has its own.
  double cores = 0;
  /// Of Meet: from meeting `since` to this one, time passes so many times more; nothing runs then.
  int64_t since = 0;
  double repeats = 0;
};

struct Stage {
  int64_t number = 0;
  std::vector<std::vector<Item>> streams;
};

/// When an item ran.
struct Span {
  double begin = 0, end = 0; ///< from when its stream came to it, with waiting for peers
  double met = 0;            ///< when all who take part were there
  /// Places in the one order in which all beginnings and ends happened.
  uint64_t beginOrder = 0, endOrder = 0;
};

struct Timeline {
  std::vector<std::vector<std::vector<Span>>> spans; ///< by stage, stream and item
  double seconds = 0;                                ///< until all is done
};

/// Runs all stages to the end. None where they wait for each other forever; `error` then says who.
std::optional<Timeline> run(std::span<const Stage> stages, std::string &error);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_ENGINE_H
