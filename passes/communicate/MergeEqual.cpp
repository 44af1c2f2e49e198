//===- MergeEqual.cpp - merge equal operations ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

#include "mlir/IR/Dominance.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_MERGEEQUAL
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
/// Keeps the causes of collectives while these are compared, and merges those of replaced ones.
struct CauseKeeper : RewriterBase::Listener {
  void notifyOperationReplaced(Operation *op, Operation *by) override {
    auto cause = causes.find(op);
    if (cause == causes.end())
      return;
    SmallVector<StringRef> moved = cause->second; // the map may grow
    llvm::append_range(causes[by], moved);
  }

  llvm::DenseMap<Operation *, SmallVector<StringRef>> causes;
};

struct MergeEqualPass : public gridloom::impl::MergeEqualBase<MergeEqualPass> {
  using MergeEqualBase::MergeEqualBase;

  void runOnOperation() override {
    CauseKeeper keeper;
    getOperation().walk([&](Operation *op) {
      // Origins must not make equal operations differ, here or in the fuse phase.
      op->removeAttr(kOrigins);
      if (!isCommunication(op) || getCause(op).empty())
        return;
      keeper.causes[op] = {getCause(op)};
      op->removeAttr(kBecause);
    });
    IRRewriter rewriter(&getContext(), &keeper);
    DominanceInfo &dominance = getAnalysis<DominanceInfo>();
    eliminateCommonSubExpressions(rewriter, dominance, getOperation());
    getOperation().walk([&](Operation *op) {
      if (isCommunication(op))
        for (StringRef cause : keeper.causes.lookup(op))
          addCause(op, cause);
    });
  }
};
} // namespace
