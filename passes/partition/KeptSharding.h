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

/// The sharding that the program declares of an operation's result, if it takes less time to bring
/// the result there first and to each of its readers from there than to bring it to each reader
/// from wherever it is by then. `made` is how the operation makes it. Readers need it as their
/// `dist.splits` say, none of which has been resharded yet.
std::optional<dist::Sharding> findKept(mlir::OpResult value, const dist::Sharding &made,
                                       const dist::Mesh &mesh);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_KEPTSHARDING_H
