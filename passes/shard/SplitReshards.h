//===- SplitReshards.h - what lies between two splits -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITRESHARDS_H
#define GRIDLOOM_PASSES_SHARD_SPLITRESHARDS_H

#include "dialects/dist/Sharding.h"

namespace gridloom {

struct ReshardCost {
  double seconds = 0; ///< of messages
  double order = 0;   ///< to put in order what they send
  double cuts = 0; ///< to cut out a device's part, to pad it and to cut padding, without launches
  bool isCut = false; ///< whether a device's part is cut out: a launch, if its reader cannot do it
};

/// A reduction of what is partial, into parts where `to` has such, then the moves of getMoveCost;
/// most often what the resharder finds, which takes a thousand times as long for all pairs.
/// Infinitely many seconds where there is no way.
ReshardCost getReshardCost(mlir::RankedTensorType type, const dist::Sharding &from,
                           const dist::Sharding &to, const dist::Mesh &mesh);

/// Seconds that a message or a cut between an operation and its reader adds if they are one kernel
/// otherwise: a launch, a write and a read.
double getApartSeconds(mlir::RankedTensorType type, const dist::Sharding &from,
                       const dist::Sharding &to, const dist::Mesh &mesh);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITRESHARDS_H
