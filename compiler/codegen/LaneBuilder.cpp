//===- LaneBuilder.cpp - loops over memory, written directly --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/LaneBuilder.h"

#include "dialects/loom/Float8.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

Type gridloom::codegen::getWideType(Type element) {
  bool isNarrow = isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
  return isNarrow ? Float32Type::get(element.getContext()) : element;
}

static int64_t product(ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

Lanes::Lanes(RankedTensorType type, int64_t dim)
    : outer(product(type.getShape().take_front(dim))), size(type.getDimSize(dim)),
      inner(product(type.getShape().drop_front(dim + 1))) {}

Value LaneBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(builder, loc, value);
}
Value LaneBuilder::literal(TypedAttr value) {
  if (auto integer = dyn_cast<IntegerAttr>(value))
    value = builder.getIntegerAttr(loom::getKernelType(integer.getType()), integer.getValue());
  else if (auto number = dyn_cast<FloatAttr>(value); number && loom::isFloat8(number.getType()))
    value = builder.getIntegerAttr(loom::getKernelType(number.getType()),
                                   number.getValue().bitcastToAPInt());
  return arith::ConstantOp::create(builder, loc, value);
}
Value LaneBuilder::add(Value x, Value y) { return arith::AddIOp::create(builder, loc, x, y); }
Value LaneBuilder::sub(Value x, Value y) { return arith::SubIOp::create(builder, loc, x, y); }
Value LaneBuilder::mul(Value x, int64_t y) {
  return arith::MulIOp::create(builder, loc, x, index(y));
}
Value LaneBuilder::min(Value x, Value y) { return arith::MinSIOp::create(builder, loc, x, y); }
std::pair<Value, Value> LaneBuilder::divide(Value x, int64_t y) {
  Value divisor = index(y);
  return {arith::DivUIOp::create(builder, loc, x, divisor),
          arith::RemUIOp::create(builder, loc, x, divisor)};
}
Value LaneBuilder::compare(arith::CmpIPredicate predicate, Value x, Value y) {
  return arith::CmpIOp::create(builder, loc, predicate, x, y);
}
Value LaneBuilder::both(Value x, Value y) { return arith::AndIOp::create(builder, loc, x, y); }
Value LaneBuilder::select(Value predicate, Value x, Value y) {
  return arith::SelectOp::create(builder, loc, predicate, x, y);
}
Value LaneBuilder::toIndex(Value value) {
  return arith::IndexCastOp::create(builder, loc, builder.getIndexType(), value);
}

void LaneBuilder::loop(Value begin, Value end, function_ref<void(Value)> body, int64_t step) {
  auto op = scf::ForOp::create(builder, loc, begin, end, index(step));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op.getBody()->getTerminator());
  body(op.getInductionVar());
}

SmallVector<Value> LaneBuilder::fold(Value begin, Value end, int64_t step, ValueRange inits,
                                     function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto op = scf::ForOp::create(builder, loc, begin, end, index(step), inits);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(op.getBody());
  scf::YieldOp::create(builder, loc, body(op.getInductionVar(), op.getRegionIterArgs()));
  return llvm::to_vector_of<Value>(op.getResults());
}

SmallVector<Value> LaneBuilder::repeat(ValueRange inits, function_ref<Value(ValueRange)> condition,
                                       function_ref<SmallVector<Value>(ValueRange)> body) {
  auto op = scf::WhileOp::create(
      builder, loc, inits.getTypes(), inits,
      [&](OpBuilder &inside, Location, ValueRange values) {
        Value goesOn = condition(values);
        scf::ConditionOp::create(inside, loc, goesOn, values);
      },
      [&](OpBuilder &inside, Location, ValueRange values) {
        scf::YieldOp::create(inside, loc, body(values));
      });
  return llvm::to_vector_of<Value>(op.getResults());
}

void LaneBuilder::when(Value condition, function_ref<void()> body) {
  auto op = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op.thenBlock()->getTerminator());
  body();
}

Value LaneBuilder::whenElse(Value condition, function_ref<Value()> body, Value other) {
  auto op = scf::IfOp::create(builder, loc, other.getType(), condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(op.thenBlock());
  scf::YieldOp::create(builder, loc, body());
  builder.setInsertionPointToEnd(op.elseBlock());
  scf::YieldOp::create(builder, loc, other);
  return op.getResult(0);
}

Value LaneBuilder::fromMemory(Value value, Type element) {
  if (!element.isInteger(1))
    return value;
  Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(value.getType()));
  return compare(arith::CmpIPredicate::ne, value, zero);
}

Value LaneBuilder::toMemory(Value value) {
  bool isBool = value.getType().isInteger(1);
  return isBool ? arith::ExtUIOp::create(builder, loc, builder.getI8Type(), value) : value;
}

Value LaneBuilder::load(Value memory, Value at, Type element) {
  return fromMemory(memref::LoadOp::create(builder, loc, memory, at), element);
}

void LaneBuilder::store(Value value, Value memory, Value at) {
  memref::StoreOp::create(builder, loc, toMemory(value), memory, at);
}

Value LaneBuilder::widen(Value value) {
  Type wide = getWideType(value.getType());
  return wide == value.getType() ? value : arith::ExtFOp::create(builder, loc, wide, value);
}

Value LaneBuilder::narrow(Value value, Type element) {
  bool isNarrow = isa<FloatType>(element) && value.getType() != element;
  return isNarrow ? arith::TruncFOp::create(builder, loc, element, value) : value;
}

Value LaneBuilder::combine(dist::ReductionKind kind, Value x, Value y, Type element) {
  return combineScalars(builder, loc, kind, x, y, element);
}

void LaneBuilder::update(std::optional<dist::ReductionKind> reduction, Value value, Value memory,
                         Value at, Type element) {
  if (reduction) {
    Value old = widen(load(memory, at, element));
    value = narrow(combine(*reduction, old, widen(value), getWideType(element)), element);
  }
  store(value, memory, at);
}

Value LaneBuilder::pointer(Value memory) {
  return memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memory);
}

Value LaneBuilder::allocate(Type element, int64_t count) {
  return memref::AllocOp::create(builder, loc, MemRefType::get(count, memoryType(element)));
}

Value LaneBuilder::allocateOnStack(func::FuncOp function, Type element, int64_t count) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  return memref::AllocaOp::create(builder, loc, MemRefType::get(count, memoryType(element)),
                                  builder.getI64IntegerAttr(64));
}

void LaneBuilder::free(Value memory) { memref::DeallocOp::create(builder, loc, memory); }
