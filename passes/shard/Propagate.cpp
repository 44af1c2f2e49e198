//===- Propagate.cpp - complete the shardings -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "passes/shard/Bodies.h"
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
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!loom::isBody(func))
        complete(func, Mesh(mesh));
  }

  /// Closes a function's shardings, then those of the bodies it runs.
  static void complete(func::FuncOp func, const Mesh &mesh) {
    Propagation state(func, mesh);
    state.run();
    growThroughBodies(state, func);
    auto reasons = explainReplicated(state);
    state.commit(/*close=*/true, reasons);
    remarkConflicts(state);
    remarkReplicated(state, reasons);
    declareBodies(state, func);
    for (Operation &op : func.front())
      for (loom::BodyLink &link : loom::getBodies(&op))
        complete(link.body, mesh);
  }
};
} // namespace
