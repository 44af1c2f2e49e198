//===- Mesh.cpp - the grid of ranks ---------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Mesh.h"

#include "runtime/core/Error.h"

#include <set>

using namespace gridloom::rt;

Mesh::Mesh(std::vector<Axis> givenAxes, std::string givenStageAxis)
    : axes(std::move(givenAxes)), stageAxis(std::move(givenStageAxis)) {
  constexpr int64_t maxRanks = 1 << 20;
  std::set<std::string> names;
  int64_t ranks = 1;
  for (const Axis &axis : axes) {
    if (axis.name.empty() || !names.insert(axis.name).second)
      throw Error(ErrorCode::InvalidPlan, "mesh axis '" + axis.name + "' is empty or there twice");
    if (axis.size >= 1 && axis.size <= maxRanks)
      ranks *= axis.size;
    if (axis.size < 1 || axis.size > maxRanks || ranks > maxRanks)
      throw Error(ErrorCode::InvalidPlan,
                  "mesh axis '" + axis.name + "' of size " + std::to_string(axis.size) +
                      " makes no mesh of 1 to " + std::to_string(maxRanks) + " ranks");
  }
  numRanks = int(ranks);
  if (!stageAxis.empty() && !names.count(stageAxis))
    throw Error(ErrorCode::InvalidPlan, "the stage axis '" + stageAxis + "' is not a mesh axis");
}

int Mesh::getAxis(const std::string &name) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name)
      return int(i);
  throw Error(ErrorCode::InvalidPlan, "the mesh has no axis '" + name + "'");
}

bool Mesh::hasAxis(const std::string &name) const {
  for (const Axis &axis : axes)
    if (axis.name == name)
      return true;
  return false;
}

int Mesh::getNumStages() const {
  return stageAxis.empty() ? 1 : int(axes[getAxis(stageAxis)].size);
}

int64_t Mesh::getSize(std::span<const std::string> names) const {
  int64_t size = 1;
  for (const std::string &name : names)
    size *= axes[getAxis(name)].size;
  return size;
}

std::vector<int64_t> Mesh::getCoordinates(int rank) const {
  std::vector<int64_t> coordinates(axes.size());
  int64_t rest = rank;
  for (size_t i = axes.size(); i-- > 0; rest /= axes[i].size)
    coordinates[i] = rest % axes[i].size;
  return coordinates;
}

int Mesh::getRank(std::span<const int64_t> coordinates) const {
  int64_t rank = 0;
  for (size_t i = 0; i < axes.size(); ++i)
    rank = rank * axes[i].size + coordinates[i];
  return int(rank);
}

int64_t Mesh::getIndex(int rank, std::span<const std::string> names) const {
  std::vector<int64_t> coordinates = getCoordinates(rank);
  int64_t index = 0;
  for (const std::string &name : names) {
    int axis = getAxis(name);
    index = index * axes[axis].size + coordinates[axis];
  }
  return index;
}

std::vector<int> Mesh::getGroup(int rank, std::span<const std::string> names) const {
  std::vector<int64_t> coordinates = getCoordinates(rank);
  int64_t size = getSize(names);
  std::vector<int> group;
  for (int64_t index = 0; index < size; ++index) {
    int64_t rest = index;
    for (size_t i = names.size(); i-- > 0;) {
      int axis = getAxis(names[i]);
      coordinates[axis] = rest % axes[axis].size;
      rest /= axes[axis].size;
    }
    group.push_back(getRank(coordinates));
  }
  return group;
}

int Mesh::getStage(int rank) const {
  return stageAxis.empty() ? 0 : int(getCoordinates(rank)[getAxis(stageAxis)]);
}

int Mesh::getPeer(int rank, int stage) const {
  if (stageAxis.empty())
    return rank;
  std::vector<int64_t> coordinates = getCoordinates(rank);
  coordinates[getAxis(stageAxis)] = stage;
  return getRank(coordinates);
}

std::vector<int> Mesh::getStageRanks(int stage) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < numRanks; ++rank)
    if (getStage(rank) == stage)
      ranks.push_back(rank);
  return ranks;
}
