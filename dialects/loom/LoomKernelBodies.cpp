//===- LoomKernelBodies.cpp - scalar functions of elementwise ops ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// KernelBodyInterface::emitScalar of every elementwise operation: arith and math operations on
// scalars or vectors. Floats of 16 bits are computed in f32 and rounded after each operation.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Float8.h"
#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <limits>

using namespace mlir;
using namespace gridloom::loom;

namespace {

/// `type` with another element type.
Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(element);
  return element;
}

bool isUnsigned(Type element) { return element.isInteger(1) || element.isUnsignedInteger(); }
bool isUnsigned(Value tensor) { return isUnsigned(getElementTypeOrSelf(tensor.getType())); }

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }
bool isBool(Value value) { return getElementTypeOrSelf(value.getType()).isInteger(1); }

/// The operations on values of one type, scalar or vector.
struct Emitter {
  OpBuilder &builder;
  Location loc;

  Value constant(Type type, double value) {
    auto floating = dyn_cast<FloatType>(getElementTypeOrSelf(type));
    return floating ? constant(type, TypedAttr(builder.getFloatAttr(floating, value)))
                    : integer(type, static_cast<int64_t>(value));
  }
  /// Of integers that f64 may not hold.
  Value integer(Type type, int64_t value) {
    return constant(type, TypedAttr(builder.getIntegerAttr(getElementTypeOrSelf(type), value)));
  }
  Value constant(Type type, TypedAttr attr) {
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, static_cast<Attribute>(attr));
    return arith::ConstantOp::create(builder, loc, attr);
  }
  template <typename OpT, typename... Args> Value make(Args &&...args) {
    return OpT::create(builder, loc, std::forward<Args>(args)...);
  }

  /// f16 and bf16 become f32, other values stay.
  Value widen(Value value) {
    Type element = getElementTypeOrSelf(value.getType());
    if (!isa<FloatType>(element) || element.getIntOrFloatBitWidth() >= 32)
      return value;
    return make<arith::ExtFOp>(withElement(value.getType(), builder.getF32Type()), value);
  }
  Value narrow(Value value, Type type) {
    return value.getType() == type ? value : make<arith::TruncFOp>(type, value);
  }

  /// Applies `body` to the operands in at least f32 and rounds back to their type.
  Value inWide(ValueRange operands, function_ref<Value(ArrayRef<Value>)> body) {
    SmallVector<Value> wide =
        llvm::map_to_vector(operands, [&](Value operand) { return widen(operand); });
    Value result = body(wide);
    return isFloat(result) ? narrow(result, operands[0].getType()) : result;
  }
  template <typename OpT> Value unary(ValueRange operands) {
    return inWide(operands, [&](ArrayRef<Value> v) { return make<OpT>(v[0]); });
  }
  template <typename FloatOp, typename IntOp, typename UnsignedOp = IntOp>
  Value binary(ValueRange operands, bool isUnsigned = false) {
    return inWide(operands, [&](ArrayRef<Value> v) {
      if (isFloat(v[0]))
        return make<FloatOp>(v[0], v[1]);
      return isUnsigned ? make<UnsignedOp>(v[0], v[1]) : make<IntOp>(v[0], v[1]);
    });
  }

  /// Integer division that cannot trap: x / 0 is x, and the smallest value / -1 wraps around.
  Value divideIntegers(Value lhs, Value rhs, bool isUnsigned) {
    Value zero = constant(rhs.getType(), 0), one = constant(rhs.getType(), 1);
    if (isUnsigned) {
      Value isZero = make<arith::CmpIOp>(arith::CmpIPredicate::eq, rhs, zero);
      return make<arith::DivUIOp>(lhs, make<arith::SelectOp>(isZero, one, rhs));
    }
    Value minus = make<arith::CmpIOp>(arith::CmpIPredicate::eq, rhs, constant(rhs.getType(), -1));
    Value unsafe =
        make<arith::OrIOp>(minus, make<arith::CmpIOp>(arith::CmpIPredicate::eq, rhs, zero));
    Value quotient = make<arith::DivSIOp>(lhs, make<arith::SelectOp>(unsafe, one, rhs));
    return make<arith::SelectOp>(minus, make<arith::SubIOp>(zero, lhs), quotient);
  }

  /// The power of `base` for constant exponents that need no logarithm; null for others.
  Value powerOfConstant(Value base, Value exponent) {
    Attribute attr;
    if (!matchPattern(exponent, m_Constant(&attr)))
      return {};
    if (auto splat = dyn_cast<SplatElementsAttr>(attr))
      attr = splat.getSplatValue<Attribute>();
    auto number = dyn_cast<FloatAttr>(attr);
    if (!number)
      return {};
    double value = number.getValueAsDouble();
    auto reciprocal = [&](Value x) { return make<arith::DivFOp>(constant(x.getType(), 1.0), x); };
    if (value == 1.0)
      return base;
    if (value == -1.0)
      return reciprocal(base);
    if (value == 0.5 || value == -0.5) {
      // Unlike roots, powers of -0 and -inf are those of 0 and inf.
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      Value root = make<math::SqrtOp>(make<arith::AddFOp>(base, constant(base.getType(), 0.0)));
      Value isLeast = make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, base,
                                          constant(base.getType(), -kInfinity));
      root = make<arith::SelectOp>(isLeast, constant(base.getType(), kInfinity), root);
      return value == 0.5 ? root : reciprocal(root);
    }
    if (value == 2.0)
      return make<arith::MulFOp>(base, base);
    if (value == 3.0)
      return make<arith::MulFOp>(make<arith::MulFOp>(base, base), base);
    return {};
  }

  /// math.ipowi divides by a base of 0 if the exponent is negative, and has no unsigned exponents.
  Value integerPower(Value base, Value exponent, bool isUnsigned) {
    Type type = exponent.getType();
    Value zero = constant(type, 0);
    if (!isUnsigned) {
      Value isInverse = make<arith::CmpIOp>(arith::CmpIPredicate::slt, exponent, zero);
      Value isZero = make<arith::CmpIOp>(arith::CmpIPredicate::eq, base, zero);
      Value divides = make<arith::AndIOp>(isInverse, isZero);
      return make<math::IPowIOp>(make<arith::SelectOp>(divides, constant(type, 2), base), exponent);
    }
    // With w bits, odd numbers to the 2^(w-2) are 1, and even ones to such exponents are 0.
    unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    int64_t period = int64_t(1) << (width - 2);
    Value small = make<arith::OrIOp>(make<arith::AndIOp>(exponent, integer(type, period - 1)),
                                     integer(type, period));
    Value isLarge = make<arith::CmpIOp>(arith::CmpIPredicate::uge, exponent, integer(type, period));
    return make<math::IPowIOp>(base, make<arith::SelectOp>(isLarge, small, exponent));
  }

  Value gelu(Value x, GeluForm form) {
    Value one = constant(x.getType(), 1.0), argument, inner;
    if (form == GeluForm::Erf) {
      argument = make<arith::MulFOp>(x, constant(x.getType(), 0.70710678118654752440));
      inner = make<math::ErfOp>(argument);
    } else {
      // sqrt(2 / pi) * (x + 0.044715 x^3)
      Value square = make<arith::MulFOp>(x, x);
      Value poly = make<math::FmaOp>(square, constant(x.getType(), 0.035677408136300125),
                                     constant(x.getType(), 0.79788456080286536));
      inner = make<math::TanhOp>(make<arith::MulFOp>(x, poly));
    }
    Value half = make<arith::MulFOp>(x, constant(x.getType(), 0.5));
    return make<arith::MulFOp>(half, make<arith::AddFOp>(inner, one));
  }

  /// The logarithm, of denormal numbers too: the approximations of f32 take these for the least
  /// normal number.
  Value logarithm(Value x) {
    if (!getElementTypeOrSelf(x.getType()).isF32())
      return make<math::LogOp>(x);
    Value isDenormal =
        make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, constant(x.getType(), 0x1p-126));
    Value scaled = make<arith::MulFOp>(x, constant(x.getType(), 0x1p23));
    Value log = make<math::LogOp>(make<arith::SelectOp>(isDenormal, scaled, x));
    Value shift = make<arith::SelectOp>(isDenormal, constant(x.getType(), 15.942385152878742),
                                        constant(x.getType(), 0));
    return make<arith::SubFOp>(log, shift);
  }

  /// The f32 angle less its whole turns: the polynomials are good for a few turns only. Turns are
  /// counted in f64; for angles of 10^23 and more these lack the digits, and the result is NaN.
  Value reduceAngle(Value x) {
    if (!getElementTypeOrSelf(x.getType()).isF32())
      return x;
    Type f64 = withElement(x.getType(), builder.getF64Type());
    Value wide = make<arith::ExtFOp>(f64, x);
    Value rest = wide;
    // Once more for what the first count of turns is wrong by.
    for (int i = 0; i < 2; ++i) {
      Value turns =
          make<math::RoundEvenOp>(make<arith::MulFOp>(rest, constant(f64, 0.15915494309189533577)));
      // 2 pi in two parts.
      rest = make<math::FmaOp>(turns, constant(f64, -6.28318530717958647692), rest);
      rest = make<math::FmaOp>(turns, constant(f64, -2.4492935982947064e-16), rest);
    }
    Value isSmall = make<arith::CmpFOp>(arith::CmpFPredicate::OLT, make<math::AbsFOp>(wide),
                                        constant(f64, 1e23));
    rest = make<arith::SelectOp>(isSmall, rest,
                                 constant(f64, std::numeric_limits<double>::quiet_NaN()));
    return make<arith::TruncFOp>(x.getType(), rest);
  }

  /// Narrow and unsigned integers wrap as they do in the reference: by way of a wider signed one.
  /// Only signed conversions are used: on what does not fit (NaN, infinities) these give the same
  /// bits on all levels of x86-64, and conversions to unsigned integers do not.
  Value truncateToInteger(Value value, Type to, bool isUnsigned) {
    unsigned bits = getElementTypeOrSelf(to).getIntOrFloatBitWidth();
    unsigned wideBits = bits < 32 ? 32 : isUnsigned ? 64 : bits;
    Type wide = withElement(to, builder.getIntegerType(wideBits));
    Value result = make<arith::FPToSIOp>(wide, value);
    if (bits < wideBits)
      return make<arith::TruncIOp>(to, result);
    if (!isUnsigned)
      return result;
    // The upper half of the range of u64, from 2^63 on.
    Value begin = constant(value.getType(), 0x1p63);
    Value isUpper = make<arith::CmpFOp>(arith::CmpFPredicate::OGE, value, begin);
    Value upper = make<arith::FPToSIOp>(wide, make<arith::SubFOp>(value, begin));
    upper = make<arith::XOrIOp>(upper, constant(wide, -0x1p63));
    return make<arith::SelectOp>(isUpper, upper, result);
  }

  Value convert(Value value, Type to, bool fromUnsigned, bool toUnsigned) {
    Type from = getElementTypeOrSelf(value.getType()), element = getElementTypeOrSelf(to);
    if (from == element)
      return value;
    bool fromFloat = isa<FloatType>(from), toFloat = isa<FloatType>(element);
    if (element.isInteger(1)) {
      value = widen(value);
      Value zero = constant(value.getType(), 0);
      return fromFloat ? make<arith::CmpFOp>(arith::CmpFPredicate::UNE, value, zero)
                       : make<arith::CmpIOp>(arith::CmpIPredicate::ne, value, zero);
    }
    unsigned fromBits = from.getIntOrFloatBitWidth(), toBits = element.getIntOrFloatBitWidth();
    if (fromFloat && toFloat) {
      if (fromBits < 32 || toBits < 32) {
        // No processor converts between f16, bf16 and f64 directly: f32 lies between them.
        Type f32 = withElement(to, builder.getF32Type());
        Value wide = fromBits == 64 ? make<arith::TruncFOp>(f32, value) : widen(value);
        if (toBits == 64)
          return make<arith::ExtFOp>(to, wide);
        return narrow(wide, to);
      }
      return fromBits < toBits ? make<arith::ExtFOp>(to, value) : make<arith::TruncFOp>(to, value);
    }
    if (fromFloat)
      return truncateToInteger(widen(value), to, toUnsigned);
    if (toFloat) {
      Type wide = toBits < 32 ? withElement(to, builder.getF32Type()) : to;
      Value result =
          fromUnsigned ? make<arith::UIToFPOp>(wide, value) : make<arith::SIToFPOp>(wide, value);
      return narrow(result, to);
    }
    if (fromBits > toBits)
      return make<arith::TruncIOp>(to, value);
    return fromUnsigned ? make<arith::ExtUIOp>(to, value) : make<arith::ExtSIOp>(to, value);
  }
};

