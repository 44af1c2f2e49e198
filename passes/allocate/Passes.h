//===- Passes.h - the allocate phase's passes ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_PASSES_H
#define GRIDLOOM_PASSES_ALLOCATE_PASSES_H

#include "dialects/plan/Plan.h"

#include "mlir/Pass/Pass.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/allocate/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/allocate/Passes.h.inc"

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_PASSES_H
