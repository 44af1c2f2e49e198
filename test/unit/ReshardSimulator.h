//===- ReshardSimulator.h - reshard steps on virtual devices ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_RESHARDSIMULATOR_H
#define GRIDLOOM_TEST_UNIT_RESHARDSIMULATOR_H

#include "passes/partition/Resharder.h"

#include <vector>

namespace gridloom::testing {

/// The content of padding: whatever is computed from it becomes it.
constexpr int64_t kPoison = INT64_MIN;

/// A device's shard.
struct Shard {
  llvm::SmallVector<int64_t, 3> shape;
  std::vector<int64_t> data;
};

/// Runs reshard steps on all devices of a mesh at once, by definition rather than by algorithm.
/// Element number v of the tensor (row-major) has the partial value getPartial(v, u) on member u of
/// the unreduced group.
class ReshardSimulator {
public:
  ReshardSimulator(const dist::Mesh &mesh, llvm::ArrayRef<int64_t> sizes)
      : mesh(mesh), sizes(sizes) {
    for (const dist::Mesh::Axis &axis : mesh.getAxes())
      numDevices *= axis.size;
    for (int64_t device = 0; device < numDevices; ++device) {
      coordinates.emplace_back();
      int64_t rest = device;
      for (const dist::Mesh::Axis &axis : llvm::reverse(mesh.getAxes())) {
        coordinates.back().insert(coordinates.back().begin(), rest % axis.size);
        rest /= axis.size;
      }
    }
  }

  static int64_t getPartial(int64_t v, int64_t u) {
    return (v * 7919 + u * 31 + v * u % 13) % 9973;
  }
  static int64_t combine(int64_t a, int64_t b, dist::ReductionKind kind) {
    if (a == kPoison || b == kPoison)
      return kPoison;
    return kind == dist::ReductionKind::Max ? std::max(a, b) : a + b;
  }

  /// The device's position among those that differ along the axes.
  int64_t getPosition(int64_t device, llvm::ArrayRef<mlir::StringAttr> axes) const {
    int64_t index = 0;
    for (mlir::StringAttr axis : axes)
      index = index * mesh.getSize(axis) + coordinates[device][find(axis)];
    return index;
  }

  /// The shards of all devices, with poisoned padding.
  std::vector<Shard> make(const dist::Sharding &sharding) const {
    std::vector<Shard> shards(numDevices);
    for (int64_t device = 0; device < numDevices; ++device) {
      int64_t member = getPosition(device, sharding.unreduced);
      visit(device, sharding, shards[device].shape, [&](int64_t v) {
        shards[device].data.push_back(v < 0 ? kPoison : getPartial(v, member));
      });
    }
    return shards;
  }

  /// The first device whose shard is wrong for the target sharding `to` of a tensor sharded as
  /// `from`; -1 if all are right. Padding may hold anything.
  int64_t findWrong(const std::vector<Shard> &shards, const dist::Sharding &from,
                    const dist::Sharding &to) const {
    dist::AxisList reduced;
    for (mlir::StringAttr axis : from.unreduced)
      if (!llvm::is_contained(to.unreduced, axis))
        reduced.push_back(axis);
    for (int64_t device = 0; device < numDevices; ++device) {
      llvm::SmallVector<int64_t, 8> members;
      for (int64_t other : getGroup(device, reduced))
        members.push_back(getPosition(other, from.unreduced));
      const Shard &shard = shards[device];
      llvm::SmallVector<int64_t, 3> shape;
      size_t at = 0;
      bool isRight = true;
      visit(device, to, shape, [&](int64_t v) {
        int64_t actual = at < shard.data.size() ? shard.data[at] : kPoison;
        ++at;
        if (v < 0)
          return;
        int64_t expected = getPartial(v, members[0]);
        for (int64_t member : llvm::ArrayRef(members).drop_front())
          expected = combine(expected, getPartial(v, member), from.reduction);
        isRight &= actual == expected;
      });
      if (!isRight || shape != shard.shape || at != shard.data.size())
        return device;
    }
    return -1;
  }

  std::vector<Shard> run(llvm::ArrayRef<ReshardStep> steps, std::vector<Shard> shards,
                         dist::ReductionKind kind) const {
    for (const ReshardStep &step : steps) {
      int64_t parts = mesh.getSize(step.axes);
      int64_t cutDim = step.kind == ReshardStep::AllToAll ? step.splitDim : step.dim;
      if (step.padTo)
        for (Shard &shard : shards)
          shard = resize(shard, cutDim, step.padTo);
      std::vector<Shard> next;
      for (int64_t device = 0; device < numDevices; ++device)
        next.push_back(runOne(step, shards, device, parts, kind));
      if (step.trimTo)
        for (Shard &shard : next)
          shard = resize(shard, step.dim, step.trimTo);
      shards = std::move(next);
    }
    return shards;
  }

private:
  size_t find(mlir::StringAttr name) const {
    return llvm::find_if(mesh.getAxes(), [&](const auto &axis) { return axis.name == name; }) -
           mesh.getAxes().begin();
  }

