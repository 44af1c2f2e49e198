//===- ChunkCollectiveMatmul.cpp - overlap matmuls and their collectives ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Padding.h"
#include "passes/communicate/Communicate.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_CHUNKCOLLECTIVEMATMUL
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

static RankedTensorType getType(Value value) { return cast<RankedTensorType>(value.getType()); }

namespace {
/// A dimension that is cut: the operand it belongs to, and its place in the result.
struct FreeDim {
  int64_t operand, operandDim, resultDim;
};

/// Cuts values into chunks and joins them again. With `groups` > 1 a chunk holds one piece of each
/// of that many equal parts of the dimension, one after another.
struct Chunker {
  OpBuilder &builder;
  Location loc;
  int64_t chunks;

  Value reshape(Value value, ArrayRef<int64_t> shape) const {
    auto type = RankedTensorType::get(shape, getType(value).getElementType());
    return type == value.getType() ? value
                                   : loom::ReshapeOp::create(builder, loc, type, value).getResult();
  }
  /// The shape with the dimension split into [groups, elements of a group].
  static SmallVector<int64_t> splitDim(Value value, int64_t dim, int64_t groups) {
    SmallVector<int64_t> shape(getType(value).getShape());
    shape[dim] /= groups;
    shape.insert(shape.begin() + dim, groups);
    return shape;
  }

  Value cut(Value value, int64_t dim, int64_t chunk, int64_t groups) const {
    int64_t size = getType(value).getDimSize(dim), at = dim;
    RankedTensorType result = loom::withDim(getType(value), dim, size / chunks);
    if (groups > 1) {
      value = reshape(value, splitDim(value, dim, groups));
      ++at;
    }
    RankedTensorType type = getType(value);
    int64_t step = type.getDimSize(at) / chunks;
    SmallVector<int64_t> starts(type.getRank(), 0), strides(type.getRank(), 1);
    SmallVector<int64_t> limits(type.getShape());
    starts[at] = chunk * step;
    limits[at] = starts[at] + step;
    Value part = loom::SliceOp::create(builder, loc, loom::withDim(type, at, step), value, starts,
                                       limits, strides);
    return reshape(part, result.getShape());
  }

