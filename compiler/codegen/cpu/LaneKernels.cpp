//===- LaneKernels.cpp - kernels that walk a dimension in order -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/LaneKernels.h"
#include "compiler/codegen/LaneBuilder.h"
#include "compiler/codegen/cpu/LaneSort.h"

#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

/// `size` elements cut into pieces of `piece`; the last may be shorter.
struct Pieces {
  int64_t size, piece;
  int64_t count() const { return llvm::divideCeil(size, piece); }
  /// The begin and end of piece `number`.
  std::pair<Value, Value> range(LaneBuilder &b, Value number) const {
    Value begin = b.mul(number, piece), end = b.add(begin, b.index(piece));
    return {begin, size % piece == 0 ? end : b.min(end, b.index(size))};
  }
};

//===----------------------------------------------------------------------===//
// Cumulative
//===----------------------------------------------------------------------===//

/// The running values of up to 64 neighbouring lanes are kept on the stack.
class CumulativeKernel : public LaneKernel {
public:
  CumulativeKernel(loom::CumulativeOp op)
      : op(op), lanes(op.getInput().getType(), op.getDim()),
        pieces{lanes.inner, std::clamp<int64_t>(lanes.inner, 1, 64)} {}

  int64_t getRows() const override { return lanes.outer * pieces.count(); }
  double getCycles() override {
    return static_cast<double>(lanes.size * llvm::divideCeil(pieces.piece, 4) * 4);
  }
  std::pair<Type, int64_t> getScratch() override {
    return {getWideType(op.getInput().getType().getElementType()), pieces.piece};
  }
  void emitRow(OpBuilder &builder, ValueRange memories, Value row, Value scratch) override;

private:
  loom::CumulativeOp op;
  Lanes lanes;
  Pieces pieces;
};

void CumulativeKernel::emitRow(OpBuilder &builder, ValueRange memories, Value row, Value scratch) {
  LaneBuilder b{builder, op.getLoc()};
  Type element = op.getInput().getType().getElementType();
  Type wide = getWideType(element);
  auto [outer, piece] = b.divide(row, pieces.count());
  auto [begin, end] = pieces.range(b, piece);
  Value width = b.sub(end, begin);
  Value neutral = b.literal(cast<TypedAttr>(loom::getNeutralElement(wide, op.getKind())));
  b.loop(b.index(0), width, [&](Value lane) { b.store(neutral, scratch, lane); });
  b.loop(b.index(0), b.index(lanes.size), [&](Value step) {
    Value place = op.getReverse() ? b.sub(b.index(lanes.size - 1), step) : step;
    Value base = b.add(b.mul(b.add(b.mul(outer, lanes.size), place), lanes.inner), begin);
    b.loop(b.index(0), width, [&](Value lane) {
      Value at = b.add(base, lane), before = b.load(scratch, lane, wide);
      Value after =
          b.combine(op.getKind(), before, b.widen(b.load(memories[0], at, element)), wide);
      b.store(after, scratch, lane);
      b.store(b.narrow(op.getExclusive() ? before : after, element), memories[1], at);
    });
  });
}

//===----------------------------------------------------------------------===//
// Scatter
//===----------------------------------------------------------------------===//

/// A row copies its part of the input and then applies, in order, the updates that fall into it.
class ScatterKernel : public LaneKernel {
public:
  ScatterKernel(loom::ScatterOp op)
      : op(op), to(op.getInput().getType(), op.getDim()),
        updates(op.getUpdates().getType().getDimSize(op.getDim())), inner{to.inner, 0},
        blocks{to.size, 0} {
    // If outer rows are few, cut the inner dimensions and, if that is not enough, the scattered
    // one. Each of its blocks reads all indices, so more updates mean fewer blocks.
    constexpr int64_t kEnoughRows = 16, kPiece = 512;
    inner.piece = to.outer >= kEnoughRows ? std::max<int64_t>(to.inner, 1)
                                          : std::clamp<int64_t>(to.inner, 1, kPiece);
    int64_t cuts = 1;
    if (to.outer * inner.count() < kEnoughRows)
      cuts = std::clamp<int64_t>(to.size / std::max<int64_t>(updates, 1), 1, kEnoughRows);
    blocks.piece = std::max<int64_t>(llvm::divideCeil(to.size, cuts), 1);
  }

