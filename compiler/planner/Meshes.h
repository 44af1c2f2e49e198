//===- Meshes.h - meshes that a planner tries -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_MESHES_H
#define GRIDLOOM_COMPILER_PLANNER_MESHES_H

#include "cluster/Machine.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace gridloom {

struct AxisSpec {
  std::string name;
  int64_t size;
};

using MeshSpec = std::vector<AxisSpec>;

/// "data=2,model=2"
std::string print(const MeshSpec &mesh);

/// Reads what print writes. Errors are emitted on the module.
mlir::FailureOr<MeshSpec> parseMesh(mlir::ModuleOp module, llvm::StringRef text);

int64_t countDevices(const MeshSpec &mesh);

/// All meshes of `count` devices over data, model and pipe. Tensor parallelism also takes two axes:
/// 16 devices cut 8 key-value heads as 8 by 2, the queries over both and the keys over the first.
std::vector<MeshSpec> enumerateMeshes(int64_t count, llvm::StringRef strategy);

/// Devices of a mesh of `count` that the fastest links connect, as many as divide `count`: 8 where
/// hosts of 72 have 256 devices. All of them if that is one.
int64_t getFastBlock(const cluster::Machine &machine, int64_t count);

/// A mesh that can express many splits: one axis for the blocks of the fastest links, and the
/// devices of a block over the other axes, larger ones first.
MeshSpec makeSearchMesh(const cluster::Machine &machine, int64_t count, size_t mostAxes);

/// Up to `mostMeshes` meshes of `mostAxes` axes, or fewer axes if `count` has fewer prime factors.
/// No axis is partly within a block of the fastest links. The first mesh can split a batch of
/// `rows`, a divisor of `count`, by rows alone and use the fastest links for something else: of
/// 1,024 devices in blocks of 8 and 64 rows x=64,y=2,z=8, but not x=128,y=4,z=2. Each further mesh
/// is the one that adds most products of axes that no mesh before it has.
std::vector<MeshSpec> makeSearchMeshes(const cluster::Machine &machine, int64_t count, int64_t rows,
                                       size_t mostAxes, size_t mostMeshes);

/// Prime factors of a number, with multiplicity: no mesh has more axes.
size_t countPrimes(int64_t number);

/// The meshes of the devices with at most `mostAxes` axes, without those that join axes of another:
/// a split over a joint axis is also a split over both of its parts. Axes are named x, y and so on.
std::vector<MeshSpec> listFinestMeshes(int64_t devices, size_t mostAxes);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_MESHES_H
