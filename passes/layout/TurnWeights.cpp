//===- TurnWeights.cpp - weights with the summed dimension first ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/layout/Passes.h"
#include "passes/simplify/Prologue.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_TURNWEIGHTS
#include "passes/layout/Passes.h.inc"

namespace {

/// With fewer rows on the left a product reads its weight about once: its order does not matter.
constexpr int64_t kFewestRows = 3;

/// The reads of one weight shard and the products that they go to.
struct Reads {
  SmallVector<loom::GetWeightOp> ops;
  SmallVector<loom::DotGeneralOp> dots;
  int64_t mostRows = 0;
  bool canTurn = true;
};

/// True for a reshape of [1, .., 1, N, K] to [N, K].
bool dropsUnits(loom::ReshapeOp reshape) {
  ArrayRef<int64_t> from = reshape.getInput().getType().getShape(),
                    to = reshape.getType().getShape();
  return to.size() == 2 && from.size() >= 2 && from.take_back(2) == to &&
         llvm::all_of(from.drop_back(2), [](int64_t size) { return size == 1; });
}

/// Adds the products that read `value`, [N, K], along K; false where something else reads it.
bool collectProducts(Value value, Reads &reads) {
  auto type = cast<RankedTensorType>(value.getType());
  for (OpOperand &use : value.getUses()) {
    auto reshape = dyn_cast<loom::ReshapeOp>(use.getOwner());
    if (reshape && dropsUnits(reshape)) {
      if (!collectProducts(reshape.getOutput(), reads))
        return false;
      continue;
    }
    auto dot = dyn_cast<loom::DotGeneralOp>(use.getOwner());
    if (!dot || use.getOperandNumber() != 1 || type.getRank() != 2 ||
        !type.getElementType().isF32() || !dot.getRhsBatch().empty() ||
        dot.getRhsContract() != ArrayRef<int64_t>{1})
      return false;
    ArrayRef<int64_t> lhs = dot.getLhs().getType().getShape();
    int64_t rows = 1;
    for (int64_t dim : dot.getLhsFreeDims())
      rows *= lhs[dim];
    reads.mostRows = std::max(reads.mostRows, rows);
    reads.dots.push_back(dot);
  }
  return true;
}

struct TurnWeights : impl::TurnWeightsBase<TurnWeights> {
  void runOnOperation() override {
    llvm::MapVector<std::pair<Attribute, Attribute>, Reads> weights;
    getOperation().walk([&](loom::GetWeightOp op) {
      if (op->getParentOfType<loom::DerivedOp>())
        return;
      Reads &reads = weights[{op.getNameAttr(), op.getShardingAttr()}];
      reads.ops.push_back(op);
      reads.canTurn &= collectProducts(op.getOutput(), reads);
    });
    SymbolTable symbols(getOperation());
    for (auto &entry : weights) {
      Reads &reads = entry.second;
      if (reads.canTurn && reads.mostRows >= kFewestRows && hasPlainSharding(reads.ops.front()))
        turn(reads, symbols);
    }
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block &block : func.getBody())
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
          if (isOpTriviallyDead(&op))
            op.erase();
    eraseUnusedWeights(getOperation());
  }

  /// None, or one by dimensions of which the leading ones, of one element, are whole.
  static bool hasPlainSharding(loom::GetWeightOp op) {
    if (!op.getShardingAttr())
      return true;
    auto sharding = dyn_cast<dist::ShardingAttr>(op.getShardingAttr());
    return sharding && (sharding.getDims().empty() ||
                        llvm::all_of(sharding.getDims().drop_back(2),
                                     [](auto dim) { return dim.getAxes().empty(); }));
  }

  static RankedTensorType turned(RankedTensorType type) {
    ArrayRef<int64_t> matrix = type.getShape().take_back(2);
    return RankedTensorType::get({matrix[1], matrix[0]}, type.getElementType());
  }

  void turn(Reads &reads, SymbolTable &symbols) {
    loom::GetWeightOp first = reads.ops.front();
    StringAttr name = derive(first, symbols);
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(first.getShardingAttr());
    if (sharding && !sharding.getDims().empty()) {
      ArrayRef<dist::DimShardingAttr> dims = sharding.getDims().take_back(2);
      sharding = dist::ShardingAttr::get(&getContext(), sharding.getMesh(), {dims[1], dims[0]},
                                         sharding.getUnreduced(), sharding.getReduction());
    }
    for (loom::DotGeneralOp dot : reads.dots) {
      OpBuilder builder(dot);
      Value weight =
          loom::GetWeightOp::create(builder, first.getLoc(), turned(first.getType()),
                                    FlatSymbolRefAttr::get(name), sharding, loom::LayoutAttr());
      dot.getRhsMutable().assign(weight);
      dot.setRhsContract({0});
    }
  }

  /// The whole weight as a derived tensor [K, N].
  StringAttr derive(loom::GetWeightOp op, SymbolTable &symbols) {
    Operation *source = symbols.lookup(op.getName());
    OpBuilder builder(&getContext());
    Location loc = source->getLoc();
    auto ofDerived = dyn_cast<loom::DerivedOp>(source);
    RankedTensorType whole =
        ofDerived ? ofDerived.getTensorType() : cast<loom::WeightOp>(source).getTensorType();
    auto derived =
        loom::DerivedOp::create(builder, loc, (op.getName() + ".turned").str(), turned(whole));
    builder.createBlock(&derived.getBody());
    Value value;
    if (ofDerived) {
      IRMapping mapping;
      Block &body = ofDerived.getBody().front();
      for (Operation &inner : body.without_terminator())
        builder.clone(inner, mapping);
      value = mapping.lookup(body.getTerminator()->getOperand(0));
    } else {
      value = loom::GetWeightOp::create(builder, loc, whole, op.getNameAttr(), Attribute(),
                                        loom::LayoutAttr());
    }
    if (whole.getRank() > 2)
      value = loom::ReshapeOp::create(
          builder, loc,
          RankedTensorType::get(whole.getShape().take_back(2), whole.getElementType()), value);
    value = loom::TransposeOp::create(builder, loc, turned(whole), value, ArrayRef<int64_t>{1, 0});
    loom::YieldOp::create(builder, loc, value);
    return symbols.insert(derived, std::next(source->getIterator()));
  }
};

} // namespace
} // namespace gridloom
