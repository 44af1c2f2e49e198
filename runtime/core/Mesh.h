//===- Mesh.h - the grid of ranks -------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Ranks are numbered row-major over the mesh's axes. A group over some axes is the set of ranks
// that agree in all other coordinates. One axis may be the pipeline's: its coordinate is the stage
// that a rank runs.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_MESH_H
#define GRIDLOOM_RUNTIME_CORE_MESH_H

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

class Mesh {
public:
  struct Axis {
    std::string name;
    int64_t size = 1;
  };

  Mesh() = default;
  /// Throws InvalidPlan on a repeated or empty name, a size below 1, an unknown stage axis, or more
  /// than 2^20 ranks.
  Mesh(std::vector<Axis> axes, std::string stageAxis);

  const std::vector<Axis> &getAxes() const { return axes; }
  const std::string &getStageAxis() const { return stageAxis; }
  int getNumRanks() const { return numRanks; }
  int getNumStages() const;

  bool hasAxis(const std::string &name) const;
  /// The product of the axes' sizes; throws InvalidPlan naming an unknown axis.
  int64_t getSize(std::span<const std::string> names) const;
  std::vector<int64_t> getCoordinates(int rank) const;
  int getRank(std::span<const int64_t> coordinates) const;
  /// The row-major index of `rank` over `names`, the first name being the most significant.
  int64_t getIndex(int rank, std::span<const std::string> names) const;
  /// The ranks that differ from `rank` only in `names`, ordered by getIndex.
  std::vector<int> getGroup(int rank, std::span<const std::string> names) const;
  int getStage(int rank) const;
  /// The rank in `stage` with otherwise the same coordinates as `rank`.
  int getPeer(int rank, int stage) const;
  /// All ranks of a stage, ascending.
  std::vector<int> getStageRanks(int stage) const;

private:
  int getAxis(const std::string &name) const;

  std::vector<Axis> axes;
  std::string stageAxis;
  int numRanks = 1;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_MESH_H
