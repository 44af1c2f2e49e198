//===- SortWords.cpp - elements and their places as integers --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/SortWords.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

using P = arith::CmpIPredicate;

IntegerType SortWords::getType() const {
  return IntegerType::get(element.getContext(), element.getIntOrFloatBitWidth() <= 32 ? 64 : 128);
}

static Value integer(LaneBuilder &b, Type type, const APInt &value) {
  return arith::ConstantOp::create(b.builder, b.loc, b.builder.getIntegerAttr(type, value));
}

/// An unsigned integer that orders as the element does.
static Value makeKey(LaneBuilder &b, Value value, Type element) {
  unsigned width = element.getIntOrFloatBitWidth();
  auto type = b.builder.getIntegerType(width);
  Value sign = integer(b, type, APInt::getSignMask(width));
  if (!isa<FloatType>(element)) {
    bool isUnsigned = width == 1 || element.isUnsignedInteger();
    return isUnsigned ? value : arith::XOrIOp::create(b.builder, b.loc, value, sign);
  }
  Value zero = integer(b, type, APInt::getZero(width));
  Value ones = integer(b, type, APInt::getAllOnes(width));
  Value bits = arith::BitcastOp::create(b.builder, b.loc, type, value);
  // Bits of magnitudes order as the magnitudes do; NaNs are above infinity.
  Value magnitude = arith::AndIOp::create(b.builder, b.loc, bits,
                                          integer(b, type, APInt::getSignedMaxValue(width)));
  const llvm::fltSemantics &semantics = cast<FloatType>(element).getFloatSemantics();
  Value infinity = integer(b, type, llvm::APFloat::getInf(semantics).bitcastToAPInt());
  Value isNaN = b.compare(P::ugt, magnitude, infinity);
  Value positive = arith::OrIOp::create(b.builder, b.loc, magnitude, sign);
  Value negative = arith::XOrIOp::create(b.builder, b.loc, bits, ones);
  Value isNegative = b.both(b.compare(P::slt, bits, zero), b.compare(P::ne, magnitude, zero));
  return b.select(isNaN, ones, b.select(isNegative, negative, positive));
}

Value SortWords::make(LaneBuilder &b, Value value, Value place) const {
  IntegerType word = getType();
  unsigned width = element.getIntOrFloatBitWidth(), half = word.getWidth() / 2;
  Value key = makeKey(b, value, element);
  if (descending)
    key = arith::XOrIOp::create(b.builder, b.loc, key,
                                integer(b, key.getType(), APInt::getAllOnes(width)));
  key = arith::ExtUIOp::create(b.builder, b.loc, word, key);
  key =
      arith::ShLIOp::create(b.builder, b.loc, key, integer(b, word, APInt(word.getWidth(), half)));
  Value low = arith::IndexCastOp::create(b.builder, b.loc, b.builder.getI64Type(), place);
  if (word.getWidth() > 64)
    low = arith::ExtUIOp::create(b.builder, b.loc, word, low);
  return arith::OrIOp::create(b.builder, b.loc, key, low);
}

Value SortWords::getPlace(LaneBuilder &b, Value word) const {
  if (getType().getWidth() > 64)
    return arith::TruncIOp::create(b.builder, b.loc, b.builder.getI64Type(), word);
  return arith::AndIOp::create(b.builder, b.loc, word,
                               integer(b, word.getType(), APInt::getLowBitsSet(64, 32)));
}