  Value join(SmallVector<Value> parts, int64_t dim, int64_t groups) const {
    SmallVector<int64_t> shape(getType(parts[0]).getShape());
    shape[dim] *= chunks;
    int64_t at = dim;
    if (groups > 1) {
      for (Value &part : parts)
        part = reshape(part, splitDim(part, dim, groups));
      ++at;
    }
    RankedTensorType type = getType(parts[0]);
    Value whole = loom::ConcatenateOp::create(
        builder, loc, loom::withDim(type, at, type.getDimSize(at) * chunks), parts, at);
    return reshape(whole, shape);
  }
};

struct ChunkCollectiveMatmulPass
    : public gridloom::impl::ChunkCollectiveMatmulBase<ChunkCollectiveMatmulPass> {
  using ChunkCollectiveMatmulBase::ChunkCollectiveMatmulBase;

  void runOnOperation() override {
    if (chunks < 2)
      return;
    SmallVector<loom::DotGeneralOp> dots;
    getOperation().walk([&](loom::DotGeneralOp dot) { dots.push_back(dot); });
    for (loom::DotGeneralOp dot : dots)
      if (!chunkReduction(dot))
        chunkGather(dot);
  }

private:
  static SmallVector<FreeDim> getFreeDims(loom::DotGeneralOp dot) {
    SmallVector<FreeDim> dims;
    auto position = static_cast<int64_t>(dot.getLhsBatch().size());
    for (int64_t dim : dot.getLhsFreeDims())
      dims.push_back({0, dim, position++});
    for (int64_t dim : dot.getRhsFreeDims())
      dims.push_back({1, dim, position++});
    return dims;
  }

  /// Whether a chunk of the value keeps a link busy.
  bool isLarge(Value value) const { return loom::getByteSize(value.getType()) >= minBytes; }

  /// Multiplies a chunk of one operand.
  static Value multiply(OpBuilder &builder, loom::DotGeneralOp dot, FreeDim dim, Value operand) {
    auto part = cast<loom::DotGeneralOp>(builder.clone(*dot));
    part->setOperand(dim.operand, operand); // the other one may be the same value, whole
    part->removeAttr(kShardings);
    part.getResult().setType(
        loom::withDim(getType(dot), dim.resultDim, getType(operand).getDimSize(dim.operandDim)));
    return part;
  }

  /// Runs the collective on a chunk, with a result of the given type.
  static Value communicate(OpBuilder &builder, Operation *collective, Value input, Type type) {
    IRMapping map;
    map.map(collective->getOperand(0), input);
    Operation *part = builder.clone(*collective, map);
    part->removeAttr(kShardings);
    part->setAttr(kChunk, builder.getUnitAttr());
    part->getResult(0).setType(type);
    return part->getResult(0);
  }

  /// Replaces the last operation with `result` and copies its attributes.
  static void replace(Operation *last, Value result, Operation *mark) {
    Operation *end = result.getDefiningOp();
    for (StringRef name : {kShardings, kOrigins})
      if (Attribute attr = last->getAttr(name))
        end->setAttr(name, attr);
    // Operations created in between belong to the same stage.
    if (Attribute stage = last->getAttr(kStage)) {
      Block::iterator begin = mark ? std::next(mark->getIterator()) : last->getBlock()->begin();
      for (Operation &op : llvm::make_range(begin, last->getIterator()))
        if (!op.hasAttr(kStage))
          op.setAttr(kStage, stage);
    }
    last->getResult(0).replaceAllUsesWith(result);
    last->erase();
  }

  /// Chunks a matmul and the all_reduce or reduce_scatter of its result.
  bool chunkReduction(loom::DotGeneralOp dot) {
    if (!dot->hasOneUse())
      return false;
    Operation *collective = *dot->getUsers().begin();
    auto reduce = dyn_cast<AllReduceOp>(collective);
    auto scatter = dyn_cast<ReduceScatterOp>(collective);
    if ((!reduce || reduce.getInputs().size() != 1) && !scatter)
      return false;
    if (!isLarge(dot) || collective->getBlock() != dot->getBlock())
      return false;
    int64_t scattered = scatter ? static_cast<int64_t>(scatter.getDim()) : -1;
    RankedTensorType after = getType(collective->getResult(0));
    std::optional<FreeDim> best;
    for (FreeDim dim : getFreeDims(dot)) {
      // Weights stay whole: they are laid out once, at load.
      if (dot->getOperand(dim.operand).getDefiningOp<loom::GetWeightOp>() ||
          after.getDimSize(dim.resultDim) % chunks != 0)
        continue;
      if (!best || (best->resultDim == scattered && dim.resultDim != scattered))
        best = dim;
    }
    if (!best)
      return false;
    OpBuilder builder(collective);
    Operation *mark = collective->getPrevNode();
    Chunker chunker{builder, dot.getLoc(), chunks};
    int64_t groups = best->resultDim == scattered
                         ? getType(dot).getDimSize(scattered) / after.getDimSize(scattered)
                         : 1;
    RankedTensorType type =
        loom::withDim(after, best->resultDim, after.getDimSize(best->resultDim) / chunks);
    SmallVector<Value> parts;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      Value operand = chunker.cut(dot->getOperand(best->operand), best->operandDim, chunk, groups);
      Value product = multiply(builder, dot, *best, operand);
      parts.push_back(communicate(builder, collective, product, type));
    }
    replace(collective, chunker.join(parts, best->resultDim, 1), mark);
    dot.erase();
    return true;
  }

  /// Chunks an all_gather of an operand and the matmul.
  void chunkGather(loom::DotGeneralOp dot) {
    for (int64_t operand : {0, 1}) {
      auto gather = dot->getOperand(operand).getDefiningOp<AllGatherOp>();
      if (!gather || !gather->hasOneUse() || !isLarge(gather.getOutput()) ||
          gather->getBlock() != dot->getBlock())
        continue;
      RankedTensorType before = getType(gather.getInput());
      auto gathered = static_cast<int64_t>(gather.getDim());
      std::optional<FreeDim> best;
      for (FreeDim dim : getFreeDims(dot))
        if (dim.operand == operand && before.getDimSize(dim.operandDim) % chunks == 0 &&
            (!best || (best->operandDim == gathered && dim.operandDim != gathered)))
          best = dim;
      if (!best)
        continue;
      OpBuilder builder(dot);
      Operation *mark = dot->getPrevNode();
      Chunker chunker{builder, gather.getLoc(), chunks};
      int64_t groups =
          best->operandDim == gathered
              ? getType(gather.getOutput()).getDimSize(gathered) / before.getDimSize(gathered)
              : 1;
      RankedTensorType whole = getType(gather.getOutput());
      RankedTensorType type =
          loom::withDim(whole, best->operandDim, whole.getDimSize(best->operandDim) / chunks);
      SmallVector<Value> parts;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        Value piece = chunker.cut(gather.getInput(), best->operandDim, chunk, 1);
        parts.push_back(multiply(builder, dot, *best, communicate(builder, gather, piece, type)));
      }
      replace(dot, chunker.join(parts, best->resultDim, groups), mark);
      gather.erase();
      return;
    }
  }
};
} // namespace
