//===- GpuTranspose.cpp - a tile through shared memory per block ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads are contiguous along one loop, writes along another. A block reads a square tile along the
// first, one row per warp, then computes and writes along the second. Rows in shared memory are
// padded by a vector, so that the elements of a column are in different banks.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/NestEmitter.h"
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// A thread's place in a tile: it has the vector at `along` of row `across` and of every
/// kTileRows-th row after it. The other values are these places in the two loops.
struct NestEmitter::TilePlace {
  Value along, across;
  Value readAlong, readAcross, writtenAlong, writtenAcross;
  int64_t side, pitch;
};

void NestEmitter::emitTranspose() {
  const Loop &written = nest.outer[nest.contiguous];
  Value thread = threadId(), warp = index(kWarp);
  TilePlace place;
  place.along = scale(arith::RemUIOp::create(builder, loc, thread, warp), plan.width);
  place.across = arith::DivUIOp::create(builder, loc, thread, warp);
  place.side = kWarp * plan.width;
  place.pitch = place.side + plan.width;
  SmallVector<const Loop *> others = otherLoops(&written, plan.read);
  Context outer;
  outer.parent = &root;
  outer.block = root.block;
  root.next = &outer;
  if (!others.empty())
    takeLoops(outer, others, blockId(gpu::Dimension::z));
  Value writtenTile = blockId(gpu::Dimension::x), readTile = blockId(gpu::Dimension::y);
  place.writtenAlong = scale(writtenTile, place.side, place.along);
  place.writtenAcross = scale(writtenTile, place.side, place.across);
  place.readAlong = scale(readTile, place.side, place.along);
  place.readAcross = scale(readTile, place.side, place.across);
  SmallVector<Value> tiles;
  for (NodeId id : plan.tiled)
    tiles.push_back(
        addSharedMemory(function, nest.body->nodes[id].element, place.side * place.pitch));
  for (int64_t row = 0; row < place.side; row += kTileRows)
    fillTiles(outer, place, row, tiles);
  emitter.enter(outer);
  gpu::BarrierOp::create(builder, loc);
  for (int64_t row = 0; row < place.side; row += kTileRows)
    storeTiles(outer, place, row, tiles);
}

/// Sets the variable of `loop` in `context` to base + offset, clamped to the last vector. If it may
/// be beyond the end, adds the check to `isInside`, which may be null.
void NestEmitter::setTileLoop(Context &context, const Loop &loop, Value base, int64_t offset,
                              Value &isInside) {
  int64_t side = kWarp * plan.width;
  Value variable = scale(base, 1, offset ? index(offset) : Value());
  if (loop.extent % side == 0) {
    context.base = base;
    context.offset = offset;
  } else {
    Value inside = isBelow(variable, loop.extent);
    isInside =
        isInside ? arith::AndIOp::create(builder, loc, isInside, inside).getResult() : inside;
    variable = least(variable, loop.extent - context.width);
  }
  context.loops.emplace_back(&loop, variable);
}

/// Nests a line of a tile in `outer`, and the line's vectors in the line.
static void nestTile(Context &outer, Context &line, Context &lanes, int64_t width) {
  line.parent = line.next = &outer;
  lanes.parent = lanes.next = &line;
  line.block = lanes.block = outer.block;
  lanes.width = width;
}

/// Reads row `row` + across of the tiles along the loop in which reads are contiguous.
void NestEmitter::fillTiles(Context &outer, const TilePlace &place, int64_t row,
                            ArrayRef<Value> tiles) {
  emitter.enter(outer);
  const Loop &written = nest.outer[nest.contiguous];
  Value isInside;
  Context line, lanes;
  nestTile(outer, line, lanes, plan.width);
  setTileLoop(line, written, place.writtenAcross, row, isInside);
  setTileLoop(lanes, *plan.read, place.readAlong, 0, isInside);
  for (auto [id, tile] : llvm::zip_equal(plan.tiled, tiles)) {
    Value value = emitter.emitNodeIn(lanes, id);
    emitter.enter(outer);
    Value at = scale(place.across, place.pitch, place.along);
    emitter.store(value, tile, scale(at, 1, index(row * place.pitch)));
  }
}

/// Computes and writes row `row` + across of the outputs' tile along their contiguous loop.
void NestEmitter::storeTiles(Context &outer, const TilePlace &place, int64_t row,
                             ArrayRef<Value> tiles) {
  emitter.enter(outer);
  const Loop &written = nest.outer[nest.contiguous];
  Value isInside;
  Context line, lanes;
  nestTile(outer, line, lanes, plan.width);
  setTileLoop(line, *plan.read, place.readAcross, row, isInside);
  setTileLoop(lanes, written, place.writtenAlong, 0, isInside);
  for (auto [id, tile] : llvm::zip_equal(plan.tiled, tiles)) {
    Type element = nest.body->nodes[id].element;
    Value at = scale(place.along, place.pitch, place.across);
    SmallVector<Value> values;
    for (int64_t i = 0; i < plan.width; ++i)
      values.push_back(emitter.load(tile, scale(at, 1, index(row + i * place.pitch)), 1, element));
    Value value = values[0];
    if (plan.width > 1)
      value = vector::FromElementsOp::create(
          builder, loc, VectorType::get(plan.width, values[0].getType()), values);
    lanes.values[id] = value;
  }
  emitter.emitIf(lanes, isInside, [&](Context &inside) { emitter.emitStores(inside); });
}
