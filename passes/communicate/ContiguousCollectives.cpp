//===- ContiguousCollectives.cpp - split and join along dimension 0 ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_CONTIGUOUSCOLLECTIVES
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
/// Builds the reshapes and transposes around a collective.
struct Mover {
  OpBuilder &builder;
  Location loc;

  Value reshape(Value value, ArrayRef<int64_t> shape) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getShape() == shape)
      return value;
    return loom::ReshapeOp::create(builder, loc,
                                   RankedTensorType::get(shape, type.getElementType()), value);
  }

  /// Moves dimension `from` to `to`; the others keep their order.
  Value move(Value value, int64_t from, int64_t to) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> permutation = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    permutation.erase(permutation.begin() + from);
    permutation.insert(permutation.begin() + to, from);
    SmallVector<int64_t> shape;
    for (int64_t dim : permutation)
      shape.push_back(type.getDimSize(dim));
    if (llvm::is_sorted(permutation))
      return value;
    return loom::TransposeOp::create(
        builder, loc, RankedTensorType::get(shape, type.getElementType()), value, permutation);
  }

  /// [.., k * n, ..] at `dim` -> [k * .., n, ..]: the parts one after another.
  Value splitToFront(Value value, int64_t dim, int64_t parts) {
    SmallVector<int64_t> shape(cast<RankedTensorType>(value.getType()).getShape());
    shape[dim] /= parts;
    shape.insert(shape.begin() + dim, parts);
    value = move(reshape(value, shape), dim, 0);
    shape.assign(cast<RankedTensorType>(value.getType()).getShape());
    shape[1] *= parts;
    return reshape(value, ArrayRef<int64_t>(shape).drop_front());
  }

  /// The inverse of splitToFront.
  Value joinFromFront(Value value, int64_t dim, int64_t parts) {
    SmallVector<int64_t> shape(cast<RankedTensorType>(value.getType()).getShape());
    shape[0] /= parts;
    shape.insert(shape.begin(), parts);
    value = move(reshape(value, shape), 0, dim);
    shape.assign(cast<RankedTensorType>(value.getType()).getShape());
    shape[dim + 1] *= parts;
    shape.erase(shape.begin() + dim);
    return reshape(value, shape);
  }
};

struct ContiguousCollectivesPass
    : public gridloom::impl::ContiguousCollectivesBase<ContiguousCollectivesPass> {
  using ContiguousCollectivesBase::ContiguousCollectivesBase;

  void runOnOperation() override {
    // Collected first, because a rewrite erases what the walk may visit next.
    SmallVector<Operation *> collectives;
    getOperation().walk([&](Operation *op) {
      if (isa<AllGatherOp, ReduceScatterOp, AllToAllOp>(op))
        collectives.push_back(op);
    });
    for (Operation *op : collectives) {
      if (auto gather = dyn_cast<AllGatherOp>(op))
        rewrite(gather);
      else if (auto scatter = dyn_cast<ReduceScatterOp>(op))
        rewrite(scatter);
      else if (auto exchange = dyn_cast<AllToAllOp>(op))
        rewrite(exchange);
    }
  }

private:
  static int64_t ratio(Value larger, Value smaller, int64_t dim) {
    return cast<RankedTensorType>(larger.getType()).getDimSize(dim) /
           cast<RankedTensorType>(smaller.getType()).getDimSize(dim);
  }
  static RankedTensorType scaleFront(Value value, int64_t multiply, int64_t divide) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[0] = shape[0] * multiply / divide;
    return RankedTensorType::get(shape, type.getElementType());
  }
  static void replace(Operation *op, Operation *local, Value result) {
    local->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    local->removeAttr(kShardings); // of the value before it is rearranged
    if (Operation *last = result.getDefiningOp(); last && last != local)
      if (Attribute shardings = op->getAttr(kShardings))
        last->setAttr(kShardings, shardings);
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }

  void rewrite(AllGatherOp op) {
    if (op.getDim() == 0)
      return;
    OpBuilder builder(op);
    Mover mover{builder, op.getLoc()};
    int64_t parts = ratio(op.getOutput(), op.getInput(), op.getDim());
    auto local = AllGatherOp::create(builder, op.getLoc(), scaleFront(op.getInput(), parts, 1),
                                     op.getInput(), op.getAxes(), builder.getI64IntegerAttr(0));
    replace(op, local, mover.joinFromFront(local.getOutput(), op.getDim(), parts));
  }

  /// Has a transpose of the result come before, if that brings the dimension to the front: then
  /// nothing else has to be moved, and a product computes its transpose at no cost.
  static bool scatterTransposed(ReduceScatterOp op) {
    auto transpose = op.getOutput().hasOneUse()
                         ? dyn_cast<loom::TransposeOp>(*op.getOutput().getUsers().begin())
                         : loom::TransposeOp();
    if (!transpose || transpose.getPermutation()[0] != static_cast<int64_t>(op.getDim()))
      return false;
    OpBuilder builder(op);
    auto type = cast<RankedTensorType>(op.getInput().getType());
    SmallVector<int64_t> permutation(transpose.getPermutation());
    auto shape =
        llvm::map_to_vector(permutation, [&](int64_t dim) { return type.getDimSize(dim); });
    Value input = loom::TransposeOp::create(builder, transpose.getLoc(),
                                            RankedTensorType::get(shape, type.getElementType()),
                                            op.getInput(), permutation);
    auto local =
        ReduceScatterOp::create(builder, op.getLoc(), transpose.getType(), input, op.getAxes(),
                                builder.getI64IntegerAttr(0), op.getReductionAttr());
    local->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    for (StringRef name : {kShardings, kOrigins}) {
      local->removeAttr(name);
      if (Attribute attr = transpose->getAttr(name))
        local->setAttr(name, attr);
    }
    transpose.getOutput().replaceAllUsesWith(local.getOutput());
    transpose.erase();
    op.erase();
    return true;
  }

  void rewrite(ReduceScatterOp op) {
    if (op.getDim() == 0 || scatterTransposed(op))
      return;
    OpBuilder builder(op);
    Mover mover{builder, op.getLoc()};
    int64_t parts = ratio(op.getInput(), op.getOutput(), op.getDim());
    Value input = mover.splitToFront(op.getInput(), op.getDim(), parts);
    auto local =
        ReduceScatterOp::create(builder, op.getLoc(), scaleFront(input, 1, parts), input,
                                op.getAxes(), builder.getI64IntegerAttr(0), op.getReductionAttr());
    replace(op, local, local.getOutput());
  }

  void rewrite(AllToAllOp op) {
    int64_t split = op.getSplitDim(), concat = op.getConcatDim();
    if (split == 0 && concat == 0)
      return;
    OpBuilder builder(op);
    Mover mover{builder, op.getLoc()};
    int64_t parts =
        split == concat ? getGroupSize(op) : ratio(op.getInput(), op.getOutput(), split);
    Value input = mover.splitToFront(op.getInput(), split, parts);
    IntegerAttr zero = builder.getI64IntegerAttr(0);
    auto local =
        AllToAllOp::create(builder, op.getLoc(), input.getType(), input, op.getAxes(), zero, zero);
    replace(op, local, mover.joinFromFront(local.getOutput(), concat, parts));
  }

  static int64_t getGroupSize(AllToAllOp op) {
    MeshOp mesh = getMesh(op->getParentOfType<ModuleOp>());
    int64_t size = 1;
    for (auto axis : op.getAxes().getAsRange<StringAttr>())
      size *= mesh.getAxisSize(axis.getValue());
    return size;
  }
};
} // namespace
