//===- LoomRandom.cpp - random numbers by position ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomScalars.h"
#include "dialects/loom/Random.h"
#include "support/Philox.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace gridloom::loom;

uint32_t gridloom::loom::getRandomBits(uint64_t index, uint64_t seed, uint32_t stream,
                                       uint32_t iteration) {
  uint64_t block = index / 4;
  return Philox::compute({Philox::low(block), Philox::high(block), stream, iteration},
                         {Philox::low(seed), Philox::high(seed)})[index % 4];
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

/// The row-major index of each element.
static Value createPosition(OpBuilder &builder, Location loc, ArrayRef<int64_t> shape) {
  auto type = RankedTensorType::get(shape, builder.getI64Type());
  auto splat = [&](int64_t number) -> Value {
    return ConstantOp::create(builder, loc, DenseElementsAttr::get(type, number));
  };
  Value position;
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; stride *= shape[dim], --dim) {
    if (shape[dim] == 1)
      continue;
    Value part = IotaOp::create(builder, loc, type, dim);
    if (stride != 1)
      part = MultiplyOp::create(builder, loc, type, part, splat(stride));
    position = position ? AddOp::create(builder, loc, type, part, position) : part;
  }
  return position ? position : splat(0);
}

RandomBitsOp gridloom::loom::createRandomBits(OpBuilder &builder, Location loc,
                                              ArrayRef<int64_t> shape, int64_t seed,
                                              int64_t stream) {
  auto type = RankedTensorType::get(shape, builder.getIntegerType(32, /*isSigned=*/false));
  return RandomBitsOp::create(builder, loc, type, createPosition(builder, loc, shape),
                              /*iteration=*/Value(), seed, stream);
}

void gridloom::loom::setIteration(RandomBitsOp op, Value iteration) {
  OpBuilder builder(op);
  Type type = op.getIndex().getType();
  if (iteration.getType() != type)
    iteration = BroadcastOp::create(builder, op.getLoc(), type, iteration, ArrayRef<int64_t>{});
  op.getIterationMutable().assign(iteration);
}

//===----------------------------------------------------------------------===//
// loom.random_bits
//===----------------------------------------------------------------------===//

LogicalResult RandomBitsOp::verify() {
  auto stream = static_cast<int64_t>(getStream());
  if (stream < 0 || stream > int64_t(UINT32_MAX))
    return emitOpError() << "stream is " << stream << ", expected 0 to " << UINT32_MAX;
  return success();
}

/// Per element 20 products of two words, 40 exclusive ors, and the choice of a word.
int64_t RandomBitsOp::getFlops() { return 100 * elementwiseFlops(*this); }

EvaluateResults RandomBitsOp::evaluate(ArrayRef<HostTensor> operands) {
  std::vector<int64_t> words = operands[0].toInts();
  std::vector<int64_t> iterations =
      getIteration() ? operands[1].toInts() : std::vector<int64_t>(words.size(), 0);
  for (auto [word, iteration] : llvm::zip_equal(words, iterations))
    word = getRandomBits(bits(word), getSeed(), static_cast<uint32_t>(getStream()),
                         static_cast<uint32_t>(iteration));
  return one(HostTensor::fromInts(ElementKind::U32, operands[0].getShape(), words));
}

namespace {
/// Arithmetic on words of 32 bits and double words, scalars or vectors.
struct Words {
  OpBuilder &builder;
  Location loc;
  Type index; // of a double word

  template <typename Op> Value make(Value lhs, Value rhs) {
    return Op::create(builder, loc, lhs, rhs);
  }
  Type getWordType() {
    auto vector = dyn_cast<VectorType>(index);
    return vector ? Type(vector.clone(builder.getI32Type())) : builder.getI32Type();
  }
  Value constant(Type type, int64_t number) {
    unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    APInt bits(width, static_cast<uint64_t>(number), /*isSigned=*/false, /*implicitTrunc=*/true);
    TypedAttr attr = builder.getIntegerAttr(getElementTypeOrSelf(type), bits);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, static_cast<Attribute>(attr));
    return arith::ConstantOp::create(builder, loc, attr);
  }
  Value word(uint32_t number) { return constant(getWordType(), number); }
  Value low(Value wide) { return arith::TruncIOp::create(builder, loc, getWordType(), wide); }
  Value high(Value wide) { return low(make<arith::ShRUIOp>(wide, constant(index, 32))); }
  Value exclusiveOr(Value x, Value y, Value z) {
    return make<arith::XOrIOp>(make<arith::XOrIOp>(x, y), z);
  }
  Value multiply(Value x, uint32_t number) {
    return make<arith::MulIOp>(arith::ExtUIOp::create(builder, loc, index, x),
                               constant(index, number));
  }
  /// The word of `four` that the two lowest bits of `place` select.
  Value choose(Value place, ArrayRef<Value> four) {
    auto isSet = [&](uint32_t bit) -> Value {
      Value set = make<arith::AndIOp>(place, word(bit));
      return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, set, word(0));
    };
    auto select = [&](Value condition, Value chosen, Value other) -> Value {
      return arith::SelectOp::create(builder, loc, condition, chosen, other);
    };
    Value isOdd = isSet(1);
    return select(isSet(2), select(isOdd, four[3], four[2]), select(isOdd, four[1], four[0]));
  }
};
} // namespace

Value RandomBitsOp::emitScalar(OpBuilder &builder, Location loc, ValueRange operands) {
  Words w{builder, loc, operands[0].getType()};
  Value block = w.make<arith::ShRUIOp>(operands[0], w.constant(w.index, 2));
  SmallVector<Value, 4> counter{w.low(block), w.high(block),
                                w.word(static_cast<uint32_t>(getStream())),
                                getIteration() ? w.low(operands[1]) : w.word(0)};
  uint32_t first = Philox::low(getSeed()), second = Philox::high(getSeed());
  for (int round = 0; round < Philox::rounds; ++round) {
    Value even = w.multiply(counter[0], Philox::multipliers[0]);
    Value odd = w.multiply(counter[2], Philox::multipliers[1]);
    counter = {w.exclusiveOr(w.high(odd), counter[1], w.word(first)), w.low(odd),
               w.exclusiveOr(w.high(even), counter[3], w.word(second)), w.low(even)};
    first += Philox::keySteps[0];
    second += Philox::keySteps[1];
  }
  return w.choose(w.low(operands[0]), counter);
}
