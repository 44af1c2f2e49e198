//===- HoistPrologue.cpp - loom-hoist-prologue ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Prologue.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OperationSupport.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_HOISTPROLOGUE
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

namespace {

/// Makes derived tensors of a module, one per distinct computation.
class DerivedTensors {
public:
  explicit DerivedTensors(ModuleOp module) : symbols(module), builder(module.getContext()) {
    builder.setInsertionPointToStart(module.getBody());
    for (Operation &op : *module.getBody())
      if (isa<loom::WeightOp, loom::DerivedOp>(op))
        builder.setInsertionPointAfter(&op);
    for (auto derived : module.getOps<loom::DerivedOp>())
      all.push_back(derived);
  }

  /// The derived tensor that computes `root`.
  loom::DerivedOp get(Operation *root) {
    loom::DerivedOp derived = build(root);
    for (loom::DerivedOp other : all)
      if (other.getType() == derived.getType() &&
          OperationEquivalence::isRegionEquivalentTo(&other.getBody(), &derived.getBody(),
                                                     OperationEquivalence::IgnoreLocations)) {
        derived.erase();
        return other;
      }
    symbols.insert(derived, builder.getInsertionPoint());
    builder.setInsertionPointAfter(derived);
    all.push_back(derived);
    return derived;
  }

private:
  /// A detached derived tensor with copies of `root` and all it depends on.
  static loom::DerivedOp build(Operation *root) {
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
    for (Operation *op : ordered)
      builder.clone(*op, mapping);
    loom::YieldOp::create(builder, root->getLoc(), mapping.lookup(root->getResult(0)));
    return derived;
  }

  SymbolTable symbols;
  OpBuilder builder;
  SmallVector<loom::DerivedOp> all;
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
    eraseUnusedWeights(module);
  }
};

} // namespace
