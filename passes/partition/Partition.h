//===- Partition.h - the partition phase ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_PARTITION_PARTITION_H
#define GRIDLOOM_PASSES_PARTITION_PARTITION_H

#include "dialects/loom/Loom.h"

#include "mlir/Pass/Pass.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/partition/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/partition/Passes.h.inc"

/// Partitions, splits into stages, verifies.
void addPartitionPasses(mlir::OpPassManager &pm);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_PARTITION_H
