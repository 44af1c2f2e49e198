//===- LoomScalars.h - evaluation element by element ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Scalar types and helpers of the evaluation files. Elements are computed as double, int64_t,
// uint64_t or Exact, by their kind.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_LOOMSCALARS_H
#define GRIDLOOM_DIALECTS_LOOM_LOOMSCALARS_H

#include "dialects/loom/Loom.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/xxhash.h"

#include <cmath>
#include <concepts>

namespace gridloom::loom {

using EvaluateResults = llvm::FailureOr<llvm::SmallVector<HostTensor>>;

template <typename... Functions> struct Overload : Functions... {
  using Functions::operator()...;
};

//===----------------------------------------------------------------------===//
// Scalar functions, on double, int64_t, uint64_t and Exact
//===----------------------------------------------------------------------===//

inline int64_t wrap(uint64_t value) { return static_cast<int64_t>(value); }
inline uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

/// A 64-bit integer type in which elements are computed.
template <typename T>
concept Integer64 = std::same_as<T, int64_t> || std::same_as<T, uint64_t>;

/// The fixed hash that replaces the function of this name in exact mode; NaN stays NaN.
inline Exact hashed(llvm::StringRef function, Exact x, Exact y = {0}) {
  return x.isNaN() || y.isNaN() ? Exact::nan() : Exact::hash(llvm::xxh3_64bits(function), x, y);
}

inline Exact exactExp(Exact x) {
  if (x.word == Exact::kNegativeInfinity)
    return {0};
  return x.word == 0 ? Exact{1} : hashed("exp", x);
}

/// Small integers keep their value; for other elements the original rational number is unknown.
inline Exact exactRound(llvm::StringRef function, Exact x) {
  bool small = x.isFinite() && std::abs(x.word) < (int64_t(1) << 31);
  return small ? x : hashed(function, x);
}

inline Exact exactPower(Exact x, Exact y) {
  if (x.isFinite() && y.isFinite() && std::abs(y.word) <= 64) {
    Exact result = x.power(std::abs(y.word));
    return y.word < 0 ? result.inverse() : result;
  }
  if (y == Exact{2}.inverse())
    return hashed("sqrt", x);
  return hashed("power", x, y);
}

template <Integer64 T> T integerPower(T x, T y) {
  if constexpr (std::same_as<T, int64_t>)
    if (y < 0)
      return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t result = 1, base = static_cast<uint64_t>(x);
  for (; y != 0; y >>= 1, base *= base)
    if (y & 1)
      result *= base;
  return static_cast<T>(result);
}

template <typename T> bool isNaN(T x) {
  if constexpr (std::same_as<T, double>)
    return std::isnan(x);
  else if constexpr (std::same_as<T, Exact>)
    return x.isNaN();
  else
    return false;
}

template <typename T> T maximum(T x, T y) {
  if (isNaN(x) || isNaN(y))
    return isNaN(x) ? x : y;
  return x < y ? y : x;
}

template <typename T> T minimum(T x, T y) {
  if (isNaN(x) || isNaN(y))
    return isNaN(x) ? x : y;
  return y < x ? y : x;
}

template <typename T> T add(T x, T y) {
  if constexpr (std::same_as<T, int64_t>)
    return wrap(bits(x) + bits(y));
  else
    return x + y;
}

template <typename T> T multiply(T x, T y) {
  if constexpr (std::same_as<T, int64_t>)
    return wrap(bits(x) * bits(y));
  else
    return x * y;
}

template <typename T> T reduceScalar(dist::ReductionKind kind, T x, T y) {
  switch (kind) {
  case dist::ReductionKind::Sum:
    return add(x, y);
  case dist::ReductionKind::Max:
    return maximum(x, y);
  case dist::ReductionKind::Min:
    return minimum(x, y);
  case dist::ReductionKind::Prod:
    return multiply(x, y);
  }
  llvm_unreachable("unknown reduction");
}

//===----------------------------------------------------------------------===//
// Elementwise evaluation
//===----------------------------------------------------------------------===//

template <typename T> std::vector<T> load(const HostTensor &tensor) {
  if constexpr (std::same_as<T, double>)
    return tensor.toDoubles();
  else if constexpr (std::same_as<T, int64_t>)
    return tensor.toInts();
  else if constexpr (std::same_as<T, uint64_t>) {
    std::vector<int64_t> ints = tensor.toInts();
    return {ints.begin(), ints.end()};
  } else
    return tensor.toExact();
}

template <typename T>
HostTensor store(ElementKind kind, llvm::ArrayRef<int64_t> shape, std::vector<T> &&values) {
  if constexpr (std::same_as<T, double>)
    return HostTensor::fromDoubles(kind, shape, values);
  else if constexpr (std::same_as<T, int64_t>)
    return HostTensor::fromInts(kind, shape, values);
  else if constexpr (std::same_as<T, uint64_t>)
    return HostTensor::fromInts(kind, shape, std::vector<int64_t>(values.begin(), values.end()));
  else
    return HostTensor::fromExact(shape, std::move(values));
}

/// Calls `function` with a value of the type that elements of `kind` are computed in.
template <typename FunctionT> auto withComputeType(ElementKind kind, FunctionT function) {
  if (kind == ElementKind::Exact)
    return function(Exact());
  if (kind == ElementKind::U64)
    return function(uint64_t());
  return isFloatKind(kind) ? function(double()) : function(int64_t());
}

inline llvm::LogicalResult failOnKind(mlir::Operation *op, ElementKind kind) {
  return op->emitOpError() << "has no meaning for elements of type " << nameOf(kind);
}

template <typename FunctionT>
EvaluateResults evaluateUnary(mlir::Operation *op, const HostTensor &x, FunctionT function) {
  return withComputeType(x.getKind(), [&](auto sample) -> EvaluateResults {
    using T = decltype(sample);
    if constexpr (std::invocable<FunctionT, T>) {
      std::vector<T> values = load<T>(x);
      for (T &value : values)
        value = function(value);
      return llvm::SmallVector<HostTensor>{store(x.getKind(), x.getShape(), std::move(values))};
    } else {
      return failOnKind(op, x.getKind());
    }
  });
}

template <typename FunctionT>
EvaluateResults evaluateBinary(mlir::Operation *op, llvm::ArrayRef<HostTensor> operands,
                               FunctionT function) {
  const HostTensor &x = operands[0];
  return withComputeType(x.getKind(), [&](auto sample) -> EvaluateResults {
    using T = decltype(sample);
    if constexpr (std::invocable<FunctionT, T, T>) {
      std::vector<T> values = load<T>(x);
      for (auto [value, y] : llvm::zip_equal(values, load<T>(operands[1])))
        value = function(value, y);
      return llvm::SmallVector<HostTensor>{store(x.getKind(), x.getShape(), std::move(values))};
    } else {
      return failOnKind(op, x.getKind());
    }
  });
}

/// Evaluates a composite as the operations it decomposes into.
template <typename OpT>
EvaluateResults evaluateDecomposed(OpT op, llvm::ArrayRef<HostTensor> operands) {
  mlir::Block block;
  mlir::OpBuilder builder(op.getContext());
  builder.setInsertionPointToStart(&block);
  llvm::SmallVector<mlir::Value> outputs = op.decompose(builder);
  llvm::DenseMap<mlir::Value, HostTensor> values;
  for (auto [value, tensor] : llvm::zip_equal(op->getOperands(), operands))
    values[value] = tensor;
  for (mlir::Operation &part : block) {
    llvm::SmallVector<HostTensor> inputs;
    for (mlir::Value operand : part.getOperands())
      inputs.push_back(values[operand]);
    EvaluateResults results = llvm::cast<EvaluateInterface>(part).evaluate(inputs);
    if (failed(results))
      return llvm::failure();
    for (auto [value, tensor] : llvm::zip_equal(part.getResults(), *results))
      values[value] = tensor.toExactMode();
  }
  llvm::SmallVector<HostTensor> results;
  for (mlir::Value output : outputs)
    results.push_back(values[output]);
  return results;
}

inline bool isExact(llvm::ArrayRef<HostTensor> operands) {
  return llvm::any_of(
      operands, [](const HostTensor &tensor) { return tensor.getKind() == ElementKind::Exact; });
}

inline ElementKind resultKind(mlir::Operation *op) {
  return *getElementKind(
      llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType()).getElementType());
}
inline llvm::ArrayRef<int64_t> resultShape(mlir::Operation *op) {
  return llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType()).getShape();
}

inline EvaluateResults one(HostTensor tensor) {
  return llvm::SmallVector<HostTensor>{std::move(tensor)};
}

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_LOOMSCALARS_H
