//===- IntegerPowers.cpp - integer powers as loops ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/LaneBuilder.h"
#include "compiler/codegen/gpu/GpuLowering.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

using P = arith::CmpIPredicate;

/// Emits a power by squaring. A negative exponent gives 0, except for bases 1 and -1: their powers
/// depend only on the exponent's lowest bit, so it may be read as unsigned.
static Value emitPower(LaneBuilder &b, Value base, Value exponent) {
  Type type = base.getType();
  auto constant = [&](int64_t value) { return b.literal(b.builder.getIntegerAttr(type, value)); };
  Value zero = constant(0), one = constant(1);
  auto product = [&](Value x, Value y) -> Value {
    return arith::MulIOp::create(b.builder, b.loc, x, y);
  };
  auto goesOn = [&](ValueRange values) { return b.compare(P::ne, values[2], zero); };
  SmallVector<Value> last =
      b.repeat({one, base, exponent}, goesOn, [&](ValueRange values) -> SmallVector<Value> {
        Value bit = arith::AndIOp::create(b.builder, b.loc, values[2], one);
        Value taken = b.select(b.compare(P::ne, bit, zero), values[1], one);
        Value rest = arith::ShRUIOp::create(b.builder, b.loc, values[2], one);
        return {product(values[0], taken), product(values[1], values[1]), rest};
      });
  Value isOther = b.both(b.compare(P::ne, base, one), b.compare(P::ne, base, constant(-1)));
  Value vanishes = b.both(b.compare(P::slt, exponent, zero), isOther);
  return b.select(vanishes, zero, last[0]);
}

void gridloom::codegen::expandIntegerPowers(ModuleOp module) {
  module.walk([](math::IPowIOp op) {
    OpBuilder builder(op);
    LaneBuilder b{builder, op.getLoc()};
    auto type = dyn_cast<VectorType>(op.getType());
    Value result;
    if (!type) {
      result = emitPower(b, op.getLhs(), op.getRhs());
    } else {
      SmallVector<Value> elements;
      for (int64_t i = 0; i < type.getNumElements(); ++i) {
        Value base = vector::ExtractOp::create(builder, b.loc, op.getLhs(), i);
        Value exponent = vector::ExtractOp::create(builder, b.loc, op.getRhs(), i);
        elements.push_back(emitPower(b, base, exponent));
      }
      result = vector::FromElementsOp::create(builder, b.loc, type, elements);
    }
    op.replaceAllUsesWith(result);
    op.erase();
  });
}
