//===- AssignLayouts.cpp - give every weight a layout ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/layout/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_ASSIGNLAYOUTS
#include "passes/layout/Passes.h.inc"

namespace {

/// The reads of one weight shard.
struct Reads {
  SmallVector<loom::GetWeightOp> ops;
  bool onlyMatmulRhs = true;
};

/// True when the operand is a row-major [K, N] right-hand side.
bool isMatmulRhs(OpOperand &use) {
  auto dot = dyn_cast<loom::DotGeneralOp>(use.getOwner());
  auto type = cast<RankedTensorType>(use.get().getType());
  return dot && use.getOperandNumber() == 1 && type.getRank() == 2 &&
         type.getElementType().isF32() && dot.getRhsBatch().empty() &&
         dot.getRhsContract() == ArrayRef<int64_t>{0};
}

struct AssignLayouts : impl::AssignLayoutsBase<AssignLayouts> {
  using AssignLayoutsBase::AssignLayoutsBase;

  void runOnOperation() override {
    llvm::MapVector<std::pair<Attribute, Attribute>, Reads> weights;
    getOperation().walk([&](loom::GetWeightOp op) {
      // Prologues read their sources as they are in the file.
      if (op->getParentOfType<loom::DerivedOp>())
        return setLayout(op, 0);
      Reads &reads = weights[{op.getNameAttr(), op.getShardingAttr()}];
      reads.ops.push_back(op);
      reads.onlyMatmulRhs &= !op->use_empty() && llvm::all_of(op->getUses(), isMatmulRhs);
    });
    for (auto &entry : weights) {
      Reads &reads = entry.second;
      int64_t pad =
          reads.onlyMatmulRhs ? choosePad(reads.ops.front().getType().getShape().back()) : 0;
      for (loom::GetWeightOp op : reads.ops)
        setLayout(op, pad);
    }
  }

  int64_t choosePad(int64_t row) const {
    return padMultiple > 0 && row % padMultiple == 0 ? padElements.getValue() : 0;
  }

  static void setLayout(loom::GetWeightOp op, int64_t pad) {
    auto order = llvm::to_vector(llvm::seq<int64_t>(0, op.getType().getRank()));
    op.setLayoutAttr(loom::LayoutAttr::get(op.getContext(), order, pad));
  }
};

} // namespace
} // namespace gridloom