arith::CmpFPredicate floatPredicate(Direction direction) {
  switch (direction) {
  case Direction::EQ:
    return arith::CmpFPredicate::OEQ;
  case Direction::NE:
    return arith::CmpFPredicate::UNE;
  case Direction::LT:
    return arith::CmpFPredicate::OLT;
  case Direction::LE:
    return arith::CmpFPredicate::OLE;
  case Direction::GT:
    return arith::CmpFPredicate::OGT;
  case Direction::GE:
    return arith::CmpFPredicate::OGE;
  }
  llvm_unreachable("all directions are covered");
}

/// Booleans compare unsigned too: false < true.
arith::CmpIPredicate integerPredicate(Direction direction, bool isUnsigned) {
  using P = arith::CmpIPredicate;
  switch (direction) {
  case Direction::EQ:
    return P::eq;
  case Direction::NE:
    return P::ne;
  case Direction::LT:
    return isUnsigned ? P::ult : P::slt;
  case Direction::LE:
    return isUnsigned ? P::ule : P::sle;
  case Direction::GT:
    return isUnsigned ? P::ugt : P::sgt;
  case Direction::GE:
    return isUnsigned ? P::uge : P::sge;
  }
  llvm_unreachable("all directions are covered");
}

} // namespace

//===----------------------------------------------------------------------===//
// One operand
//===----------------------------------------------------------------------===//

