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

/// A mesh that can say many splits of the devices: an axis for the blocks of the fastest links that
/// there are, and the devices of a block over the other axes, the larger first.
MeshSpec makeSearchMesh(const cluster::Machine &machine, int64_t count, size_t mostAxes);

/// A few meshes of so many axes, or of fewer where the number has no more factors, and none partly
/// within a block. With the first a batch of `rows`, which divide the devices, can be split by rows
/// alone, and over the fastest links by something else: of 1,024 devices in blocks of 8 and 64
/// rows x=64,y=2,z=8, but not x=128,y=4,z=2. With the others, any number that divides the devices
/// is the product of axes of one of them, as far as so many meshes go.
std::vector<MeshSpec> makeSearchMeshes(const cluster::Machine &machine, int64_t count, int64_t rows,
                                       size_t mostAxes, size_t mostMeshes);

/// Prime factors of a number, each as often as it divides: no mesh has more axes.
size_t countPrimes(int64_t number);

/// The meshes of the devices with at most so many axes, but for those that another one can say,
/// whose axes it joins: what is split over a joint axis is split over both of its parts. Axes are
/// named x, y and so on.
std::vector<MeshSpec> listFinestMeshes(int64_t devices, size_t mostAxes);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_MESHES_H
