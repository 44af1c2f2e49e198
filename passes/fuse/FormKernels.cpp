//===- FormKernels.cpp - all other operations into kernels ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Training.h"
#include "passes/fuse/OutlineKernels.h"
#include "passes/fuse/Passes.h"
#include "passes/fuse/StateGroups.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_FORMKERNELS
#include "passes/fuse/Passes.h.inc"

namespace {

/// The operations that are in several groups.
llvm::DenseSet<Operation *> findRepeated(ArrayRef<FusionGroup> groups) {
  llvm::DenseSet<Operation *> known, repeated;
  for (const FusionGroup &group : groups)
    for (Operation *op : group.ops)
      if (!known.insert(op).second)
        repeated.insert(op);
  return repeated;
}

struct FormKernels : impl::FormKernelsBase<FormKernels> {
  void runOnOperation() override {
    KernelOutliner outliner(getOperation());
    for (Operation &op : llvm::make_early_inc_range(*getOperation().getBody()))
      if (isa<func::FuncOp, loom::DerivedOp>(op) && !op.getRegion(0).empty())
        runOnBlock(op.getRegion(0).front(), outliner);
  }

  static void runOnBlock(Block &block, KernelOutliner &outliner) {
    if (auto function = dyn_cast<func::FuncOp>(block.getParentOp());
        function && loom::isTrainStep(function))
      scatterIntoSums(block);
    cutReductions(block);
    cutConcatenations(block);
    std::vector<FusionGroup> groups = formFusionGroups(block, /*hasProducts=*/true);
    joinStateUpdates(block, groups);
    llvm::DenseSet<Operation *> repeated = findRepeated(groups);
    // Consumers first, so that groups still see the generators that they repeat, not calls.
    for (const FusionGroup &group : llvm::reverse(groups))
      outliner.outline(group, repeated);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }
};

} // namespace
} // namespace gridloom
