//===- CoreUse.cpp - CPU cores that ranks share ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/CoreUse.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::sim;

CoreUse gridloom::sim::findCoreUse(plan::ProgramOp program, const dist::Mesh &mesh) {
  CoreUse use;
  const cluster::Machine &machine = mesh.getMachine();
  if (machine.kinds.size() != 1 || machine.levels.size() > 1)
    return use;
  double ofRank = machine.kinds.front().cores; // 0: unknown
  if (ofRank == 0 || ofRank >= 1)
    return use;
  double ranks = 1;
  for (const dist::Mesh::Axis &axis : mesh.getAxes())
    ranks *= dist::isMicroAxis(axis.name) ? 1 : static_cast<double>(axis.size);
  auto stageAxes = dist::getStageAxes(program->getParentOfType<ModuleOp>());
  double ofStage = ranks / static_cast<double>(mesh.getSize(stageAxes));
  double all = ofRank * ranks, most = std::min(ofStage, all); // cores
  use.share = most / all;
  use.speedup = most / ofStage / ofRank;
  return use;
}
