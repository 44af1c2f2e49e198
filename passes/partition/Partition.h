//===- Partition.h - the partition phase ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_PARTITION_PARTITION_H
#define GRIDLOOM_PASSES_PARTITION_PARTITION_H

#include "dialects/loom/Loom.h"

#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringExtras.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/partition/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/partition/Passes.h.inc"

/// The stage of an operation; 0 if it has none.
inline mlir::IntegerAttr getStageAttr(mlir::Operation *op) {
  auto stage = op->getAttrOfType<mlir::IntegerAttr>(dist::kStage);
  return stage ? stage : mlir::IntegerAttr::get(mlir::IntegerType::get(op->getContext(), 64), 0);
}

/// "'model'", "'data' and 'model'"
inline std::string quoteAxes(llvm::ArrayRef<mlir::StringAttr> axes) {
  return llvm::join(
      llvm::map_range(axes, [](mlir::StringAttr axis) { return "'" + axis.str() + "'"; }), " and ");
}

/// Inserts reshards, lowers them, makes shapes local, splits into stages, verifies.
void addPartitionPasses(mlir::OpPassManager &pm);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_PARTITION_H
