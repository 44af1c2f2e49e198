//===- DeviceMesh.cpp - ranks, coordinates and shards ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/DeviceMesh.h"

#include "dialects/dist/Sharding.h"

using namespace mlir;
using namespace gridloom;

DeviceMesh::DeviceMesh(dist::MeshOp mesh, StringRef stageAxis) : stageAxis(stageAxis) {
  for (auto axis : mesh.getAxes().getAsRange<dist::AxisAttr>())
    axes.push_back({axis.getName().str(), axis.getSize(), 0});
  for (Axis &axis : llvm::reverse(axes)) {
    if (axis.name == dist::MeshOp::kMicroAxis) {
      numMicrobatches = axis.size;
      continue;
    }
    axis.stride = numRanks;
    numRanks *= axis.size;
  }
}

const DeviceMesh::Axis *DeviceMesh::find(StringRef name) const {
  const Axis *axis =
      llvm::find_if(axes, [&](const Axis &candidate) { return candidate.name == name; });
  return axis == axes.end() ? nullptr : axis;
}

bool DeviceMesh::hasAxis(StringRef axis) const { return find(axis) != nullptr; }

int64_t DeviceMesh::getCoordinate(Place place, const Axis &axis) const {
  return axis.stride == 0 ? place.micro : place.rank / axis.stride % axis.size;
}

int64_t DeviceMesh::getStage(int64_t rank) const {
  const Axis *axis = find(stageAxis);
  return axis ? getCoordinate({rank, 0}, *axis) : 0;
}

int64_t DeviceMesh::getPeer(int64_t rank, int64_t stage) const {
  const Axis *axis = find(stageAxis);
  if (!axis || stage < 0 || stage >= axis->size)
    return -1;
  return rank + (stage - getStage(rank)) * axis->stride;
}

int64_t DeviceMesh::getSize(ArrayRef<StringAttr> names) const {
  int64_t size = 1;
  for (StringAttr name : names)
    if (const Axis *axis = find(name))
      size *= axis->size;
  return size;
}

int64_t DeviceMesh::getIndex(Place place, ArrayRef<StringAttr> names) const {
  int64_t index = 0;
  for (StringAttr name : names)
    if (const Axis *axis = find(name))
      index = index * axis->size + getCoordinate(place, *axis);
  return index;
}

SmallVector<int64_t> DeviceMesh::getGroup(int64_t rank, ArrayRef<StringAttr> names) const {
  int64_t first = rank;
  SmallVector<int64_t> group;
  for (StringAttr name : names)
    if (const Axis *axis = find(name))
      first -= getCoordinate({rank, 0}, *axis) * axis->stride;
  group.push_back(first);
  for (StringAttr name : names) {
    const Axis *axis = find(name);
    if (!axis)
      continue;
    SmallVector<int64_t> wider;
    for (int64_t member : group)
      for (int64_t i = 0; i < axis->size; ++i)
        wider.push_back(member + i * axis->stride);
    group = std::move(wider);
  }
  return group;
}

SmallVector<StringAttr> gridloom::getAxisNames(ArrayAttr axes) {
  return llvm::to_vector(axes.getAsRange<StringAttr>());
}

ShardBox gridloom::getShardBox(const DeviceMesh &mesh, dist::ShardingAttr sharding,
                               ArrayRef<int64_t> globalShape, Place place) {
  ShardBox box;
  for (auto [i, size] : llvm::enumerate(globalShape)) {
    if (!sharding || sharding.getDims()[i].getAxes().empty()) {
      box.starts.push_back(0);
      box.sizes.push_back(size);
      continue;
    }
    dist::DimShardingAttr dim = sharding.getDims()[i];
    int64_t local = dist::getLocalSize(size, mesh.getSize(dim.getAxes()), dim.getGranule());
    box.starts.push_back(mesh.getIndex(place, dim.getAxes()) * local);
    box.sizes.push_back(local);
  }
  return box;
}
