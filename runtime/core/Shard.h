//===- Shard.h - a rank's part of a tensor ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A dimension of n elements over k parts with granule g has ceil(n / (g * k)) * g elements per
// part, and part i starts at i times that. Elements beyond n are padding.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_SHARD_H
#define GRIDLOOM_RUNTIME_CORE_SHARD_H

#include "runtime/core/Mesh.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace gridloom::schema {
class Sharding;
} // namespace gridloom::schema

namespace gridloom::rt {

/// The local size, padding included, of a dimension of `size` elements over `parts` with `granule`.
int64_t getShardSize(int64_t size, int64_t parts, int64_t granule);

/// A rank's part of a tensor: per dimension the first element, the local size with padding, and how
/// many of these elements are not padding.
struct Shard {
  std::vector<int64_t> global;
  std::vector<int64_t> begin;
  std::vector<int64_t> local;
  std::vector<int64_t> valid;
  bool isWhole() const { return valid == global && local == global; }
  bool operator==(const Shard &) const = default;
};

/// The shard of `rank`. `local`, if given, is the local shape in the plan: a binding's first
/// dimension may be padded further, to make micro-batches equal. Throws InvalidPlan if axes are
/// unknown or repeated, or a local size cannot hold its part.
Shard getShard(const Mesh &mesh, int rank, const schema::Sharding &sharding,
               const std::vector<int64_t> &global);
Shard getShard(const Mesh &mesh, int rank, const schema::Sharding &sharding,
               const std::vector<int64_t> &global, const std::vector<int64_t> &local);

/// Calls `visit` for each run of elements that is contiguous both in the whole tensor and in the
/// part, with both offsets and the length, in elements. Padding is skipped.
void forEachRun(const Shard &shard,
                const std::function<void(int64_t global, int64_t local, int64_t count)> &visit);
/// The offset in elements of the shard in the whole tensor if it is contiguous there and has no
/// padding; else nothing.
std::optional<int64_t> findOnlyRun(const Shard &shard);
/// Copies the shard out of the whole tensor `global`. Rows of the last dimension are local.back() +
/// rowPad elements apart in `out`; padding is filled with bytes of `fill`.
void cutShard(const Shard &shard, size_t elementBytes, const std::byte *global, std::byte *out,
              int64_t rowPad = 0, unsigned char fill = 0);
/// Copies the shard without padding into its place in the whole tensor.
void placeShard(const Shard &shard, size_t elementBytes, const std::byte *local, std::byte *global);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SHARD_H
