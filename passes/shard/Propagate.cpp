//===- Propagate.cpp - complete the shardings -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Sharding.h"
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
    MeshOp mesh = requireMesh(getOperation());
    if (!mesh)
      return signalPassFailure();
    StateShardings states;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!loom::isBody(func))
        complete(func, Mesh(mesh), states);
  }

  /// The shardings of states, the same in all functions that use them.
  using StateShardings = llvm::DenseMap<StringAttr, std::pair<ShardingAttr, StringRef>>;

  /// Gives a state's result the sharding of its argument, and records it for other functions: one
  /// may read a state that another updates.
  static void declareStates(func::FuncOp func, StateShardings &states) {
    llvm::DenseMap<StringAttr, unsigned> arguments;
    for (BlockArgument argument : func.getArguments())
      if (auto state = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState)) {
        arguments[state] = argument.getArgNumber();
        states.try_emplace(state, getSharding(argument), func.getSymName());
      }
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState))
        if (auto argument = arguments.find(state); argument != arguments.end()) {
          func.setResultAttr(i, kSharding, getSharding(func.getArgument(argument->second)));
          func.setResultAttr(i, kOrigin, func.getArgAttr(argument->second, kOrigin));
        }
  }

  /// Completes and closes the shardings of a function, then those of the bodies it runs.
  void complete(func::FuncOp func, const Mesh &mesh, StateShardings &states) const {
    for (BlockArgument argument : func.getArguments())
      if (auto state = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState))
        if (auto known = states.find(state); known != states.end())
          setSharding(argument, known->second.first, ("as in @" + known->second.second).str());
    Propagation state(func, mesh);
    state.run();
    growThroughBodies(state, func);
    auto reasons = explain ? explainReplicated(state) : noteObstacles(state);
    removeObstacles(func);
    state.commit(/*close=*/true, reasons);
    if (explain) {
      remarkConflicts(state);
      remarkReplicated(state, reasons);
    }
    declareStates(func, states);
    declareBodies(state, func);
    for (Operation &op : func.front())
      for (loom::BodyLink &link : loom::getBodies(&op))
        complete(link.body, mesh, states);
  }
};
} // namespace
