//===- LaneSort.cpp - sorting inside a kernel -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/LaneSort.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

using P = arith::CmpIPredicate;

//===----------------------------------------------------------------------===//
// A heap of the first ones
//===----------------------------------------------------------------------===//

/// Sifts `word` down from `place`: larger children move up until it fits.
static void emitSiftDown(LaneBuilder &b, Value memory, int64_t count, Value place, Value word) {
  Type index = b.builder.getIndexType(), type = word.getType();
  Value last = b.index(count - 1);
  auto loop = scf::WhileOp::create(
      b.builder, b.loc, TypeRange{index, index, type}, ValueRange{place},
      [&](OpBuilder &builder, Location, ValueRange arguments) {
        Value child = b.add(b.mul(arguments[0], 2), b.index(1));
        Value left = b.min(child, last), right = b.min(b.add(child, b.index(1)), last);
        Value leftWord = b.load(memory, left, type), rightWord = b.load(memory, right, type);
        Value isRight = b.compare(P::ugt, rightWord, leftWord);
        Value larger = b.select(isRight, rightWord, leftWord);
        Value goesOn = b.both(b.compare(P::sle, child, last), b.compare(P::ugt, larger, word));
        scf::ConditionOp::create(builder, b.loc, goesOn,
                                 ValueRange{arguments[0], b.select(isRight, right, left), larger});
      },
      [&](OpBuilder &builder, Location, ValueRange arguments) {
        b.store(arguments[2], memory, arguments[0]);
        scf::YieldOp::create(builder, b.loc, arguments[1]);
      });
  b.store(word, memory, loop.getResult(0));
}

void gridloom::codegen::emitHeapify(LaneBuilder &b, Value memory, int64_t count) {
  Type type = cast<MemRefType>(memory.getType()).getElementType();
  b.loop(b.index(0), b.index(count / 2), [&](Value step) {
    Value place = b.sub(b.index(count / 2 - 1), step);
    emitSiftDown(b, memory, count, place, b.load(memory, place, type));
  });
}

void gridloom::codegen::emitOffer(LaneBuilder &b, Value memory, int64_t count, Value word) {
  Value largest = b.load(memory, b.index(0), word.getType());
  b.when(b.compare(P::ult, word, largest),
         [&] { emitSiftDown(b, memory, count, b.index(0), word); });
}

//===----------------------------------------------------------------------===//
// Merges
//===----------------------------------------------------------------------===//

/// Merges [low, middle) and [middle, high) of the words from `from` on to those from `to` on.
static void emitMerge(LaneBuilder &b, Value memory, int64_t count, Value from, Value to, Value low,
                      Value middle, Value high) {
  Type type = cast<MemRefType>(memory.getType()).getElementType();
  Value last = b.index(count - 1), one = b.index(1);
  auto loop = scf::ForOp::create(b.builder, b.loc, low, high, one, ValueRange{low, middle});
  OpBuilder::InsertionGuard guard(b.builder);
  b.builder.setInsertionPointToEnd(loop.getBody());
  Value left = loop.getRegionIterArg(0), right = loop.getRegionIterArg(1);
  // Clamp the places, so that loads stay in bounds when one side is used up.
  Value leftWord = b.load(memory, b.add(from, b.min(left, last)), type);
  Value rightWord = b.load(memory, b.add(from, b.min(right, last)), type);
  Value isOver = b.compare(P::sge, right, high);
  Value isLess = b.compare(P::ult, leftWord, rightWord);
  Value takesLeft = b.both(b.compare(P::slt, left, middle),
                           arith::OrIOp::create(b.builder, b.loc, isOver, isLess));
  b.store(b.select(takesLeft, leftWord, rightWord), memory, b.add(to, loop.getInductionVar()));
  Value nextLeft = b.select(takesLeft, b.add(left, one), left);
  Value nextRight = b.select(takesLeft, right, b.add(right, one));
  scf::YieldOp::create(b.builder, b.loc, ValueRange{nextLeft, nextRight});
}

Value gridloom::codegen::emitMergeSort(LaneBuilder &b, Value memory, int64_t count) {
  Type index = b.builder.getIndexType();
  Value end = b.index(count);
  auto passes = scf::WhileOp::create(
      b.builder, b.loc, TypeRange{index, index}, ValueRange{b.index(1), b.index(0)},
      [&](OpBuilder &builder, Location, ValueRange arguments) {
        Value goesOn = b.compare(P::slt, arguments[0], end);
        scf::ConditionOp::create(builder, b.loc, goesOn, arguments);
      },
      [&](OpBuilder &builder, Location, ValueRange arguments) {
        Value run = arguments[0], from = arguments[1];
        Value to = b.sub(end, from), pair = b.mul(run, 2);
        auto pairs = scf::ForOp::create(builder, b.loc, b.index(0), end, pair);
        {
          OpBuilder::InsertionGuard guard(builder);
          builder.setInsertionPoint(pairs.getBody()->getTerminator());
          Value low = pairs.getInductionVar(), middle = b.min(b.add(low, run), end);
          emitMerge(b, memory, count, from, to, low, middle, b.min(b.add(low, pair), end));
        }
        scf::YieldOp::create(builder, b.loc, ValueRange{pair, to});
      });
  return passes.getResult(1);
}
