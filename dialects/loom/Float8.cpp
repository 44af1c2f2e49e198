//===- Float8.cpp - 8-bit floats in kernels -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Float8.h"

#include "dialects/loom/HostTensor.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace gridloom::loom;

namespace {

/// The bit fields of a float type, below the sign.
struct Layout {
  unsigned width;  // of all bits
  unsigned digits; // of the mantissa
  int64_t bias;    // of the exponent

  explicit Layout(FloatType type)
      : width(type.getWidth()), digits(type.getFPMantissaWidth() - 1),
        bias(1 - APFloat::semanticsMinExponent(type.getFloatSemantics())) {}

  /// The bits of 2 to the `exponent`.
  int64_t power(int64_t exponent) const { return (exponent + bias) << digits; }
};

/// Special codes of an 8-bit float, without signs.
struct Codes {
  int64_t most, nan, overflow;
  bool isUnsignedZero; // the code of -0 is the only NaN

  explicit Codes(FloatType type) {
    const llvm::fltSemantics &semantics = type.getFloatSemantics();
    auto code = [](const APFloat &value) {
      return static_cast<int64_t>(value.bitcastToAPInt().getZExtValue());
    };
    most = code(APFloat::getLargest(semantics));
    nan = code(APFloat::getNaN(semantics));
    overflow = APFloat::semanticsHasInf(semantics) ? code(APFloat::getInf(semantics)) : nan;
    isUnsignedZero = nan == 0x80;
  }
};

/// Operations on scalars or vectors of one length.
struct Bits {
  OpBuilder &builder;
  Location loc;
  Type like; // scalar or vector

  Type of(Type element) const {
    auto vector = dyn_cast<VectorType>(like);
    return vector ? Type(vector.clone(element)) : element;
  }
  Type integer(unsigned width) const { return of(builder.getIntegerType(width)); }

  template <typename OpT, typename... Args> Value make(Args &&...args) const {
    return OpT::create(builder, loc, std::forward<Args>(args)...);
  }
  Value number(Type type, int64_t value) const {
    TypedAttr attr = builder.getIntegerAttr(getElementTypeOrSelf(type), value);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, static_cast<Attribute>(attr));
    return make<arith::ConstantOp>(attr);
  }
  /// Applies OpT to x and a number.
  template <typename OpT> Value with(Value x, int64_t value) const {
    return make<OpT>(x, number(x.getType(), value));
  }
  Value is(arith::CmpIPredicate predicate, Value x, int64_t value) const {
    return make<arith::CmpIOp>(predicate, x, number(x.getType(), value));
  }
  Value select(Value condition, Value x, Value y) const {
    return make<arith::SelectOp>(condition, x, y);
  }
  Value cast(Type type, Value x) const { return make<arith::BitcastOp>(type, x); }
};

} // namespace

Type gridloom::loom::getKernelType(Type element) {
  if (isFloat8(element))
    return IntegerType::get(element.getContext(), 8);
  auto integer = dyn_cast<IntegerType>(element);
  return integer ? IntegerType::get(integer.getContext(), integer.getWidth()) : element;
}

gridloom::dist::FactorKind gridloom::loom::getLookupKind(Type element) {
  return isFloat8(element) ? dist::FactorKind::NeedReplication : dist::FactorKind::Reduction;
}

