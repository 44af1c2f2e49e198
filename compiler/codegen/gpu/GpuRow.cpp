//===- GpuRow.cpp - a warp or a block per row -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The threads of a group share the loops over a row: reductions combine through shuffles and shared
// memory. A row that fits in registers is read once.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/NestEmitter.h"
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

void NestEmitter::emitRow() {
  Value item = blockId(gpu::Dimension::x), lane = threadId();
  int64_t rows = plan.threads / plan.group;
  if (rows > 1) {
    Value size = index(plan.group);
    Value place = arith::DivUIOp::create(builder, loc, lane, size);
    lane = arith::RemUIOp::create(builder, loc, lane, size);
    item = scale(item, rows, place);
  }
  if (!isOnly || plan.items % rows != 0)
    guard(isBelow(item, plan.items));
  auto join = [&](const Node &reduce, Value value) {
    return joinThreads(emitter, reduce, value, lane, plan.group, function);
  };
  emitter.share({lane, plan.group, join, plan.inLine});

  Context row;
  row.parent = &root;
  row.block = root.block;
  root.next = &row;
  takeLoops(row, otherLoops(plan.spread, nullptr), item);
  int pass = emitter.emitPasses(row, plan.spread);
  if (plan.spread)
    return emitter.emitStoreLoop(row, *plan.spread, pass, emitter.widthFor(*plan.spread));
  // All threads have the result; one stores it.
  emitter.enter(row);
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, lane, index(0));
  emitter.emitIf(row, isFirst, [&](Context &inside) { emitter.emitStores(inside); });
}
