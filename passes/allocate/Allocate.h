//===- Allocate.h - the allocate phase --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_ALLOCATE_H
#define GRIDLOOM_PASSES_ALLOCATE_ALLOCATE_H

#include "passes/allocate/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace gridloom {

/// Adds the passes that place the buffers of all programs; `pm` is a module's.
void addAllocatePasses(mlir::OpPassManager &pm);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_ALLOCATE_H
