//===- NestEmitter.cpp - a nest as the code of one thread -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/NestEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// Reductions are vectorised along their own loops only if the threads of a row share these.
static int64_t widthOfReductions(const ThreadPlan &plan) {
  return plan.kind == ThreadPlan::Kind::Row ? plan.width : 1;
}

NestEmitter::NestEmitter(gpu::GPUFuncOp function, const Nest &nest, const ThreadPlan &plan,
                         OpBuilder &builder, ArrayRef<Value> memories, int64_t firstBlock,
                         bool isOnly)
    : function(function), nest(nest), plan(plan), builder(builder), loc(function.getLoc()),
      firstBlock(firstBlock), isOnly(isOnly),
      emitter(nest, memories, builder, loc, widthOfReductions(plan), nullptr,
              {hasShortIndices(nest), /*hasMaxOfNumbers=*/true}) {
  builder.setInsertionPoint(function.getBody().back().getTerminator());
  root.block = builder.getInsertionBlock();
}

void NestEmitter::emit() {
  switch (plan.kind) {
  case ThreadPlan::Kind::Elements:
    return emitElements();
  case ThreadPlan::Kind::Row:
    return emitRow();
  case ThreadPlan::Kind::Column:
    return emitColumn();
  case ThreadPlan::Kind::Transpose:
    return emitTranspose();
  case ThreadPlan::Kind::Product:
    return emitProduct();
  }
  llvm_unreachable("all kinds are covered");
}

Value NestEmitter::scale(Value value, int64_t factor, Value offset) {
  // The number is negative for blocks of another nest.
  auto flags = arith::IntegerOverflowFlags::none;
  if (firstBlock == 0)
    flags = arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;
  if (factor != 1)
    value = arith::MulIOp::create(builder, loc, value, index(factor), flags);
  return offset ? arith::AddIOp::create(builder, loc, value, offset, flags).getResult() : value;
}

Value NestEmitter::isBelow(Value value, int64_t limit) {
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, value, index(limit));
}

Value NestEmitter::least(Value value, int64_t limit) {
  return arith::MinUIOp::create(builder, loc, value, index(limit));
}

static Value toType(OpBuilder &builder, Location loc, Value value, Type type) {
  if (value.getType() == type)
    return value;
  return arith::IndexCastUIOp::create(builder, loc, type, value);
}

Value NestEmitter::blockId(gpu::Dimension dimension) {
  Value block = gpu::BlockIdOp::create(builder, loc, dimension);
  Type type = index(0).getType();
  block = toType(builder, loc, block, type);
  if (firstBlock != 0 && dimension == gpu::Dimension::x)
    block = arith::SubIOp::create(builder, loc, block, index(firstBlock));
  return block;
}

Value NestEmitter::threadId() {
  Value thread = gpu::ThreadIdOp::create(builder, loc, gpu::Dimension::x);
  return toType(builder, loc, thread, index(0).getType());
}

void NestEmitter::takeLoops(Context &context, ArrayRef<const Loop *> loops, Value item) {
  for (const Loop *loop : llvm::reverse(loops))
    context.loops.emplace_back(loop, emitter.takeMinor(item, loop->extent, loop == loops.front()));
}

SmallVector<const Loop *> NestEmitter::otherLoops(const Loop *first, const Loop *second) const {
  SmallVector<const Loop *> loops;
  for (const Loop &loop : nest.outer)
    if (&loop != first && &loop != second)
      loops.push_back(&loop);
  return loops;
}

void NestEmitter::guard(Value condition) {
  auto branch = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/false);
  root.block = branch.thenBlock();
  emitter.enter(root);
}
