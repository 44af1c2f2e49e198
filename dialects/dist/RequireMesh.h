//===- RequireMesh.h - the mesh that a pass needs ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_REQUIREMESH_H
#define GRIDLOOM_DIALECTS_DIST_REQUIREMESH_H

#include "dialects/dist/Dist.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom::dist {

/// The module's mesh; null, with an error on the module, if it declares none.
MeshOp requireMesh(mlir::ModuleOp module);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_REQUIREMESH_H
