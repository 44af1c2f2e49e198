//===- Elementwise.cpp - arithmetic, comparison and logic ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Narrow.h"
#include "compiler/onnx/OpTable.h"
#include "dialects/loom/Derivatives.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

template <typename OpT> static LogicalResult importUnary(Node &node) {
  return node.setResult(node.unary<OpT>(node.operand(0)));
}

template <typename OpT> static LogicalResult importBinary(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  return node.setResult(node.binary<OpT>(x, y));
}

template <loom::Direction direction> static LogicalResult importCompare(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  return node.setResult(node.compare(direction, x, y));
}

/// Combines all operands by OpT.
template <typename OpT> static FailureOr<Value> joinAll(Node &node) {
  Value result = node.operand(0);
  for (unsigned i = 1; i < node.getNumOperands(); ++i) {
    Value next = node.operand(i);
    if (failed(node.checkSameElementType(result, next)))
      return failure();
    result = node.binary<OpT>(result, next);
  }
  return result;
}

template <typename OpT> static LogicalResult importVariadic(Node &node) {
  FailureOr<Value> result = joinAll<OpT>(node);
  return failed(result) ? failure() : node.setResult(*result);
}

static LogicalResult importMean(Node &node) {
  FailureOr<Value> sum = joinAll<loom::AddOp>(node);
  if (failed(sum))
    return failure();
  return node.setResult(
      node.binary<loom::DivideOp>(*sum, static_cast<double>(node.getNumOperands())));
}

static LogicalResult importReciprocal(Node &node) {
  Value x = node.operand(0);
  return node.setResult(node.binary<loom::DivideOp>(node.splatLike(x, 1), x));
}

/// True if numbers of `type` hold all exponents, as far as is known.
static bool holdsExponents(Node &node, Type type) {
  std::optional<loom::HostTensor> known = node.constantOperand(1);
  loom::ElementKind kind = *loom::getElementKind(type);
  if (known) {
    std::vector<double> exponents = known->toDoubles();
    auto held = loom::isFloatKind(known->getKind())
                    ? loom::HostTensor::fromDoubles(kind, known->getShape(), exponents)
                    : loom::HostTensor::fromInts(kind, known->getShape(), known->toInts());
    return held.toDoubles() == exponents;
  }
  auto exponent = dyn_cast<IntegerType>(getTensorType(node.operand(1)).getElementType());
  if (auto floats = dyn_cast<FloatType>(type))
    return exponent ? exponent.getWidth() <= floats.getFPMantissaWidth() : floats.getWidth() >= 32;
  return exponent.getWidth() + exponent.isUnsignedInteger() <= type.getIntOrFloatBitWidth();
}

/// The type to raise to a power in: powers of integers by floats take f64, since f32 does not hold
/// all integers of 32 bits, and exponents that the base's type would round take the next that holds
/// them, since -1 to an odd power is -1.
static Type getPowerType(Node &node, Type base, Type exponent) {
  MLIRContext *context = node.getContext();
  if (base == exponent)
    return base;
  if (!isa<FloatType>(base)) {
    if (isa<FloatType>(exponent))
      return Float64Type::get(context);
    return holdsExponents(node, base) ? base : IntegerType::get(context, 64);
  }
  for (Type type : {base, Type(Float32Type::get(context))})
    if (holdsExponents(node, type))
      return type;
  return Float64Type::get(context);
}

/// The result has the base's type, whatever the exponent's.
static LogicalResult importPow(Node &node) {
  Value base = node.operand(0), exponent = node.operand(1);
  if (!base || !exponent)
    return failure();
  Type baseType = getTensorType(base).getElementType();
  Type type = getPowerType(node, baseType, getTensorType(exponent).getElementType());
  Value power = node.binary<loom::PowerOp>(node.convert(base, type), node.convert(exponent, type));
  return node.setResult(node.convert(power, baseType));
}

/// The remainder has the divisor's sign, as in Python, unless `fmod` asks for the dividend's.
static LogicalResult importMod(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  Value rest = node.binary<loom::RemainderOp>(x, y);
  if (!rest || node.intAttribute("fmod", 0) ||
      getTensorType(x).getElementType().isUnsignedInteger())
    return node.setResult(rest);
  auto isNegative = [&](Value value) { return node.compare(loom::Direction::LT, value, 0.0); };
  Value differs = node.compare(loom::Direction::NE, isNegative(rest), isNegative(y));
  Value adjusts = node.binary<loom::AndOp>(differs, node.compare(loom::Direction::NE, rest, 0.0));
  Value result = node.select(adjusts, node.binary<loom::AddOp>(rest, y), rest);
  if (!isa<FloatType>(getTensorType(x).getElementType()))
    return node.setResult(result);
  // Zeros have the divisor's sign too.
  Value zero = node.select(isNegative(y), node.splatLike(y, -0.0), node.splatLike(y, 0.0));
  return node.setResult(node.select(node.compare(loom::Direction::EQ, rest, 0.0), zero, result));
}

