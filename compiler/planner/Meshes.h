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

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_MESHES_H
