//===- Shard.h - a rank's part of a tensor ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A dimension of n elements over k parts with granule g has ceil(n / (g * k)) * g elements in each
// part, and part i starts at i times that. What lies beyond n is padding.
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

/// The local size of a dimension of `size` elements over `parts` with `granule`.
int64_t getShardSize(int64_t size, int64_t parts, int64_t granule);

/// A rank's part of a tensor: per dimension the first element, the local size with padding, and how
/// many of these elements exist.
struct Shard {
  std::vector<int64_t> global;
  std::vector<int64_t> begin;
  std::vector<int64_t> local;
  std::vector<int64_t> valid;
  bool isWhole() const { return valid == global && local == global; }
  bool operator==(const Shard &) const = default;
};

/// The shard of `rank`. `local`, where given, is the local shape the plan states: the first
/// dimension of a binding may be padded further, so that micro-batches are equal.
/// Throws InvalidPlan when axes are unknown or repeated, or a local size cannot hold its part.
Shard getShard(const Mesh &mesh, int rank, const schema::Sharding &sharding,
               const std::vector<int64_t> &global);
Shard getShard(const Mesh &mesh, int rank, const schema::Sharding &sharding,
               const std::vector<int64_t> &global, const std::vector<int64_t> &local);

/// Calls `visit` for each run of elements of the shard that is contiguous in the whole tensor and
/// in the part, with the offsets there and here, and the number of elements. Padding is in none.
void forEachRun(const Shard &shard,
                const std::function<void(int64_t global, int64_t local, int64_t count)> &visit);
/// The offset in elements of the shard in the whole tensor, where that holds it contiguously and
/// without padding; else nothing.
std::optional<int64_t> findOnlyRun(const Shard &shard);
/// Copies the shard out of the whole tensor `global`. Rows of the last dimension lie
/// local.back() + rowPad elements apart in `out`; the bytes of padding are `fill`.
void cutShard(const Shard &shard, size_t elementBytes, const std::byte *global, std::byte *out,
              int64_t rowPad = 0, unsigned char fill = 0);
/// Copies what is valid of the shard into its place in the whole tensor.
void placeShard(const Shard &shard, size_t elementBytes, const std::byte *local, std::byte *global);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SHARD_H
