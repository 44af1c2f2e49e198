//===- TurnWeights.cpp - weights with the summed dimension first ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/layout/Passes.h"
#include "passes/simplify/Prologue.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_TURNWEIGHTS
#include "passes/layout/Passes.h.inc"

namespace {

/// With one or two rows a product is bound by reading its weight once, whatever its order.
constexpr int64_t kFewestRows = 3;

/// The products that read a weight, each with the shard it reads.
struct Reads {
  SmallVector<std::pair<loom::DotGeneralOp, loom::GetWeightOp>> products;
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

/// Adds the products that read `value`, [N, K] of `weight`, along K; false if something else reads
/// it.
bool collectProducts(loom::GetWeightOp weight, Value value, Reads &reads) {
  auto type = cast<RankedTensorType>(value.getType());
  for (OpOperand &use : value.getUses()) {
    auto reshape = dyn_cast<loom::ReshapeOp>(use.getOwner());
    if (reshape && dropsUnits(reshape)) {
      if (!collectProducts(weight, reshape.getOutput(), reads))
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
    reads.products.emplace_back(dot, weight);
  }
  return true;
}

struct TurnWeights : impl::TurnWeightsBase<TurnWeights> {
  void runOnOperation() override {
    // By name: if one shard stayed as it is, the weight would be in memory twice.
    llvm::MapVector<StringAttr, Reads> weights;
    getOperation().walk([&](loom::GetWeightOp op) {
      if (op->getParentOfType<loom::DerivedOp>())
        return;
      Reads &reads = weights[op.getNameAttr().getAttr()];
      reads.canTurn &= hasPlainSharding(op) && collectProducts(op, op.getOutput(), reads);
    });
    SymbolTable symbols(getOperation());
    for (auto &[name, reads] : weights)
      if (reads.canTurn && reads.mostRows >= kFewestRows)
        turn(reads, derive(symbols.lookup(name.getValue()), symbols));
    eraseDeadOps(getOperation());
    eraseUnusedWeights(getOperation());
  }

  /// Whether there is no sharding, or one in which all but the last two dimensions are whole.
  static bool hasPlainSharding(loom::GetWeightOp op) {
    if (op.getType().getRank() < 2 || !op.getShardingAttr())
      return op.getType().getRank() >= 2;
    auto sharding = dyn_cast<dist::ShardingAttr>(op.getShardingAttr());
    return sharding && (sharding.getDims().empty() ||
                        llvm::all_of(sharding.getDims().drop_back(2),
                                     [](auto dim) { return dim.getAxes().empty(); }));
  }

  static RankedTensorType getTurned(RankedTensorType type) {
    ArrayRef<int64_t> matrix = type.getShape().take_back(2);
    return RankedTensorType::get({matrix[1], matrix[0]}, type.getElementType());
  }

  static void turn(Reads &reads, StringAttr turned) {
    for (auto [dot, old] : reads.products) {
      auto sharding = dyn_cast_or_null<dist::ShardingAttr>(old.getShardingAttr());
      if (sharding && !sharding.getDims().empty()) {
        ArrayRef<dist::DimShardingAttr> dims = sharding.getDims().take_back(2);
        sharding = dist::ShardingAttr::get(old.getContext(), sharding.getMesh(), {dims[1], dims[0]},
                                           sharding.getUnreduced(), sharding.getReduction());
      }
      OpBuilder builder(dot);
      Value weight =
          loom::GetWeightOp::create(builder, old.getLoc(), getTurned(old.getType()),
                                    FlatSymbolRefAttr::get(turned), sharding, loom::LayoutAttr());
      dot.getRhsMutable().assign(weight);
      dot.setRhsContract({0});
    }
  }

  /// Declares the whole weight as a derived tensor [K, N].
  StringAttr derive(Operation *source, SymbolTable &symbols) {
    OpBuilder builder(&getContext());
    Location loc = source->getLoc();
    RankedTensorType whole = getWholeType(source), turned = getTurned(whole);
    std::string name = (SymbolTable::getSymbolName(source).getValue() + ".turned").str();
    auto derived = loom::DerivedOp::create(builder, loc, name, turned);
    builder.createBlock(&derived.getBody());
    Value value = readWhole(builder, source);
    if (whole.getRank() > 2)
      value = loom::ReshapeOp::create(
          builder, loc,
          RankedTensorType::get(whole.getShape().take_back(2), whole.getElementType()), value);
    value = loom::TransposeOp::create(builder, loc, turned, value, ArrayRef<int64_t>{1, 0});
    loom::YieldOp::create(builder, loc, value);
    return symbols.insert(derived, std::next(source->getIterator()));
  }
};

} // namespace
} // namespace gridloom