Value NegateOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    if (isFloat(v[0]))
      return e.make<arith::NegFOp>(v[0]);
    return e.make<arith::SubIOp>(e.constant(v[0].getType(), 0), v[0]);
  });
}

Value AbsOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  if (isUnsigned(getInput()))
    return operands[0];
  return isFloat(operands[0]) ? e.unary<math::AbsFOp>(operands) : e.unary<math::AbsIOp>(operands);
}

Value ExpOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.unary<math::ExpOp>(operands);
}

Value LogOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) { return e.logarithm(v[0]); });
}

Value SqrtOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.unary<math::SqrtOp>(operands);
}

Value RsqrtOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.unary<math::RsqrtOp>(operands);
}

Value TanhOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.unary<math::TanhOp>(operands);
}

Value ErfOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.unary<math::ErfOp>(operands);
}

Value FloorOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  if (!isFloat(operands[0]))
    return operands[0];
  return Emitter{builder, loc}.unary<math::FloorOp>(operands);
}

Value CeilOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  if (!isFloat(operands[0]))
    return operands[0];
  return Emitter{builder, loc}.unary<math::CeilOp>(operands);
}

Value LogisticOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    Value one = e.constant(v[0].getType(), 1.0);
    Value exponential = e.make<math::ExpOp>(e.make<arith::NegFOp>(v[0]));
    return e.make<arith::DivFOp>(one, e.make<arith::AddFOp>(one, exponential));
  });
}