  /// The members of the device's group, ordered by position.
  llvm::SmallVector<int64_t, 8> getGroup(int64_t device,
                                         llvm::ArrayRef<mlir::StringAttr> axes) const {
    llvm::SmallVector<int64_t, 8> members(mesh.getSize(axes));
    llvm::SmallVector<bool, 3> isInside(mesh.getAxes().size(), false);
    for (mlir::StringAttr axis : axes)
      isInside[find(axis)] = true;
    for (int64_t other = 0; other < numDevices; ++other) {
      bool isMember = true;
      for (size_t axis = 0; axis < isInside.size(); ++axis)
        isMember &= isInside[axis] || coordinates[other][axis] == coordinates[device][axis];
      if (isMember)
        members[getPosition(other, axes)] = other;
    }
    return members;
  }

  /// Calls `call` with the number of each element of the device's shard in order, -1 for padding.
  template <typename Call>
  void visit(int64_t device, const dist::Sharding &sharding, llvm::SmallVector<int64_t, 3> &shape,
             Call call) const {
    llvm::SmallVector<int64_t, 3> starts;
    for (auto [size, dim] : llvm::zip_equal(sizes, sharding.dims)) {
      int64_t parts = mesh.getSize(dim.axes);
      shape.push_back(parts > 1 ? dist::getLocalSize(size, parts, dim.granule) : size);
      starts.push_back(getPosition(device, dim.axes) * shape.back());
    }
    int64_t total = 1;
    for (int64_t size : shape)
      total *= size;
    for (int64_t i = 0; i < total; ++i) {
      int64_t v = 0, stride = 1, rest = i;
      for (size_t dim = shape.size(); dim-- > 0;) {
        int64_t index = starts[dim] + rest % shape[dim];
        rest /= shape[dim];
        v = v < 0 || index >= sizes[dim] ? -1 : v + index * stride;
        stride *= sizes[dim];
      }
      call(v);
    }
  }

  static int64_t getInner(const Shard &shard, int64_t dim) {
    int64_t inner = 1;
    for (int64_t size : llvm::ArrayRef(shard.shape).drop_front(dim + 1))
      inner *= size;
    return inner;
  }

  /// Elements [start, start + size) of the dimension; poison beyond its end.
  static Shard extract(const Shard &shard, int64_t dim, int64_t start, int64_t size) {
    Shard result{shard.shape, {}};
    result.shape[dim] = size;
    int64_t inner = getInner(shard, dim), row = shard.shape[dim] * inner;
    int64_t valid = std::clamp<int64_t>(shard.shape[dim] - start, 0, size);
    for (size_t at = 0; at < shard.data.size(); at += row) {
      auto from = shard.data.begin() + at + start * inner;
      result.data.insert(result.data.end(), from, from + valid * inner);
      result.data.insert(result.data.end(), (size - valid) * inner, kPoison);
    }
    return result;
  }
  static Shard resize(const Shard &shard, int64_t dim, int64_t size) {
    return extract(shard, dim, 0, size);
  }
  static Shard getPart(const Shard &shard, int64_t dim, int64_t part, int64_t parts) {
    EXPECT_EQ(shard.shape[dim] % parts, 0);
    int64_t size = shard.shape[dim] / parts;
    return extract(shard, dim, part * size, size);
  }

  static Shard concatenate(llvm::ArrayRef<Shard> shards, int64_t dim) {
    Shard result{shards[0].shape, {}};
    result.shape[dim] *= static_cast<int64_t>(shards.size());
    int64_t row = shards[0].shape[dim] * getInner(shards[0], dim);
    for (size_t at = 0; at < shards[0].data.size(); at += row)
      for (const Shard &shard : shards)
        result.data.insert(result.data.end(), shard.data.begin() + at,
                           shard.data.begin() + at + row);
    return result;
  }

  Shard runOne(const ReshardStep &step, const std::vector<Shard> &shards, int64_t device,
               int64_t parts, dist::ReductionKind kind) const {
    int64_t mine = getPosition(device, step.axes);
    if (step.kind == ReshardStep::Slice)
      return getPart(shards[device], step.dim, mine, parts);
    llvm::SmallVector<int64_t, 8> group = getGroup(device, step.axes);
    if (step.kind == ReshardStep::Permute)
      return shards[group[step.permutation[mine]]];
    std::vector<Shard> members;
    for (int64_t member : group)
      members.push_back(shards[member]);
    switch (step.kind) {
    case ReshardStep::ReduceScatter:
    case ReshardStep::AllReduce: {
      Shard sum = members[0];
      for (const Shard &member : llvm::ArrayRef(members).drop_front())
        for (auto [to, from] : llvm::zip_equal(sum.data, member.data))
          to = combine(to, from, kind);
      return step.kind == ReshardStep::AllReduce ? sum : getPart(sum, step.dim, mine, parts);
    }
    case ReshardStep::AllToAll:
      for (Shard &member : members)
        member = getPart(member, step.splitDim, mine, parts);
      return concatenate(members, step.dim);
    default:
      return concatenate(members, step.dim);
    }
  }

  const dist::Mesh &mesh;
  llvm::SmallVector<int64_t, 3> sizes;
  int64_t numDevices = 1;
  std::vector<llvm::SmallVector<int64_t, 3>> coordinates;
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_RESHARDSIMULATOR_H
