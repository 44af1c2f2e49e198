//===- LoomEvaluateElementwise.cpp - reference evaluation by element ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomScalars.h"

#include <cstring>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

using Results = EvaluateResults;

static double gelu(GeluForm form, double x) {
  if (form == GeluForm::Erf)
    return 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440));
  return 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/// Truncates. -2^63 / -1 does not fit and wraps.
template <Integer64 T> static T divideIntegers(T x, T y) {
  if constexpr (std::same_as<T, int64_t>)
    if (y == -1)
      return wrap(-bits(x));
  return x / y;
}

#define UNARY(OP, ...)                                                                             \
  Results OP::evaluate(ArrayRef<HostTensor> operands) {                                            \
    return evaluateUnary(*this, operands[0], Overload{__VA_ARGS__});                               \
  }
#define BINARY(OP, ...)                                                                            \
  Results OP::evaluate(ArrayRef<HostTensor> operands) {                                            \
    return evaluateBinary(*this, operands, Overload{__VA_ARGS__});                                 \
  }
// Constrained parameters, so that no element type converts to another implicitly.
#define FLOAT std::same_as<double> auto
#define INT Integer64 auto
#define EXACT std::same_as<Exact> auto

UNARY(
    NegateOp, [](FLOAT x) { return -x; },
    [](INT x) { return static_cast<decltype(x)>(0 - static_cast<uint64_t>(x)); },
    [](EXACT x) { return -x; })
UNARY(
    AbsOp, [](FLOAT x) { return std::fabs(x); },
    [](INT x) {
      return std::same_as<decltype(x), int64_t> && x < 0
                 ? static_cast<decltype(x)>(0 - static_cast<uint64_t>(x))
                 : x;
    },
    [](EXACT x) { return !x.isNaN() && x.word < 0 ? -x : x; })
UNARY(ExpOp, [](FLOAT x) { return std::exp(x); }, [](EXACT x) { return exactExp(x); })
UNARY(LogOp, [](FLOAT x) { return std::log(x); }, [](EXACT x) { return hashed("log", x); })
UNARY(SqrtOp, [](FLOAT x) { return std::sqrt(x); }, [](EXACT x) { return hashed("sqrt", x); })
UNARY(
    RsqrtOp, [](FLOAT x) { return 1.0 / std::sqrt(x); },
    [](EXACT x) { return hashed("sqrt", x).inverse(); })
UNARY(TanhOp, [](FLOAT x) { return std::tanh(x); }, [](EXACT x) { return hashed("tanh", x); })
UNARY(ErfOp, [](FLOAT x) { return std::erf(x); }, [](EXACT x) { return hashed("erf", x); })
UNARY(
    LogisticOp, [](FLOAT x) { return 1.0 / (1.0 + std::exp(-x)); },
    [](EXACT x) { return (Exact{1} + exactExp(-x)).inverse(); })
UNARY(
    FloorOp, [](FLOAT x) { return std::floor(x); }, [](INT x) { return x; },
    [](EXACT x) { return exactRound("floor", x); })
UNARY(
    CeilOp, [](FLOAT x) { return std::ceil(x); }, [](INT x) { return x; },
    [](EXACT x) { return exactRound("ceil", x); })
UNARY(
    SignOp,
    [](FLOAT x) {
      return std::isnan(x) ? x : (x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0);
    },
    [](INT x) {
      return static_cast<decltype(x)>(int64_t(x > 0) -
                                      (std::same_as<decltype(x), int64_t> && x < 0));
    },
    [](EXACT x) { return x.isNaN() ? x : Exact{(x.word > 0) - (x.word < 0)}; })
UNARY(
    RoundNearestEvenOp, [](FLOAT x) { return std::nearbyint(x); }, [](INT x) { return x; },
    [](EXACT x) { return exactRound("round_nearest_even", x); })