Value SignOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    Value x = v[0], zero = e.constant(x.getType(), 0);
    auto above = [&](Value a, Value b) {
      if (isFloat(a))
        return e.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, a, b);
      return e.make<arith::CmpIOp>(
          isUnsigned(getInput()) ? arith::CmpIPredicate::ugt : arith::CmpIPredicate::sgt, a, b);
    };
    Value negative = e.make<arith::SelectOp>(above(zero, x), e.constant(x.getType(), -1), x);
    return e.make<arith::SelectOp>(above(x, zero), e.constant(x.getType(), 1), negative);
  });
}

Value NotOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  Value ones = e.constant(operands[0].getType(), isBool(operands[0]) ? 1 : -1);
  return e.make<arith::XOrIOp>(operands[0], ones);
}

Value SineOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    // Of the absolute angle: approximations take small negative ones for 2 pi less a little, which
    // has few of their digits.
    Value angle = e.reduceAngle(v[0]);
    Value sign = e.make<math::CopySignOp>(e.constant(angle.getType(), 1), angle);
    return e.make<arith::MulFOp>(sign, e.make<math::SinOp>(e.make<math::AbsFOp>(angle)));
  });
}

Value CosineOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands,
                  [&](ArrayRef<Value> v) { return e.make<math::CosOp>(e.reduceAngle(v[0])); });
}

