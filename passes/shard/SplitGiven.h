//===- SplitGiven.h - given shardings, as a search keeps them ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITGIVEN_H
#define GRIDLOOM_PASSES_SHARD_SPLITGIVEN_H

#include "dialects/dist/Sharding.h"

namespace gridloom {

/// Whether a value pinned as `pin` may have `sharding`.
bool admits(dist::ShardingAttr pin, dist::ShardingAttr sharding);

/// Whether all dimensions are closed.
bool isClosed(dist::ShardingAttr sharding);

/// The sharding with all dimensions closed.
dist::ShardingAttr getClosed(dist::ShardingAttr sharding, const dist::Mesh &mesh);

/// Whether the given sharding is more than a cut into micro-batches.
bool isPinned(dist::ShardingAttr given);

/// How an argument or weight is given to lie in memory: its storage, else its pinned sharding. Null
/// for results of operations and for values that are not pinned.
dist::ShardingAttr getGivenPlace(mlir::Value value);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITGIVEN_H
