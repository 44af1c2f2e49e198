//===- KeptSharding.h - a value resharded once for many readers -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_PARTITION_KEPTSHARDING_H
#define GRIDLOOM_PASSES_PARTITION_KEPTSHARDING_H

#include "dialects/dist/Sharding.h"

#include <optional>

namespace gridloom {

/// The sharding that the program declares of an operation's result, if resharding the result to it
/// once and from there for each reader takes less time than resharding it for each reader from any
/// sharding it already has. `made` is the sharding in which the operation makes it. Readers need it
/// as their `dist.splits` say; none of them has been resharded yet.
std::optional<dist::Sharding> findKept(mlir::OpResult value, const dist::Sharding &made,
                                       const dist::Mesh &mesh);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_KEPTSHARDING_H