  int64_t getRows() const override { return to.outer * blocks.count() * inner.count(); }
  double getCycles() override {
    return static_cast<double>(inner.piece * blocks.piece) / 4 +
           static_cast<double>(updates * (op.takesSlices() ? 4 + inner.piece : 4 * inner.piece));
  }
  void emitRow(OpBuilder &builder, ValueRange memories, Value row, Value scratch) override;

private:
  void copy(LaneBuilder &b, ValueRange memories, Value outer, std::pair<Value, Value> block,
            std::pair<Value, Value> piece);

  loom::ScatterOp op;
  Lanes to;
  int64_t updates;
  Pieces inner, blocks;
};

void ScatterKernel::copy(LaneBuilder &b, ValueRange memories, Value outer,
                         std::pair<Value, Value> block, std::pair<Value, Value> piece) {
  Type element = op.getInput().getType().getElementType();
  Value isOther =
      b.compare(arith::CmpIPredicate::ne, b.pointer(memories[0]), b.pointer(memories[3]));
  b.when(isOther, [&] {
    b.loop(block.first, block.second, [&](Value place) {
      Value base = b.mul(b.add(b.mul(outer, to.size), place), to.inner);
      b.loop(piece.first, piece.second, [&](Value lane) {
        Value at = b.add(base, lane);
        b.store(b.load(memories[0], at, element), memories[3], at);
      });
    });
  });
}

void ScatterKernel::emitRow(OpBuilder &builder, ValueRange memories, Value row, Value) {
  LaneBuilder b{builder, op.getLoc()};
  Type element = op.getInput().getType().getElementType();
  Type indexType = op.getIndices().getType().getElementType();
  auto [rest, pieceNumber] = b.divide(row, inner.count());
  auto [outerValue, blockNumber] = b.divide(rest, blocks.count());
  Value outer = outerValue;
  std::pair<Value, Value> piece = inner.range(b, pieceNumber), block = blocks.range(b, blockNumber);
  copy(b, memories, outer, block, piece);

  auto load = [&](Value at) { return b.toIndex(b.load(memories[1], at, indexType)); };
  auto whenMine = [&](Value index, function_ref<void()> body) {
    Value inside = b.both(b.compare(arith::CmpIPredicate::sge, index, block.first),
                          b.compare(arith::CmpIPredicate::slt, index, block.second));
    b.when(inside, body);
  };
  auto apply = [&](Value index, Value source, Value lane) {
    Value target = b.add(b.mul(b.add(b.mul(outer, to.size), index), to.inner), lane);
    Value value = b.load(memories[2], source, element);
    b.update(op.getReduction(), value, memories[3], target, element);
  };
  b.loop(b.index(0), b.index(updates), [&](Value number) {
    Value base = b.mul(b.add(b.mul(outer, updates), number), to.inner);
    if (op.takesSlices()) {
      Value index = load(number);
      whenMine(index, [&] {
        b.loop(piece.first, piece.second,
               [&](Value lane) { apply(index, b.add(base, lane), lane); });
      });
      return;
    }
    b.loop(piece.first, piece.second, [&](Value lane) {
      Value source = b.add(base, lane), index = load(source);
      whenMine(index, [&] { apply(index, source, lane); });
    });
  });
}

//===----------------------------------------------------------------------===//
// Argsort
//===----------------------------------------------------------------------===//

/// Sorts a lane's elements and places as words (SortWords.h), in unsigned order.
class ArgsortKernel : public LaneKernel {
public:
  ArgsortKernel(loom::ArgsortOp op)
      : op(op), lanes(op.getInput().getType(), op.getDim()),
        taken(op.getOutput().getType().getDimSize(op.getDim())),
        words{op.getInput().getType().getElementType(), op.getDescending()},
        selects(lanes.size > 64 && taken * 4 <= lanes.size) {}

