//===- SeedRandomly.cpp - random shardings, for tests -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Propagation.h"
#include "passes/shard/Shard.h"

#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_SEEDRANDOMLY
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct Candidate {
  Value value;
  std::string name; ///< what its draw depends on
};

struct SeedRandomlyPass : public gridloom::impl::SeedRandomlyBase<SeedRandomlyPass> {
  using SeedRandomlyBase::SeedRandomlyBase;

  void runOnOperation() override;

private:
  /// A number that depends on nothing but the seed, the axis and the name.
  uint64_t draw(StringAttr axis, StringRef name) const {
    return llvm::xxh3_64bits((Twine(seed) + "/" + axis.getValue() + "/" + name).str());
  }
  bool split(Propagation &state, const Candidate &candidate, StringAttr axis, bool always);
  void seedAxis(Propagation &state, func::FuncOp func, StringAttr axis);
};
} // namespace

/// Inputs and weights; one entry per weight, as its readers agree on a sharding.
static SmallVector<Candidate> collectLeaves(func::FuncOp func) {
  SmallVector<Candidate> leaves;
  for (BlockArgument argument : func.getArguments()) {
    auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName);
    leaves.push_back({argument, name ? name.str() : std::to_string(argument.getArgNumber())});
  }
  func.walk([&](loom::GetWeightOp weight) {
    leaves.push_back({weight.getResult(), weight.getName().str()});
  });
  return leaves;
}

bool SeedRandomlyPass::split(Propagation &state, const Candidate &candidate, StringAttr axis,
                             bool always) {
  auto type = dyn_cast<RankedTensorType>(candidate.value.getType());
  if (!type || type.getRank() == 0 || state.lookup(candidate.value).sharding.usesAxis(axis))
    return false;
  uint64_t number = draw(axis, candidate.name);
  if (!always && number % 8 == 0)
    return false;
  for (int64_t i = 0, first = number / 8 % type.getRank(); i < type.getRank(); ++i)
    if (state.addAxis(candidate.value, (first + i) % type.getRank(), axis,
                      "random: seed " + std::to_string(seed))) {
      state.run();
      return true;
    }
  return false;
}

void SeedRandomlyPass::seedAxis(Propagation &state, func::FuncOp func, StringAttr axis) {
  SmallVector<Candidate> leaves = collectLeaves(func);
  llvm::stable_sort(leaves, [&](const Candidate &a, const Candidate &b) {
    return draw(axis, "order/" + a.name) < draw(axis, "order/" + b.name);
  });
  bool any = false;
  for (const Candidate &leaf : leaves)
    any |= split(state, leaf, axis, /*always=*/false);
  for (const Candidate &leaf : leaves)
    any = any || split(state, leaf, axis, /*always=*/true);
  // No input or weight can be split: split a result.
  for (Operation *op : state.getOperations())
    for (OpResult result : op->getResults())
      any = any || split(state, {result, "result/" + std::to_string(result.getResultNumber())},
                         axis, /*always=*/true);
}

void SeedRandomlyPass::runOnOperation() {
  MeshOp meshOp = getMesh(getOperation());
  if (!meshOp)
    return;
  Mesh mesh(meshOp);
  for (auto func : getOperation().getOps<func::FuncOp>()) {
    Propagation state(func, mesh);
    state.run();
    for (const std::string &name : axes)
      if (auto axis = StringAttr::get(&getContext(), name); mesh.getSize(axis) > 1)
        seedAxis(state, func, axis);
    state.commit(/*close=*/false);
  }
}
