//===- HoistPrologue.cpp - loom-hoist-prologue ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "passes/simplify/Prologue.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OperationSupport.h"

#include <unordered_map>

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_HOISTPROLOGUE
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

namespace {

static Type getElementType(Operation *symbol) {
  if (auto weight = dyn_cast<loom::WeightOp>(symbol))
    return weight.getTensorType().getElementType();
  auto derived = dyn_cast<loom::DerivedOp>(symbol);
  return derived ? getElementTypeOrSelf(derived.getType()) : Type();
}

/// Makes the derived tensors of a module, one per distinct computation.
class DerivedTensors {
public:
  explicit DerivedTensors(ModuleOp module) : symbols(module), builder(module.getContext()) {
    builder.setInsertionPointToStart(module.getBody());
    for (Operation &op : *module.getBody())
      if (isa<loom::WeightOp, loom::DerivedOp>(op))
        builder.setInsertionPointAfter(&op);
    for (auto derived : module.getOps<loom::DerivedOp>())
      alike[hash(derived)].push_back(derived);
  }

  /// The derived tensor that computes `root`; an existing one if it computes the same.
  loom::DerivedOp get(Operation *root) {
    loom::DerivedOp derived = build(root);
    SmallVector<loom::DerivedOp, 1> &others = alike[hash(derived)];
    for (loom::DerivedOp other : others)
      if (other.getType() == derived.getType() &&
          OperationEquivalence::isRegionEquivalentTo(&other.getBody(), &derived.getBody(),
                                                     OperationEquivalence::IgnoreLocations)) {
        derived.erase();
        return other;
      }
    // The name of a weight's copy in another type says so: `w.bf16` rather than `w_1`.
    Type element = getElementTypeOrSelf(derived.getType());
    std::string name = derived.getSymName().str();
    if (Operation *taken = symbols.lookup(name); taken && getElementType(taken) != element) {
      llvm::raw_string_ostream(name += '.') << element;
      derived.setSymName(name);
    }
    symbols.insert(derived, builder.getInsertionPoint());
    builder.setInsertionPointAfter(derived);
    others.push_back(derived);
    return derived;
  }

private:
  /// A detached derived tensor with copies of `root` and all that it depends on.
  loom::DerivedOp build(Operation *root) const {
    SetVector<Operation *> needed;
    SmallVector<Operation *> pending{root};
    while (!pending.empty()) {
      Operation *op = pending.pop_back_val();
      if (needed.insert(op))
        for (Value operand : op->getOperands())
          pending.push_back(operand.getDefiningOp());
    }
    SmallVector<Operation *> ordered(needed.begin(), needed.end());
    llvm::sort(ordered, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });

    OpBuilder builder(root->getContext());
    std::string name = loom::getNodeName(root->getLoc());
    auto derived = loom::DerivedOp::create(builder, root->getLoc(), name,
                                           cast<RankedTensorType>(root->getResult(0).getType()));
    builder.createBlock(&derived.getBody());
    IRMapping mapping;
    for (Operation *op : ordered) {
      auto weight = dyn_cast<loom::GetWeightOp>(op);
      auto source = weight ? symbols.lookup<loom::DerivedOp>(weight.getName()) : loom::DerivedOp();
      if (!source) {
        builder.clone(*op, mapping);
        continue;
      }
      // A derived tensor reads weights only, no other derived tensor.
      mapping.map(weight.getOutput(), readWhole(builder, source));
    }
    loom::YieldOp::create(builder, root->getLoc(), mapping.lookup(root->getResult(0)));
    return derived;
  }

  /// Hash of the computation, equal for tensors that are computed in the same way.
  static size_t hash(loom::DerivedOp derived) {
    llvm::hash_code code = llvm::hash_combine(derived.getType());
    for (Operation &op : derived.getBody().front())
      code = llvm::hash_combine(
          code, OperationEquivalence::computeHash(&op, OperationEquivalence::ignoreHashValue,
                                                  OperationEquivalence::ignoreHashValue,
                                                  OperationEquivalence::IgnoreLocations));
    return code;
  }

  SymbolTable symbols;
  OpBuilder builder;
  std::unordered_map<size_t, SmallVector<loom::DerivedOp, 1>> alike; ///< by hash
};

struct HoistProloguePass : gridloom::impl::HoistPrologueBase<HoistProloguePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    DerivedTensors derived(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      // All are built before one is replaced: a later root may depend on an earlier one.
      SmallVector<std::pair<Operation *, loom::DerivedOp>> tensors;
      for (Operation *root : getHoistable(function.front()))
        tensors.emplace_back(root, derived.get(root));
      for (auto [root, tensor] : tensors) {
        OpBuilder builder(root);
        Value value =
            loom::GetWeightOp::create(builder, root->getLoc(), root->getResult(0).getType(),
                                      tensor.getSymName(), Attribute(), loom::LayoutAttr());
        root->getResult(0).replaceAllUsesWith(value);
      }
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
    // Bodies of branches and loops that were folded away.
    for (func::FuncOp body : loom::getUnusedBodies(module))
      body.erase();
    eraseUnusedWeights(module);
  }
};

} // namespace
