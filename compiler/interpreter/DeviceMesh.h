//===- DeviceMesh.h - ranks, coordinates and shards -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_DEVICEMESH_H
#define GRIDLOOM_COMPILER_INTERPRETER_DEVICEMESH_H

#include "dialects/dist/Dist.h"
#include "dialects/loom/HostTensor.h"

namespace gridloom {

/// A rank and a micro-batch.
struct Place {
  int64_t rank = 0;
  int64_t micro = 0;
};

/// The mesh as ranks. Ranks are numbered row-major over the device axes; `micro` is no device axis.
class DeviceMesh {
public:
  /// One device, no axes.
  DeviceMesh() = default;
  /// `stageAxis` names the axis whose coordinate is the pipeline stage.
  DeviceMesh(dist::MeshOp mesh, llvm::StringRef stageAxis);

  int64_t getNumRanks() const { return numRanks; }
  int64_t getNumMicrobatches() const { return numMicrobatches; }
  bool hasAxis(llvm::StringRef axis) const;
  int64_t getStage(int64_t rank) const;
  /// The rank of stage `stage` with `rank`'s other coordinates; -1 when there is none.
  int64_t getPeer(int64_t rank, int64_t stage) const;

  /// Product of the axes' sizes, `micro` included.
  int64_t getSize(llvm::ArrayRef<mlir::StringAttr> axes) const;
  /// Row-major index along `axes`, major to minor, from 0.
  int64_t getIndex(Place place, llvm::ArrayRef<mlir::StringAttr> axes) const;
  /// Ranks that differ from `rank` only along `axes`, ordered by their index along them.
  llvm::SmallVector<int64_t> getGroup(int64_t rank, llvm::ArrayRef<mlir::StringAttr> axes) const;

private:
  struct Axis {
    std::string name;
    int64_t size;
    int64_t stride; // of one step along the axis, in ranks; 0 for micro
  };
  const Axis *find(llvm::StringRef name) const;
  int64_t getCoordinate(Place place, const Axis &axis) const;

  llvm::SmallVector<Axis> axes;
  std::string stageAxis;
  int64_t numRanks = 1;
  int64_t numMicrobatches = 1;
};

/// The part of a global tensor one place holds.
struct ShardBox {
  llvm::SmallVector<int64_t> starts;
  llvm::SmallVector<int64_t> sizes; // local, padding included
};

/// `sharding` may be null: the tensor is whole everywhere. Unreduced axes do not change the box.
ShardBox getShardBox(const DeviceMesh &mesh, dist::ShardingAttr sharding,
                     llvm::ArrayRef<int64_t> globalShape, Place place);

/// Row-major attribute list of axis names.
llvm::SmallVector<mlir::StringAttr> getAxisNames(mlir::ArrayAttr axes);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_DEVICEMESH_H
