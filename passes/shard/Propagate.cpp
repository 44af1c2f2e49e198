//===- Propagate.cpp - complete the shardings -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Reasons.h"
#include "passes/shard/Shard.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_PROPAGATE
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct PropagatePass : public gridloom::impl::PropagateBase<PropagatePass> {
  using PropagateBase::PropagateBase;

  void runOnOperation() override {
    MeshOp mesh = getMesh(getOperation());
    if (!mesh) {
      getOperation().emitError("no mesh is declared");
      return signalPassFailure();
    }
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      Propagation state(func, Mesh(mesh));
      state.run();
      auto reasons = explainReplicated(state);
      state.commit(/*close=*/true, reasons);
      remarkConflicts(state);
      remarkReplicated(state, reasons);
    }
  }
};
} // namespace
