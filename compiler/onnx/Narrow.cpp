//===- Narrow.cpp - numbers of fewer than 8 bits --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Narrow.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

Type onnx_import::getNarrowType(MLIRContext *context, int64_t onnxType) {
  switch (onnxType) {
  case onnx::TensorProto::INT4:
    return IntegerType::get(context, 4);
  case onnx::TensorProto::UINT4:
    return IntegerType::get(context, 4, IntegerType::Unsigned);
  case onnx::TensorProto::INT2:
    return IntegerType::get(context, 2);
  case onnx::TensorProto::UINT2:
    return IntegerType::get(context, 2, IntegerType::Unsigned);
  case onnx::TensorProto::FLOAT4E2M1:
    return Float4E2M1FNType::get(context);
  default:
    return {};
  }
}

bool onnx_import::isNarrow(Type type) {
  return type.isInteger(2) || type.isInteger(4) || isa<Float4E2M1FNType>(type);
}

Type onnx_import::getCarrier(Type type) {
  if (!isNarrow(type))
    return type;
  if (auto integer = dyn_cast<IntegerType>(type))
    return IntegerType::get(type.getContext(), 8, integer.getSignedness());
  return Float8E4M3FNType::get(type.getContext());
}

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

/// The lowest bits of i32 numbers as an integer type, in its carrier.
static Value wrap(Emitter &emitter, Value x, IntegerType type) {
  unsigned bits = type.getWidth();
  Value low = emitter.binary<loom::AndOp>(x, static_cast<double>((1 << bits) - 1));
  if (!type.isUnsigned()) {
    double sign = 1 << (bits - 1);
    low = emitter.binary<loom::SubtractOp>(emitter.binary<loom::XorOp>(low, sign), sign);
  }
  return emitter.convert(low, getCarrier(type));
}

/// The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, with x's sign. A NaN becomes a zero, as there is
/// none.
static Value roundToFloat4(Emitter &emitter, Value x) {
  Type f32 = Float32Type::get(emitter.getContext());
  x = emitter.convert(x, f32);
  Value size = emitter.binary<loom::MinimumOp>(emitter.unary<loom::AbsOp>(x), 6.0);
  auto rounded = [&](double step) {
    Value steps =
        emitter.unary<loom::RoundNearestEvenOp>(emitter.binary<loom::DivideOp>(size, step));
    return emitter.binary<loom::MultiplyOp>(steps, step);
  };
  auto below = [&](double bound) { return emitter.compare(loom::Direction::LT, size, bound); };
  Value result =
      emitter.select(below(2), rounded(0.5), emitter.select(below(4), rounded(1), rounded(2)));
  Value isNaN = emitter.compare(loom::Direction::NE, x, x);
  result = emitter.select(isNaN, emitter.splatLike(result, 0), result);
  Value isNegative = emitter.compare(loom::Direction::LT, x, 0.0);
  return emitter.select(isNegative, emitter.unary<loom::NegateOp>(result), result);
}

Value onnx_import::convertToNarrow(Emitter &emitter, Value x, Type type) {
  if (!x)
    return x;
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return emitter.convert(roundToFloat4(emitter, x), getCarrier(type));
  if (loom::isFloat8(getTensorType(x).getElementType()))
    x = emitter.convert(x, Float32Type::get(emitter.getContext()));
  return wrap(emitter, emitter.convert(x, IntegerType::get(emitter.getContext(), 32)), integer);
}

//===----------------------------------------------------------------------===//
// Packed tensors
//===----------------------------------------------------------------------===//

Value onnx_import::unpackBits(Emitter &emitter, Value bytes, int64_t bits) {
  bytes = emitter.convert(bytes, IntegerType::get(emitter.getContext(), 32));
  if (!bytes || bits == 8)
    return bytes;
  SmallVector<int64_t> single(getShape(bytes)), whole(getShape(bytes));
  single.push_back(1);
  whole.back() *= 8 / bits;
  bytes = emitter.reshape(bytes, single);
  SmallVector<Value> parts;
  for (int64_t shift = 0; shift < 8; shift += bits) {
    Value shifted =
        shift ? emitter.binary<loom::DivideOp>(bytes, static_cast<double>(1 << shift)) : bytes;
    parts.push_back(emitter.binary<loom::AndOp>(shifted, static_cast<double>((1 << bits) - 1)));
  }
  return emitter.reshape(emitter.concatenate(parts, single.size() - 1), whole);
}

/// The numbers that four bits stand for: a sign, two of exponent, one of mantissa.
static Value decodeFloat4(Emitter &emitter, Value codes) {
  Type f32 = Float32Type::get(emitter.getContext());
  Value size = emitter.convert(emitter.binary<loom::AndOp>(codes, 7.0), f32);
  auto below = [&](double bound) { return emitter.compare(loom::Direction::LT, size, bound); };
  // 0 to 3 are halves, 4 and 5 are 2 and 3, 6 and 7 are 4 and 6.
  Value result =
      emitter.select(below(4), emitter.binary<loom::MultiplyOp>(size, 0.5),
                     emitter.select(below(6), emitter.binary<loom::SubtractOp>(size, 2.0),
                                    emitter.binary<loom::SubtractOp>(
                                        emitter.binary<loom::MultiplyOp>(size, 2.0), 8.0)));
  Value isNegative = emitter.compare(loom::Direction::GE, codes, 8.0);
  return emitter.select(isNegative, emitter.unary<loom::NegateOp>(result), result);
}

Value onnx_import::unpack(Emitter &emitter, Value bytes, const rt::PackedNumbers &packed) {
  Type type = getNarrowType(emitter.getContext(), packed.onnxType);
  Value numbers = unpackBits(emitter, bytes, packed.bits);
  if (!numbers)
    return numbers;
  if (getShape(numbers) != ArrayRef<int64_t>(packed.shape)) {
    // The last byte may have room for more numbers than there are.
    int64_t count = loom::countElements(packed.shape);
    numbers = emitter.reshape(emitter.slice(numbers, 0, 0, count), packed.shape);
  }
  if (auto integer = dyn_cast<IntegerType>(type))
    return wrap(emitter, numbers, integer);
  return emitter.convert(decodeFloat4(emitter, numbers), getCarrier(type));
}