#define UNARY_BODY(OP, MATH)                                                                       \
  Value OP::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {                    \
    return Emitter{builder, loc}.unary<MATH>(operands);                                            \
  }
UNARY_BODY(TanOp, math::TanOp)
UNARY_BODY(AsinOp, math::AsinOp)
UNARY_BODY(AcosOp, math::AcosOp)
UNARY_BODY(AtanOp, math::AtanOp)
UNARY_BODY(SinhOp, math::SinhOp)
UNARY_BODY(CoshOp, math::CoshOp)
UNARY_BODY(AsinhOp, math::AsinhOp)
UNARY_BODY(AcoshOp, math::AcoshOp)
UNARY_BODY(AtanhOp, math::AtanhOp)
#undef UNARY_BODY

Value RoundNearestEvenOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  if (!isFloat(operands[0]))
    return operands[0];
  return Emitter{builder, loc}.unary<math::RoundEvenOp>(operands);
}

Value BitcastConvertOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Type to =
      withElement(operands[0].getType(), getKernelType(getOutput().getType().getElementType()));
  return to == operands[0].getType() ? operands[0]
                                     : arith::BitcastOp::create(builder, loc, to, operands[0]);
}

Value GeluOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) { return e.gelu(v[0], getForm()); });
}

Value ConvertOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Type from = getInput().getType().getElementType(), to = getOutput().getType().getElementType();
  Value value = operands[0];
  Emitter e{builder, loc};
  Type f32 = withElement(value.getType(), builder.getF32Type());
  if (from == to)
    return value;
  if (isFloat8(from))
    value = decodeFloat8(builder, loc, cast<FloatType>(from), value);
  if (!isFloat8(to))
    return e.convert(value, withElement(value.getType(), getKernelType(to)), isUnsigned(from),
                     isUnsigned(to));
  // An f64 is converted directly, so that it is rounded once.
  if (!getElementTypeOrSelf(value.getType()).isF64())
    value = e.convert(value, f32, isUnsigned(from), /*toUnsigned=*/false);
  return encodeFloat8(builder, loc, cast<FloatType>(to), value, !getUnsaturated());
}

//===----------------------------------------------------------------------===//
// Two and three operands
//===----------------------------------------------------------------------===//

Value AddOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.binary<arith::AddFOp, arith::AddIOp>(operands);
}