UNARY(SineOp, [](FLOAT x) { return std::sin(x); }, [](EXACT x) { return hashed("sine", x); })
UNARY(CosineOp, [](FLOAT x) { return std::cos(x); }, [](EXACT x) { return hashed("cosine", x); })
UNARY(TanOp, [](FLOAT x) { return std::tan(x); }, [](EXACT x) { return hashed("tan", x); })
UNARY(AsinOp, [](FLOAT x) { return std::asin(x); }, [](EXACT x) { return hashed("asin", x); })
UNARY(AcosOp, [](FLOAT x) { return std::acos(x); }, [](EXACT x) { return hashed("acos", x); })
UNARY(AtanOp, [](FLOAT x) { return std::atan(x); }, [](EXACT x) { return hashed("atan", x); })
UNARY(SinhOp, [](FLOAT x) { return std::sinh(x); }, [](EXACT x) { return hashed("sinh", x); })
UNARY(CoshOp, [](FLOAT x) { return std::cosh(x); }, [](EXACT x) { return hashed("cosh", x); })
UNARY(AsinhOp, [](FLOAT x) { return std::asinh(x); }, [](EXACT x) { return hashed("asinh", x); })
UNARY(AcoshOp, [](FLOAT x) { return std::acosh(x); }, [](EXACT x) { return hashed("acosh", x); })
UNARY(AtanhOp, [](FLOAT x) { return std::atanh(x); }, [](EXACT x) { return hashed("atanh", x); })

BINARY(AddOp, [](auto x, auto y) { return add(x, y); })
BINARY(
    SubtractOp, [](FLOAT x, FLOAT y) { return x - y; },
    [](INT x, INT y) {
      return static_cast<decltype(x)>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y));
    },
    [](EXACT x, EXACT y) { return x - y; })
BINARY(MultiplyOp, [](auto x, auto y) { return multiply(x, y); })
BINARY(MaximumOp, [](auto x, auto y) { return maximum(x, y); })
BINARY(MinimumOp, [](auto x, auto y) { return minimum(x, y); })
BINARY(
    PowerOp, [](FLOAT x, FLOAT y) { return std::pow(x, y); },
    [](INT x, INT y) { return integerPower(x, y); },
    [](EXACT x, EXACT y) { return exactPower(x, y); })
BINARY(AndOp, [](INT x, INT y) { return x & y; })
BINARY(OrOp, [](INT x, INT y) { return x | y; })
BINARY(XorOp, [](INT x, INT y) { return x ^ y; })
BINARY(
    RemainderOp, [](FLOAT x, FLOAT y) { return std::fmod(x, y); },
    [](INT x, INT y) {
      return y == 0 ? x : static_cast<decltype(x)>(x - divideIntegers(x, y) * y);
    },
    [](EXACT x, EXACT y) { return hashed("remainder", x, y); })

Results DivideOp::evaluate(ArrayRef<HostTensor> operands) {
  ElementKind kind = operands[1].getKind();
  if (kind != ElementKind::Exact && !isFloatKind(kind) &&
      llvm::is_contained(operands[1].toInts(), 0))
    return emitOpError("divides an integer by zero");
  return evaluateBinary(*this, operands,
                        Overload{[](FLOAT x, FLOAT y) { return x / y; },
                                 [](INT x, INT y) { return divideIntegers(x, y); },
                                 [](EXACT x, EXACT y) { return x / y; }});
}

/// Shifts as unsigned integers of the elements' width.
template <typename FunctionT>
static Results evaluateShift(Operation *op, ArrayRef<HostTensor> operands, FunctionT shift) {
  uint64_t width = 8 * operands[0].getElementSize();
  uint64_t mask = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
  return evaluateBinary(op, operands, [&](INT x, INT y) {
    auto amount = static_cast<uint64_t>(y) & mask;
    return static_cast<decltype(x)>(amount < width ? shift(static_cast<uint64_t>(x) & mask, amount)
                                                   : 0);
  });
}

