//===- RequireMesh.cpp - the mesh that a pass needs -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"

using namespace mlir;
using namespace gridloom::dist;

MeshOp gridloom::dist::requireMesh(ModuleOp module) {
  MeshOp mesh = getMesh(module);
  if (!mesh)
    module.emitError("no mesh is declared; run dist-insert-mesh first, e.g. "
                     "--dist-insert-mesh=axes=data=2,model=2");
  return mesh;
}