Value SubtractOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.binary<arith::SubFOp, arith::SubIOp>(operands);
}

Value MultiplyOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return Emitter{builder, loc}.binary<arith::MulFOp, arith::MulIOp>(operands);
}

Value DivideOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    return isFloat(v[0]) ? e.make<arith::DivFOp>(v[0], v[1])
                         : e.divideIntegers(v[0], v[1], isUnsigned(getLhs()));
  });
}

Value MaximumOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  if (isBool(operands[0]))
    return arith::OrIOp::create(builder, loc, operands[0], operands[1]);
  return Emitter{builder, loc}.binary<arith::MaximumFOp, arith::MaxSIOp, arith::MaxUIOp>(
      operands, isUnsigned(getLhs()));
}

Value MinimumOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  if (isBool(operands[0]))
    return arith::AndIOp::create(builder, loc, operands[0], operands[1]);
  return Emitter{builder, loc}.binary<arith::MinimumFOp, arith::MinSIOp, arith::MinUIOp>(
      operands, isUnsigned(getLhs()));
}

Value PowerOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  if (!isFloat(operands[0]))
    return e.integerPower(operands[0], operands[1], isUnsigned(getLhs()));
  Value exponent = operands[1];
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    if (Value simple = e.powerOfConstant(v[0], exponent))
      return simple;
    return e.make<math::PowFOp>(v[0], v[1]);
  });
}

Value AndOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return arith::AndIOp::create(builder, loc, operands[0], operands[1]);
}

Value OrOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return arith::OrIOp::create(builder, loc, operands[0], operands[1]);
}

Value XorOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return arith::XOrIOp::create(builder, loc, operands[0], operands[1]);
}

Value RemainderOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  return e.inWide(operands, [&](ArrayRef<Value> v) {
    if (isFloat(v[0]))
      return e.make<arith::RemFOp>(v[0], v[1]);
    // x % 0 is x.
    Value quotient = e.divideIntegers(v[0], v[1], isUnsigned(getLhs()));
    return e.make<arith::SubIOp>(v[0], e.make<arith::MulIOp>(quotient, v[1]));
  });
}

/// Shifts by the width or more, which arith leaves undefined, give 0.
template <typename ShiftT>
static Value emitShift(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  Type type = operands[0].getType();
  Value width = e.constant(type, getElementTypeOrSelf(type).getIntOrFloatBitWidth());
  Value zero = e.constant(type, 0);
  Value below = e.make<arith::CmpIOp>(arith::CmpIPredicate::ult, operands[1], width);
  Value amount = e.make<arith::SelectOp>(below, operands[1], zero);
  return e.make<arith::SelectOp>(below, e.make<ShiftT>(operands[0], amount), zero);
}

Value ShiftLeftOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return emitShift<arith::ShLIOp>(builder, loc, operands);
}

Value ShiftRightLogicalOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  return emitShift<arith::ShRUIOp>(builder, loc, operands);
}

Value CompareOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  Value lhs = e.widen(operands[0]), rhs = e.widen(operands[1]);
  if (isFloat(lhs))
    return e.make<arith::CmpFOp>(floatPredicate(getDirection()), lhs, rhs);
  return e.make<arith::CmpIOp>(integerPredicate(getDirection(), isUnsigned(getLhs())), lhs, rhs);
}

Value SelectOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Emitter e{builder, loc};
  Type type = operands[1].getType();
  if (!getElementTypeOrSelf(type).isBF16())
    return e.make<arith::SelectOp>(operands[0], operands[1], operands[2]);
  // x86 has no bf16: LLVM would convert to f32 and call a function to convert back.
  Type bits = withElement(type, builder.getI16Type());
  Value chosen = e.make<arith::SelectOp>(operands[0], e.make<arith::BitcastOp>(bits, operands[1]),
                                         e.make<arith::BitcastOp>(bits, operands[2]));
  return e.make<arith::BitcastOp>(type, chosen);
}