  int64_t getRows() const override { return lanes.count(); }
  double getCycles() override {
    auto sorted = static_cast<double>(selects ? taken : lanes.size);
    return 4 * static_cast<double>(lanes.size) + 10 * sorted * std::log2(sorted + 2);
  }
  /// Two halves: each merge pass goes from one to the other.
  std::pair<Type, int64_t> getScratch() override {
    return {words.getType(), 2 * (selects ? taken : lanes.size)};
  }
  void emitRow(OpBuilder &builder, ValueRange memories, Value row, Value scratch) override;

private:
  loom::ArgsortOp op;
  Lanes lanes;
  int64_t taken;
  SortWords words;
  bool selects; // keeps only the first `taken` words, in a heap
};

void ArgsortKernel::emitRow(OpBuilder &builder, ValueRange memories, Value row, Value scratch) {
  LaneBuilder b{builder, op.getLoc()};
  Type element = op.getInput().getType().getElementType();
  auto [outerValue, lane] = b.divide(row, lanes.inner);
  Value outer = outerValue, inner = lane;
  auto makeWord = [&](Value place) {
    Value at = b.add(b.mul(b.add(b.mul(outer, lanes.size), place), lanes.inner), inner);
    return words.make(b, b.load(memories[0], at, element), place);
  };
  int64_t sorted = selects ? taken : lanes.size;
  b.loop(b.index(0), b.index(sorted),
         [&](Value place) { b.store(makeWord(place), scratch, place); });
  if (selects) {
    emitHeapify(b, scratch, taken);
    b.loop(b.index(taken), b.index(lanes.size),
           [&](Value place) { emitOffer(b, scratch, taken, makeWord(place)); });
  }
  Value begin = emitMergeSort(b, scratch, sorted);
  b.loop(b.index(0), b.index(taken), [&](Value place) {
    Value word = b.load(scratch, b.add(begin, place), words.getType());
    Value at = b.add(b.mul(b.add(b.mul(outer, taken), place), lanes.inner), inner);
    b.store(words.getPlace(b, word), memories[1], at);
  });
}

} // namespace

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

std::unique_ptr<LaneKernel> gridloom::codegen::makeLaneKernel(plan::KernelOp kernel) {
  return llvm::TypeSwitch<Operation *, std::unique_ptr<LaneKernel>>(
             &kernel.getBody().front().front())
      .Case([](loom::CumulativeOp op) { return std::make_unique<CumulativeKernel>(op); })
      .Case([](loom::ScatterOp op) { return std::make_unique<ScatterKernel>(op); })
      .Case([](loom::ArgsortOp op) { return std::make_unique<ArgsortKernel>(op); })
      .Default([](Operation *) { return nullptr; });
}

void gridloom::codegen::emitLaneKernel(func::FuncOp function, LaneKernel &kernel,
                                       KernelInfo &info) {
  /// Cycles of work worth handing to a thread.
  constexpr double kThreadCycles = 20000;
  /// Scratch memory that fits on a thread's stack.
  constexpr int64_t kStackBytes = 4096;
  info.rows = kernel.getRows();
  double grain = kThreadCycles / std::max(kernel.getCycles(), 1.0);
  info.grain = std::clamp<int64_t>(static_cast<int64_t>(grain), 1, std::max<int64_t>(info.rows, 1));

  OpBuilder builder(function.getBody().front().getTerminator());
  LaneBuilder b{builder, function.getLoc()};
  ValueRange memories = function.getArguments().drop_back(2);
  Value lo = function.getArguments().drop_back(1).back(), hi = function.getArguments().back();
  // A call without rows needs no memory.
  b.when(b.compare(arith::CmpIPredicate::slt, lo, hi), [&] {
    auto [element, count] = kernel.getScratch();
    Value scratch;
    bool onHeap = element && count * element.getIntOrFloatBitWidth() / 8 > kStackBytes;
    if (element)
      scratch = onHeap ? b.allocate(element, count) : b.allocateOnStack(function, element, count);
    b.loop(lo, hi, [&](Value row) { kernel.emitRow(builder, memories, row, scratch); });
    if (onHeap)
      b.free(scratch);
  });
}
