//===- GpuColumn.cpp - reductions of neighbouring columns -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A block's threads form a grid: along one side vectors of neighbouring outputs, along the other
// threads that split the reductions and combine their parts in shared memory.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/NestEmitter.h"
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

void NestEmitter::emitColumn() {
  const Loop &columns = nest.outer[nest.contiguous];
  int64_t across = plan.threads / plan.group, vectors = columns.extent / plan.width;
  Value item = blockId(gpu::Dimension::x), column = threadId(), lane = index(0);
  if (plan.group > 1) {
    Value size = index(across);
    lane = arith::DivUIOp::create(builder, loc, column, size);
    column = arith::RemUIOp::create(builder, loc, column, size);
  }
  Value place = column;
  if (plan.grid[1] > 1)
    column = scale(blockId(gpu::Dimension::y), across, column);
  // All threads of a block must reach its barriers: those beyond the end repeat the last vector.
  Value isInside;
  if (vectors % across != 0) {
    isInside = isBelow(column, vectors);
    column = least(column, vectors - 1);
  }
  auto join = [&](const Node &reduce, Value value) {
    return joinColumns(emitter, reduce, value, {place, across}, {lane, plan.group}, function);
  };
  emitter.share({lane, plan.group, join, plan.inLine});

  Context outer, lanes;
  outer.parent = &root;
  outer.block = lanes.block = root.block;
  root.next = &outer;
  takeLoops(outer, otherLoops(&columns, plan.spread), item);
  outer.next = &lanes;
  lanes.parent = &outer;
  lanes.width = plan.width;
  lanes.loops.emplace_back(&columns, scale(column, plan.width));
  int pass = emitter.emitPasses(lanes, nullptr);
  emitter.enter(lanes);
  if (!plan.spread) {
    Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, lane, index(0));
    isInside =
        isInside ? arith::AndIOp::create(builder, loc, isInside, isFirst).getResult() : isFirst;
  }
  if (plan.spread)
    return emitter.emitStoreLoop(lanes, *plan.spread, pass, 1, isInside);
  emitter.emitIf(lanes, isInside, [&](Context &inside) { emitter.emitStores(inside); });
}
