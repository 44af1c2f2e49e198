//===- OutlineKernels.h - groups to kernels and calls -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_OUTLINEKERNELS_H
#define GRIDLOOM_PASSES_FUSE_OUTLINEKERNELS_H

#include "passes/fuse/FusionGroups.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace gridloom {

/// Makes kernels of groups. Equal bodies become one plan.kernel, at the module's end.
class KernelOutliner {
public:
  /// Existing kernels of the module are reused as well.
  explicit KernelOutliner(mlir::ModuleOp module);

  /// Inserts a plan.call at the group's root, which its readers then read. The group's operations
  /// stay; the caller has to erase those that are no longer used. `repeated` are operations that
  /// are in several groups.
  void outline(const FusionGroup &group, const llvm::DenseSet<mlir::Operation *> &repeated);

private:
  plan::KernelOp getOrCreate(mlir::OwningOpRef<plan::KernelOp> kernel, llvm::StringRef name);

  mlir::ModuleOp module;
  llvm::StringMap<plan::KernelOp> kernels; // by body
  llvm::StringSet<> symbols;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_OUTLINEKERNELS_H
