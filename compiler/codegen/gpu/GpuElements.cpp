//===- GpuElements.cpp - a thread per vector of outputs -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Neighbouring threads compute neighbouring vectors, so that a warp's accesses coalesce. The
// remainder of a row, shorter than a vector, takes one thread per element.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/NestEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

void NestEmitter::emitElements() {
  const Loop *contiguous = nest.contiguous < 0 ? nullptr : &nest.outer[nest.contiguous];
  int64_t vectors = 1;
  if (contiguous)
    vectors = contiguous->extent / plan.width + contiguous->extent % plan.width;
  Value thread = threadId(), item, vector;
  if (plan.isByRow) {
    item = blockId(gpu::Dimension::x);
    vector = thread;
    if (plan.grid[1] > 1)
      vector = scale(blockId(gpu::Dimension::y), plan.threads, thread);
    if (vectors % plan.threads != 0)
      guard(isBelow(vector, vectors));
  } else {
    item = scale(blockId(gpu::Dimension::x), plan.threads, thread);
    // Blocks of other nests get items that are too large, or negative, which is huge as unsigned.
    if (!isOnly || plan.items % plan.threads != 0)
      guard(isBelow(item, plan.items));
    if (contiguous)
      vector = emitter.takeMinor(item, vectors, nest.outer.size() == 1);
  }
  Context outer;
  outer.parent = &root;
  outer.block = root.block;
  root.next = &outer;
  takeLoops(outer, otherLoops(contiguous, nullptr), item);
  emitVectors(outer, vector);
}

/// Stores the outputs of vector number `vector` of the contiguous loop; null if the output is one
/// element.
void NestEmitter::emitVectors(Context &outer, Value vector) {
  if (!vector)
    return emitter.emitStores(outer);
  const Loop &loop = nest.outer[nest.contiguous];
  int64_t full = loop.extent / plan.width, width = plan.width;
  if (loop.extent % width == 0) {
    Context lanes;
    lanes.parent = &outer;
    lanes.block = outer.block;
    lanes.width = width;
    outer.next = &lanes;
    lanes.loops.emplace_back(&loop, scale(vector, width));
    return emitter.emitStores(lanes);
  }
  Value isFull = isBelow(vector, full);
  emitter.emitIf(outer, isFull, [&](Context &inside) {
    emitter.enter(inside);
    inside.width = width;
    inside.loops.emplace_back(&loop, scale(vector, width));
    emitter.emitStores(inside);
  });
  Value isRest =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::uge, vector, index(full));
  emitter.emitIf(outer, isRest, [&](Context &inside) {
    emitter.enter(inside);
    inside.loops.emplace_back(&loop, scale(vector, 1, index(full * (width - 1))));
    emitter.emitStores(inside);
  });
}
