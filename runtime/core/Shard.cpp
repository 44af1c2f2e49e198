//===- Shard.cpp - a rank's part of a tensor ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Shard.h"

#include "runtime/core/Error.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace gridloom::rt;

int64_t gridloom::rt::getShardSize(int64_t size, int64_t parts, int64_t granule) {
  int64_t unit;
  if (__builtin_mul_overflow(parts, granule, &unit))
    throw Error(ErrorCode::InvalidPlan, "a granule of " + std::to_string(granule) + " over " +
                                            std::to_string(parts) + " parts overflows");
  int64_t units = size / unit + (size % unit ? 1 : 0), local;
  if (__builtin_mul_overflow(units, granule, &local))
    throw Error(ErrorCode::InvalidPlan, "a granule of " + std::to_string(granule) + " overflows");
  return local;
}

/// Checks one dimension's axes; returns (index of this rank, number of parts).
static std::pair<int64_t, int64_t> getPart(const Mesh &mesh, int rank,
                                           const gridloom::schema::DimSharding &dim,
                                           std::set<std::string> &used) {
  std::vector<std::string> axes(dim.axes().begin(), dim.axes().end());
  for (const std::string &axis : axes)
    if (!used.insert(axis).second)
      throw Error(ErrorCode::InvalidPlan, "a sharding uses axis '" + axis + "' twice");
  return {mesh.getIndex(rank, axes), mesh.getSize(axes)};
}

static Shard makeShard(const Mesh &mesh, int rank, const gridloom::schema::Sharding &sharding,
                       const std::vector<int64_t> &global, const std::vector<int64_t> *local) {
  // A tensor without a sharding is replicated.
  if (sharding.dims_size() && size_t(sharding.dims_size()) != global.size())
    throw Error(ErrorCode::InvalidPlan, "a sharding of " + std::to_string(sharding.dims_size()) +
                                            " dimensions on a tensor of shape " +
                                            formatShape(global));
  if (local && local->size() != global.size())
    throw Error(ErrorCode::InvalidPlan, "local shape " + formatShape(*local) +
                                            " has another rank than global shape " +
                                            formatShape(global));
  Shard shard;
  shard.global = global;
  std::set<std::string> used;
  for (size_t i = 0; i < global.size(); ++i) {
    int64_t index = 0, parts = 1, granule = 1;
    if (sharding.dims_size()) {
      std::tie(index, parts) = getPart(mesh, rank, sharding.dims(int(i)), used);
      granule = std::max<int64_t>(1, sharding.dims(int(i)).granule());
    }
    int64_t least = getShardSize(global[i], parts, granule);
    int64_t size = local ? (*local)[i] : least, end;
    // Only the first dimension may be longer than necessary, for equal micro-batches.
    if (size != least &&
        (i || size < least || size % granule || __builtin_mul_overflow(size, parts, &end)))
      throw Error(ErrorCode::InvalidPlan,
                  "dimension " + std::to_string(i) + " of " + std::to_string(global[i]) +
                      " elements over " + std::to_string(parts) + " parts has " +
                      std::to_string(least) + " locally, not " + std::to_string(size));
    shard.local.push_back(size);
    int64_t begin = std::min(index * size, global[i]);
    shard.begin.push_back(begin);
    shard.valid.push_back(std::min(size, global[i] - begin));
  }
  return shard;
}

Shard gridloom::rt::getShard(const Mesh &mesh, int rank, const schema::Sharding &sharding,
                             const std::vector<int64_t> &global) {
  return makeShard(mesh, rank, sharding, global, nullptr);
}

Shard gridloom::rt::getShard(const Mesh &mesh, int rank, const schema::Sharding &sharding,
                             const std::vector<int64_t> &global,
                             const std::vector<int64_t> &local) {
  return makeShard(mesh, rank, sharding, global, &local);
}

/// As the public forEachRun, with rows of the local part `localRow` elements apart.
template <typename Visit>
static void forEachRun(const Shard &shard, int64_t localRow, const Visit &visit) {
  size_t rank = shard.global.size();
  if (rank == 0)
    return visit(int64_t(0), int64_t(0), int64_t(1));
  for (int64_t size : shard.valid)
    if (size == 0)
      return;
  std::vector<int64_t> globalStride(rank, 1), localStride(rank, 1);
  for (size_t i = rank - 1; i-- > 0;) {
    globalStride[i] = globalStride[i + 1] * shard.global[i + 1];
    localStride[i] = i + 2 == rank ? localRow : localStride[i + 1] * shard.local[i + 1];
  }
  // Trailing dimensions that are contiguous in both form one run.
  size_t outer = rank - 1;
  while (outer > 0 && shard.valid[outer] == shard.global[outer] &&
         localStride[outer - 1] == globalStride[outer - 1])
    --outer;
  int64_t run = shard.valid[outer] * globalStride[outer];
  std::vector<int64_t> index(outer, 0);
  while (true) {
    int64_t global = shard.begin[outer] * globalStride[outer], local = 0;
    for (size_t i = 0; i < outer; ++i) {
      global += (shard.begin[i] + index[i]) * globalStride[i];
      local += index[i] * localStride[i];
    }
    visit(global, local, run);
    size_t i = outer;
    while (i > 0 && ++index[i - 1] == shard.valid[i - 1])
      index[--i] = 0;
    if (i == 0)
      return;
  }
}

static int64_t getRow(const Shard &shard) { return shard.local.empty() ? 1 : shard.local.back(); }

void gridloom::rt::forEachRun(const Shard &shard,
                              const std::function<void(int64_t, int64_t, int64_t)> &visit) {
  ::forEachRun(shard, getRow(shard), visit);
}

std::optional<int64_t> gridloom::rt::findOnlyRun(const Shard &shard) {
  if (shard.valid != shard.local)
    return std::nullopt;
  int64_t stride = 1, offset = 0;
  // If an inner dimension is cut, consecutive indices of an outer one are not adjacent.
  bool isCut = false;
  for (size_t i = shard.local.size(); i-- > 0;) {
    if (isCut && shard.local[i] != 1)
      return std::nullopt;
    isCut |= shard.local[i] != shard.global[i];
    offset += shard.begin[i] * stride;
    stride *= shard.global[i];
  }
  return offset;
}

void gridloom::rt::cutShard(const Shard &shard, size_t elementBytes, const std::byte *global,
                            std::byte *out, int64_t rowPad, unsigned char fill) {
  int64_t row = getRow(shard) + rowPad, rows = 1;
  for (size_t i = 0; i + 1 < shard.local.size(); ++i)
    rows *= shard.local[i];
  if (rowPad || shard.valid != shard.local)
    std::memset(out, fill, size_t(rows * row) * elementBytes);
  ::forEachRun(shard, row, [&](int64_t from, int64_t to, int64_t count) {
    std::memcpy(out + size_t(to) * elementBytes, global + size_t(from) * elementBytes,
                size_t(count) * elementBytes);
  });
}

void gridloom::rt::placeShard(const Shard &shard, size_t elementBytes, const std::byte *local,
                              std::byte *global) {
  ::forEachRun(shard, getRow(shard), [&](int64_t to, int64_t from, int64_t count) {
    std::memcpy(global + size_t(to) * elementBytes, local + size_t(from) * elementBytes,
                size_t(count) * elementBytes);
  });
}
