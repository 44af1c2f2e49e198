//===- ThreadGroups.cpp - combines values of several threads --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// A shuffle moves 32-bit registers: smaller values are widened, 64-bit ones go in two parts.
Value gridloom::codegen::exchange(OpBuilder &builder, Location loc, Value value, int32_t offset,
                                  gpu::ShuffleMode mode) {
  Type type = value.getType(), word = builder.getI32Type();
  auto shuffle = [&](Value part) -> Value {
    auto op = gpu::ShuffleOp::create(builder, loc, part, offset, kWarp, mode);
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

/// Bytes: the alignment of a vector of four of any element.
static constexpr int64_t kSharedAlignment = 32;

Value gridloom::codegen::addSharedMemory(gpu::GPUFuncOp function, Type element, int64_t count) {
  auto space = gpu::AddressSpaceAttr::get(function.getContext(), gpu::AddressSpace::Workgroup);
  // Round up: the widest access may need more than is asked for.
  Type stored = memoryType(element);
  count = static_cast<int64_t>(
      llvm::alignTo(count, kSharedAlignment * 8 / stored.getIntOrFloatBitWidth()));
  auto type = MemRefType::get({count}, stored, MemRefLayoutAttrInterface(), space);
  Value memory = function.addWorkgroupAttribution(type, function.getLoc());
  function.setWorkgroupAttributionAttr(function.getNumWorkgroupAttributions() - 1,
                                       LLVM::LLVMDialect::getAlignAttrName(),
                                       OpBuilder(function).getI64IntegerAttr(kSharedAlignment));
  return memory;
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
    value =
        emitter.combine(reduce, value, exchange(builder, loc, value, mask, gpu::ShuffleMode::XOR));
  if (count == kWarp)
    return value;

  // Each warp has a place of at least one word, so that no word holds parts of two places; then
  // every thread reads all of them.
  int64_t warps = count / kWarp;
  Type type = value.getType(), element = type, word = builder.getI32Type();
  bool isShort = isa<IntegerType>(type) && type.getIntOrFloatBitWidth() < 32;
  if (isShort) {
    element = word;
    value = arith::ExtUIOp::create(builder, loc, word, value);
  }
  Value places = addSharedMemory(function, element, warps);
  auto load = [&](Value place, int64_t width) -> Value {
    Value part = emitter.load(places, place, width, element);
    if (!isShort)
      return part;
    Type narrow = width == 1 ? type : VectorType::get(width, type);
    return arith::TruncIOp::create(builder, loc, narrow, part);
  };
  Value size = emitter.constantIndex(kWarp);
  Value warp = arith::DivUIOp::create(builder, loc, lane, size);
  Value number = arith::RemUIOp::create(builder, loc, lane, size);
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, number,
                                        emitter.constantIndex(0));
  auto branch = scf::IfOp::create(builder, loc, isFirst, /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(branch.thenBlock()->getTerminator());
    emitter.store(value, places, warp);
  }
  gpu::BarrierOp::create(builder, loc);
  Value result;
  if (warps > 8 && llvm::isPowerOf2_64(warps)) {
    number = arith::RemUIOp::create(builder, loc, lane, emitter.constantIndex(warps));
    result = load(number, 1);
    for (int32_t mask = 1; mask < warps; mask *= 2)
      result = emitter.combine(reduce, result,
                               exchange(builder, loc, result, mask, gpu::ShuffleMode::XOR));
  } else {
    for (int64_t i = 0, width = 4; i < warps; i += width) {
      while (i + width > warps)
        width /= 2;
      Value part = emitter.collapse(reduce, load(emitter.constantIndex(i), width));
      result = result ? emitter.combine(reduce, result, part) : part;
    }
  }
  if (isInLoop(builder))
    gpu::BarrierOp::create(builder, loc);
  return result;
}

Value gridloom::codegen::joinColumns(BodyEmitter &emitter, const Node &reduce, Value value,
                                     ThreadPlace across, ThreadPlace along,
                                     gpu::GPUFuncOp function) {
  OpBuilder &builder = emitter.getBuilder();
  Location loc = function.getLoc();
  auto vector = dyn_cast<VectorType>(value.getType());
  int64_t width = vector ? vector.getNumElements() : 1, row = across.count * width;
  Type element = getElementTypeOrSelf(value.getType());
  Value places = addSharedMemory(function, element, along.count * row);
  auto flags = arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;
  Value column =
      arith::MulIOp::create(builder, loc, across.number, emitter.constantIndex(width), flags);
  Value own = arith::MulIOp::create(builder, loc, along.number, emitter.constantIndex(row), flags);
  own = arith::AddIOp::create(builder, loc, own, column, flags);
  emitter.store(value, places, own);
  gpu::BarrierOp::create(builder, loc);
  Value result;
  for (int64_t i = 0; i < along.count; ++i) {
    Value place =
        arith::AddIOp::create(builder, loc, column, emitter.constantIndex(i * row), flags);
    Value part = emitter.load(places, place, width, element);
    result = result ? emitter.combine(reduce, result, part) : part;
  }
  if (isInLoop(builder))
    gpu::BarrierOp::create(builder, loc);
  return result;
}