Results ShiftLeftOp::evaluate(ArrayRef<HostTensor> operands) {
  return evaluateShift(*this, operands, [](uint64_t x, uint64_t y) { return x << y; });
}

Results ShiftRightLogicalOp::evaluate(ArrayRef<HostTensor> operands) {
  return evaluateShift(*this, operands, [](uint64_t x, uint64_t y) { return x >> y; });
}

Results NotOp::evaluate(ArrayRef<HostTensor> operands) {
  if (operands[0].getKind() == ElementKind::Bool)
    return evaluateUnary(*this, operands[0], [](INT x) { return int64_t(x == 0); });
  return evaluateUnary(*this, operands[0], [](INT x) { return ~x; });
}

#undef UNARY
#undef BINARY
#undef FLOAT
#undef INT
#undef EXACT

Results CompareOp::evaluate(ArrayRef<HostTensor> operands) {
  Direction direction = getDirection();
  auto compare = [&](auto x, auto y) -> bool {
    switch (direction) {
    case Direction::EQ:
      return x == y;
    case Direction::NE:
      return !(x == y);
    case Direction::LT:
      return x < y;
    case Direction::LE:
      return x < y || x == y;
    case Direction::GT:
      return y < x;
    case Direction::GE:
      return y < x || x == y;
    }
    llvm_unreachable("unknown direction");
  };
  HostTensor result(ElementKind::Bool, operands[0].getShape());
  MutableArrayRef<uint8_t> target = result.getMutableValues<uint8_t>();
  withComputeType(operands[0].getKind(), [&](auto sample) {
    using T = decltype(sample);
    for (auto [out, x, y] : llvm::zip_equal(target, load<T>(operands[0]), load<T>(operands[1])))
      out = compare(x, y);
  });
  return one(std::move(result));
}

Results SelectOp::evaluate(ArrayRef<HostTensor> operands) {
  HostTensor result = operands[2];
  size_t size = result.getElementSize();
  char *target = result.getMutableData();
  for (auto [i, predicate] : llvm::enumerate(operands[0].getValues<uint8_t>()))
    if (predicate)
      std::memcpy(target + i * size, operands[1].getData() + i * size, size);
  return one(std::move(result));
}

Results ConvertOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &x = operands[0];
  ElementKind kind = resultKind(*this);
  if (x.getKind() == ElementKind::Exact) {
    if (isFloatKind(kind))
      return one(x);
    std::vector<int64_t> words;
    for (Exact value : x.getValues<Exact>())
      words.push_back(value.word);
    return one(HostTensor::fromInts(kind, x.getShape(), words));
  }
  if (isFloatKind(kind) ||
      (isFloatKind(x.getKind()) && (kind == ElementKind::Bool || kind == ElementKind::U64)))
    return one(HostTensor::fromDoubles(kind, x.getShape(), x.toDoubles(), !getUnsaturated()));
  return one(HostTensor::fromInts(kind, x.getShape(), x.toInts()));
}

Results BitcastConvertOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &x = operands[0];
  ElementKind kind = resultKind(*this);
  if (x.getKind() == ElementKind::Exact) {
    std::vector<Exact> values = x.toExact();
    for (Exact &value : values)
      value = hashed("bitcast_convert", value);
    if (isFloatKind(kind))
      return one(HostTensor::fromExact(x.getShape(), std::move(values)));
    std::vector<int64_t> words;
    for (Exact value : values)
      words.push_back(value.word);
    return one(HostTensor::fromInts(kind, x.getShape(), words));
  }
  HostTensor result(kind, x.getShape());
  if (result.getNumBytes() > 0)
    std::memcpy(result.getMutableData(), x.getData(), x.getNumBytes());
  return one(std::move(result));
}

Results GeluOp::evaluate(ArrayRef<HostTensor> operands) {
  if (isExact(operands))
    return evaluateDecomposed(*this, operands);
  return evaluateUnary(*this, operands[0],
                       [form = getForm()](std::same_as<double> auto x) { return gelu(form, x); });
}
