//===- JoinPartialSums.cpp - reduce sums of partial sums once ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_JOINPARTIALSUMS
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct JoinPartialSumsPass : public gridloom::impl::JoinPartialSumsBase<JoinPartialSumsPass> {
  using JoinPartialSumsBase::JoinPartialSumsBase;

  void runOnOperation() override {
    // In program order, so that a chain of additions is joined from its beginning.
    SmallVector<Operation *> sums;
    getOperation().walk([&](Operation *op) {
      if (isa<loom::AddOp, loom::SubtractOp>(op))
        sums.push_back(op);
    });
    for (Operation *sum : sums)
      join(sum);
  }

private:
  /// The all_reduce that makes the value, if this is its only use; null otherwise.
  static AllReduceOp getReduction(Value value) {
    auto reduce = value.getDefiningOp<AllReduceOp>();
    bool isSum = reduce && reduce.getReduction() == ReductionKind::Sum &&
                 reduce.getInputs().size() == 1 && value.hasOneUse();
    return isSum ? reduce : AllReduceOp();
  }

  static void join(Operation *sum) {
    AllReduceOp left = getReduction(sum->getOperand(0)), right = getReduction(sum->getOperand(1));
    if (!left || !right || left == right || left.getAxes() != right.getAxes())
      return;
    OpBuilder builder(sum->getContext());
    builder.setInsertionPointAfter(sum);
    SmallVector<StringAttr> axes(left.getAxes().getAsRange<StringAttr>());
    auto joined = AllReduceOp::create(builder, builder.getFusedLoc({left.getLoc(), right.getLoc()}),
                                      ValueRange(sum->getResult(0)), axes, ReductionKind::Sum);
    joined->setDiscardableAttrs(left->getDiscardableAttrDictionary());
    addCause(joined, getCause(right));
    for (StringRef name : {kShardings, kOrigins})
      if (Attribute attr = sum->getAttr(name))
        joined->setAttr(name, attr);
    sum->removeAttr(kShardings); // describes the whole sum, not this device's part of it
    sum->getResult(0).replaceAllUsesExcept(joined.getOutputs()[0], joined);
    sum->setOperands({left.getInputs()[0], right.getInputs()[0]});
    left.erase();
    right.erase();
  }
};
} // namespace
