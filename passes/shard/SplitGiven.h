//===- SplitGiven.h - what a search of splits is given ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITGIVEN_H
#define GRIDLOOM_PASSES_SHARD_SPLITGIVEN_H

#include "dialects/dist/Sharding.h"

namespace gridloom {

/// Whether a value that has been given `pin` may have `sharding`.
bool admits(dist::ShardingAttr pin, dist::ShardingAttr sharding);

/// Whether no dimension may get more axes.
bool isClosed(dist::ShardingAttr sharding);

/// The sharding with all dimensions closed.
dist::ShardingAttr getClosed(dist::ShardingAttr sharding, const dist::Mesh &mesh);

/// Whether a value has been given more than what cuts it in time.
bool isPinned(dist::ShardingAttr given);

/// How a value lies in memory, if it has been given: as it is stored, else as it is pinned. Null of
/// what is made by operations and of what is not pinned.
dist::ShardingAttr getGivenPlace(mlir::Value value);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITGIVEN_H