Value gridloom::loom::decodeFloat8(OpBuilder &builder, Location loc, FloatType type, Value codes) {
  using P = arith::CmpIPredicate;
  Bits b{builder, loc, codes.getType()};
  Layout narrow(type), wide(builder.getF32Type());
  Codes special(type);
  unsigned shift = wide.digits - narrow.digits;
  Type i32 = b.integer(32), f32 = b.of(builder.getF32Type());
  Value code = b.make<arith::ExtUIOp>(i32, codes);
  Value magnitude = b.with<arith::AndIOp>(code, 0x7f);
  // Adjusts the exponent's bias; exponent 0 counts as 1 and has no leading digit.
  Value normal = b.with<arith::AddIOp>(b.with<arith::ShLIOp>(magnitude, shift),
                                       wide.power(0) - (narrow.bias << wide.digits));
  int64_t smallest = wide.power(1 - narrow.bias);
  Value raised = b.cast(f32, b.with<arith::AddIOp>(normal, int64_t(1) << wide.digits));
  Value tiny = b.make<arith::SubFOp>(raised, b.cast(f32, b.number(i32, smallest)));
  Value isTiny = b.is(P::ult, magnitude, int64_t(1) << narrow.digits);
  Value bits = b.select(isTiny, b.cast(i32, tiny), normal);
  Value sign = b.with<arith::ShLIOp>(b.with<arith::AndIOp>(code, 0x80), 24);

  constexpr int64_t kInfinity = 0x7f800000, kNan = 0x7fc00000;
  Value nan = b.number(i32, kNan);
  if (special.isUnsignedZero)
    return b.cast(f32, b.select(b.is(P::eq, code, 0x80), nan, b.make<arith::OrIOp>(bits, sign)));
  if (special.overflow != special.nan)
    bits = b.select(b.is(P::eq, magnitude, special.overflow), b.number(i32, kInfinity), bits);
  int64_t last = std::max(special.most, special.overflow == special.nan ? 0 : special.overflow);
  bits = b.select(b.is(P::ugt, magnitude, last), nan, bits);
  return b.cast(f32, b.make<arith::OrIOp>(bits, sign));
}

Value gridloom::loom::encodeFloat8(OpBuilder &builder, Location loc, FloatType type, Value x,
                                   bool saturate) {
  using P = arith::CmpIPredicate;
  Bits b{builder, loc, x.getType()};
  Layout narrow(type), wide(cast<FloatType>(getElementTypeOrSelf(x.getType())));
  Codes special(type);
  unsigned shift = wide.digits - narrow.digits;
  Type integer = b.integer(wide.width);
  Value bits = b.cast(integer, x);
  Value magnitude =
      b.with<arith::AndIOp>(bits, static_cast<int64_t>(~uint64_t(0) >> (65 - wide.width)));
  Value sign = b.with<arith::AndIOp>(b.with<arith::ShRUIOp>(bits, wide.width - 8), 0x80);

  // Rounds to nearest even: adds half of the last place, minus one if the digit before it is even.
  Value odd = b.with<arith::AndIOp>(b.with<arith::ShRUIOp>(magnitude, shift), 1);
  Value up = b.with<arith::AddIOp>(b.make<arith::AddIOp>(magnitude, odd),
                                   (int64_t(1) << (shift - 1)) - 1 -
                                       ((wide.bias - narrow.bias) << wide.digits));
  Value normal = b.with<arith::ShRUIOp>(up, shift);
  // Subnormal: adding a number whose last place is the smallest 8-bit float's rounds there.
  int64_t step = wide.power(1 - narrow.bias - narrow.digits + wide.digits);
  Value sum = b.make<arith::AddFOp>(b.cast(x.getType(), magnitude),
                                    b.cast(x.getType(), b.number(integer, step)));
  Value tiny = b.with<arith::SubIOp>(b.cast(integer, sum), step);
  Value isTiny = b.is(P::ult, magnitude, wide.power(1 - narrow.bias));
  Value code = b.select(isTiny, tiny, normal);

  Value isMore = b.is(P::ugt, code, special.most);
  code = b.select(isMore, b.number(integer, saturate ? special.most : special.overflow), code);
  Value isNan = b.is(P::ugt, magnitude, wide.power(wide.bias + 1));
  code = b.select(isNan, b.number(integer, special.nan), code);
  Value isSigned = b.make<arith::OrIOp>(code, sign);
  if (special.isUnsignedZero)
    isSigned = b.select(b.is(P::eq, code, 0), code, isSigned);
  return b.make<arith::TruncIOp>(b.integer(8), isSigned);
}