static LogicalResult importBitShift(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  std::string direction = node.stringAttribute("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return node.error() << "direction '" << direction << "' is neither LEFT nor RIGHT";
  if (direction == "LEFT")
    return node.setResult(node.binary<loom::ShiftLeftOp>(x, y));
  if (getTensorType(x).getElementType().isUnsignedInteger())
    return node.setResult(node.binary<loom::ShiftRightLogicalOp>(x, y));
  // The shift is arithmetic: a negative number is shifted as its complement.
  auto complementNegative = [&](Value value) {
    return node.select(node.compare(loom::Direction::LT, x, 0.0), node.unary<loom::NotOp>(value),
                       value);
  };
  return node.setResult(
      complementNegative(node.binary<loom::ShiftRightLogicalOp>(complementNegative(x), y)));
}

static LogicalResult importBitCast(Node &node) {
  Value x = node.operand(0);
  Type type = node.elementType(node.intAttribute("to", 0));
  if (!x || !type)
    return failure();
  RankedTensorType from = getTensorType(x);
  if (from.getElementType() == type)
    return node.setResult(x);
  if (from.getElementType().isInteger(1) || type.isInteger(1)) {
    // A boolean is a byte of 0 or 1.
    Type byte = IntegerType::get(node.getContext(), 8);
    if (from.getElementTypeBitWidth() != (type.isInteger(1) ? 8 : 1) &&
        type.getIntOrFloatBitWidth() != 8)
      return node.error() << "cannot read " << from << " as " << type;
    if (type.isInteger(1))
      return node.setResult(node.convert(
          from.getElementType() == byte ? x
                                        : node.emit<loom::BitcastConvertOp>(from.clone(byte), x),
          type));
    x = node.convert(x, byte);
    return node.setResult(type == byte ? x
                                       : node.emit<loom::BitcastConvertOp>(from.clone(type), x));
  }
  if (from.getElementTypeBitWidth() != type.getIntOrFloatBitWidth())
    return node.error() << "cannot read " << from << " as " << type << "; their widths differ";
  return node.setResult(node.emit<loom::BitcastConvertOp>(from.clone(type), x));
}

static LogicalResult importWhere(Node &node) {
  Value onTrue = node.operand(1), onFalse = node.operand(2);
  if (failed(node.checkSameElementType(onTrue, onFalse)))
    return failure();
  return node.setResult(node.select(node.operand(0), onTrue, onFalse));
}

static LogicalResult castTo(Node &node, Type type) {
  if (isNarrow(type))
    return node.setResult(0, convertToNarrow(node, node.operand(0), type), type);
  bool saturate = node.intAttribute("saturate", 1) != 0;
  return node.setResult(node.convert(node.operand(0), type, saturate));
}

static LogicalResult importCast(Node &node) {
  Type type = node.convertedType(node.intAttribute("to", 0));
  return type ? castTo(node, type) : failure();
}

static LogicalResult importCastLike(Node &node) {
  return node.operand(1) ? castTo(node, node.getElement(1)) : failure();
}

/// Operand 0; an 8-bit float is converted to f32.
static Value comparableOperand(Node &node) {
  Value x = node.operand(0);
  bool isFloat8 = x && loom::isFloat8(getTensorType(x).getElementType());
  return isFloat8 ? node.convert(x, Float32Type::get(node.getContext())) : x;
}

static LogicalResult importIsNaN(Node &node) {
  Value x = comparableOperand(node);
  return node.setResult(node.compare(loom::Direction::NE, x, x));
}

static LogicalResult importIsInf(Node &node) {
  Value x = comparableOperand(node);
  bool positive = node.intAttribute("detect_positive", 1);
  bool negative = node.intAttribute("detect_negative", 1);
  double infinity = std::numeric_limits<double>::infinity();
  if (positive && negative)
    x = node.unary<loom::AbsOp>(x);
  if (!positive && !negative)
    return node.setResult(node.splatLike(node.compare(loom::Direction::NE, x, x), 0));
  return node.setResult(node.compare(loom::Direction::EQ, x, positive ? infinity : -infinity));
}

/// Either bound may be absent. Up to version 10 they are attributes. The derivative at the bounds
/// is 1.
static LogicalResult importClip(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  auto bound = [&](unsigned index, StringRef name) -> Value {
    if (node.hasOperand(index))
      return node.operand(index);
    return node.hasAttribute(name) ? node.splatLike(x, node.floatAttribute(name, 0)) : Value();
  };
  if (Value low = bound(1, "min"))
    x = node.markTies(node.binary<loom::MaximumOp>(x, low), loom::kTiesToLhs);
  if (Value high = bound(2, "max"))
    x = node.markTies(node.binary<loom::MinimumOp>(x, high), loom::kTiesToLhs);
  return node.setResult(x);
}

ArrayRef<OpRule> onnx_import::getElementwiseRules() {
  using loom::Direction;
  static constexpr OpRule rules[] = {
      {"Abs", 6, 28, importUnary<loom::AbsOp>},
      {"Acos", 7, 28, importUnary<loom::AcosOp>},
      {"Acosh", 9, 28, importUnary<loom::AcoshOp>},
      {"Add", 7, 28, importBinary<loom::AddOp>},
      {"And", 7, 28, importBinary<loom::AndOp>},
      {"Asin", 7, 28, importUnary<loom::AsinOp>},
      {"Asinh", 9, 28, importUnary<loom::AsinhOp>},
      {"Atan", 7, 28, importUnary<loom::AtanOp>},
      {"Atanh", 9, 28, importUnary<loom::AtanhOp>},
      {"BitCast", 26, 28, importBitCast},
      {"BitShift", 11, 28, importBitShift},
      {"BitwiseAnd", 18, 28, importBinary<loom::AndOp>},
      {"BitwiseNot", 18, 28, importUnary<loom::NotOp>},
      {"BitwiseOr", 18, 28, importBinary<loom::OrOp>},
      {"BitwiseXor", 18, 28, importBinary<loom::XorOp>},
      {"Cast", 6, 28, importCast},
      {"CastLike", 15, 28, importCastLike},
      {"Ceil", 6, 28, importUnary<loom::CeilOp>},
      {"Clip", 6, 28, importClip},
      {"Cos", 7, 28, importUnary<loom::CosineOp>},
      {"Cosh", 9, 28, importUnary<loom::CoshOp>},
      {"Div", 7, 28, importBinary<loom::DivideOp>},
      {"Equal", 7, 28, importCompare<Direction::EQ>},
      {"Erf", 9, 28, importUnary<loom::ErfOp>},
      {"Exp", 6, 28, importUnary<loom::ExpOp>},
      {"Floor", 6, 28, importUnary<loom::FloorOp>},
      {"Greater", 7, 28, importCompare<Direction::GT>},
      {"GreaterOrEqual", 12, 28, importCompare<Direction::GE>},
      {"IsInf", 10, 28, importIsInf},
      {"IsNaN", 9, 28, importIsNaN},
      {"Less", 7, 28, importCompare<Direction::LT>},
      {"LessOrEqual", 12, 28, importCompare<Direction::LE>},
      {"Log", 6, 28, importUnary<loom::LogOp>},
      {"Max", 6, 28, importVariadic<loom::MaximumOp>},
      {"Mean", 6, 28, importMean},
      {"Min", 6, 28, importVariadic<loom::MinimumOp>},
      {"Mod", 10, 28, importMod},
      {"Mul", 7, 28, importBinary<loom::MultiplyOp>},
      {"Neg", 6, 28, importUnary<loom::NegateOp>},
      {"Not", 1, 28, importUnary<loom::NotOp>},
      {"Or", 7, 28, importBinary<loom::OrOp>},
      {"Pow", 7, 28, importPow},
      {"Reciprocal", 6, 28, importReciprocal},
      {"Round", 11, 28, importUnary<loom::RoundNearestEvenOp>},
      {"Sign", 9, 28, importUnary<loom::SignOp>},
      {"Sin", 7, 28, importUnary<loom::SineOp>},
      {"Sinh", 9, 28, importUnary<loom::SinhOp>},
      {"Sqrt", 6, 28, importUnary<loom::SqrtOp>},
      {"Sub", 7, 28, importBinary<loom::SubtractOp>},
      {"Sum", 6, 28, importVariadic<loom::AddOp>},
      {"Tan", 7, 28, importUnary<loom::TanOp>},
      {"Where", 9, 28, importWhere},
      {"Xor", 7, 28, importCompare<Direction::NE>},
  };
  return rules;
}
