//===- CoreUse.h - CPU cores that ranks share -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_COREUSE_H
#define GRIDLOOM_COMPILER_SIMULATOR_COREUSE_H

#include "dialects/dist/Sharding.h"
#include "dialects/plan/Plan.h"

namespace gridloom::sim {

/// How much a stage takes of the cores that all stages share.
struct CoreUse {
  double share = 0;   ///< most of all cores that its ranks take; 0: each rank has its own
  double speedup = 1; ///< over the machine's rates, which hold when all ranks work
};

/// If ranks outnumber cores they take turns, and a stage that waits leaves its turns to the others.
/// All ranks are then taken to be on one host; with several levels of links they are not, and each
/// stage keeps its part.
CoreUse findCoreUse(plan::ProgramOp program, const dist::Mesh &mesh);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_COREUSE_H
