//===- Engine.h - streams, events and links over time -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs what stages submit to their streams. A stream runs one item after another; stages meet where
// they transfer. Activities on one level of a stage's links at the same time share it: each gets as
// much as the others, or less if another of its links is slower, like fluids in pipes. A link has
// two directions; collectives use both. Cores that all stages have in common are shared in the same
// way, by work and by communication that copies bytes.
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

/// An entry of a stream.
struct Item {
  enum class Kind : uint8_t {
    Work,       ///< the device computes
    Record,     ///< records an event, which stays recorded
    Wait,       ///< waits for the event
    Meet,       ///< waits for every stream of the stage to come here
    Collective, ///< among the stage's ranks
    Send,
    Recv
  };
  Kind kind = Kind::Work;
  /// Duration of work; of communication, the time to start, before anything is on a link.
  double seconds = 0;
  int64_t event = 0; ///< of Record and Wait: unique in the stage; of Meet: its number, from 0
  /// Of Send and Recv: the other stage, and what identifies a transfer between the two.
  int64_t peer = 0, channel = 0, iteration = 0;
  /// Of communication; a transfer has those of its send.
  std::shared_ptr<const std::vector<cluster::Passage>> passages = {};
  /// Of work, and of communication while its bytes move: the share that it takes, when alone, of
  /// the cores that all stages share; 0: it has its own.
  double cores = 0;
  /// Of Meet: the time since meeting `since` passes `repeats` times more, without running anything.
  int64_t since = 0;
  double repeats = 0;
};

struct Stage {
  int64_t number = 0;
  std::vector<std::vector<Item>> streams;
};

/// When an item ran.
struct Span {
  double begin = 0, end = 0; ///< from when its stream reached it, so with waiting for peers
  double met = 0;            ///< when all participants had reached it
  /// Positions in the total order of all beginnings and ends.
  uint64_t beginOrder = 0, endOrder = 0;
};

struct Timeline {
  std::vector<std::vector<std::vector<Span>>> spans; ///< by stage, stream and item
  double seconds = 0;                                ///< until all is done
};

/// Runs all stages to the end. nullopt if they wait for each other forever; `error` then says who.
std::optional<Timeline> run(std::span<const Stage> stages, std::string &error);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_ENGINE_H
