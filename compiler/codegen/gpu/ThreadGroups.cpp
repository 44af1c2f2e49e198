//===- ThreadGroups.cpp - values of several threads as one ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// The value of the thread whose number differs by `mask`. Registers of 32 bits are what a shuffle
/// moves: smaller values are widened, larger ones go in two.
static Value exchange(OpBuilder &builder, Location loc, Value value, int32_t mask) {
  Type type = value.getType(), word = builder.getI32Type();
  auto shuffle = [&](Value part) -> Value {
    auto op = gpu::ShuffleOp::create(builder, loc, part, mask, kWarp, gpu::ShuffleMode::XOR);
    return op.getShuffleResult();
  };
  unsigned bits = type.getIntOrFloatBitWidth();
  if (bits == 32)
    return shuffle(value);
  Type integer = builder.getIntegerType(bits);
  Value raw = type == integer ? value : arith::BitcastOp::create(builder, loc, integer, value);
  if (bits < 32) {
    Value wide = shuffle(arith::ExtUIOp::create(builder, loc, word, raw));
    raw = arith::TruncIOp::create(builder, loc, integer, wide);
  } else {
    auto pair = VectorType::get(2, word);
    Value one = vector::BroadcastOp::create(builder, loc, VectorType::get(1, integer), raw);
    Value words = vector::BitCastOp::create(builder, loc, pair, one);
    for (int64_t i : {0, 1}) {
      Value part = vector::ExtractOp::create(builder, loc, words, i);
      words = vector::InsertOp::create(builder, loc, shuffle(part), words, i);
    }
    one = vector::BitCastOp::create(builder, loc, VectorType::get(1, integer), words);
    raw = vector::ExtractOp::create(builder, loc, one, int64_t(0));
  }
  return type == integer ? raw : arith::BitcastOp::create(builder, loc, type, raw);
}

/// True if the code at the insertion point may run more than once.
static bool isInLoop(OpBuilder &builder) {
  return builder.getInsertionBlock()->getParentOp()->getParentOfType<scf::ForOp>() ||
         isa<scf::ForOp>(builder.getInsertionBlock()->getParentOp());
}

Value gridloom::codegen::joinThreads(BodyEmitter &emitter, const Node &reduce, Value value,
                                     Value lane, int64_t count, gpu::GPUFuncOp function) {
  OpBuilder &builder = emitter.getBuilder();
  Location loc = function.getLoc();
  for (int32_t mask = 1; mask < kWarp; mask *= 2)
    value = emitter.combine(reduce, value, exchange(builder, loc, value, mask));
  if (count == kWarp)
    return value;

  // A place per warp, then everyone reads all of them in the same order.
  int64_t warps = count / kWarp;
  Type element = memoryType(value.getType());
  auto space = gpu::AddressSpaceAttr::get(builder.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get({warps}, element, MemRefLayoutAttrInterface(), space);
  Value places = function.addWorkgroupAttribution(type, loc);
  auto constant = [&](int64_t number) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, number);
  };
  Value warp = arith::DivUIOp::create(builder, loc, lane, constant(kWarp));
  Value number = arith::RemUIOp::create(builder, loc, lane, constant(kWarp));
  Value isFirst =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, number, constant(0));
  auto branch = scf::IfOp::create(builder, loc, isFirst, /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(branch.thenBlock()->getTerminator());
    emitter.store(value, places, warp);
  }
  gpu::BarrierOp::create(builder, loc);
  Value result;
  for (int64_t i = 0; i < warps; ++i) {
    Value part = emitter.load(places, constant(i), 1, value.getType());
    result = result ? emitter.combine(reduce, result, part) : part;
  }
  if (isInLoop(builder))
    gpu::BarrierOp::create(builder, loc);
  return result;
}
