//===- LoomEvaluate.cpp - reference evaluation of every operation ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Floats are computed in f64 and rounded once per operation (through f32 to f16 and bf16), so that
// this can serve as an oracle. Integers wrap. Operands of kind Exact select exact mode, in which
// composites are evaluated by their decompositions.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomEvaluate.h"
#include "dialects/loom/LoomScalars.h"
#include "dialects/loom/Padding.h"

#include <cstring>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

using Results = EvaluateResults;

//===----------------------------------------------------------------------===//
// Contraction
//===----------------------------------------------------------------------===//

namespace {

/// Accumulates products of one kind of number: sums[j] += factor * row[j].
template <typename T> struct Accumulator {
  using Sum = T;
  static void addProducts(Sum *sums, T factor, const T *row, int64_t width) {
    for (int64_t j = 0; j < width; ++j)
      sums[j] = add(sums[j], multiply(factor, row[j]));
  }
  static T finish(Sum sum) { return sum; }
};

template <> struct Accumulator<double> {
  using Sum = double;
  static void addProducts(Sum *__restrict__ sums, double factor, const double *__restrict__ row,
                          int64_t width) {
#pragma clang loop vectorize(enable)
    for (int64_t j = 0; j < width; ++j)
      sums[j] += factor * row[j];
  }
  static double finish(Sum sum) { return sum; }
};

/// Finite elements are below 2^60, so 64 products fit into 127 bits before they must be reduced.
struct WideAccumulator {
  using Sum = __int128;
  static void addProducts(Sum *sums, Exact factor, const Exact *row, int64_t width) {
    for (int64_t j = 0; j < width; ++j)
      sums[j] += static_cast<__int128>(factor.word) * row[j].word;
  }
  static Exact finish(Sum sum) { return Exact::fromWide(sum); }
};

/// out[M, N] += lhs[M, K] * rhs[K, N], in blocks that stay in cache. K advances in steps of 64.
template <typename T, typename AccumulatorT>
void multiplyMatrices(const T *lhs, const T *rhs, T *out, int64_t m, int64_t n, int64_t k) {
  using Sum = typename AccumulatorT::Sum;
  constexpr int64_t columns = 256, depth = 64;
  Sum sums[columns];
  for (int64_t j0 = 0; j0 < n; j0 += columns) {
    int64_t width = std::min(columns, n - j0);
    for (int64_t k0 = 0; k0 < k; k0 += depth) {
      int64_t end = std::min(k0 + depth, k);
      for (int64_t i = 0; i < m; ++i) {
        std::fill_n(sums, width, Sum());
        for (int64_t l = k0; l < end; ++l)
          AccumulatorT::addProducts(sums, lhs[i * k + l], rhs + l * n + j0, width);
        for (int64_t j = 0; j < width; ++j)
          out[i * n + j0 + j] = add(out[i * n + j0 + j], AccumulatorT::finish(sums[j]));
      }
    }
  }
}

template <typename T> bool allFinite(ArrayRef<T> values) {
  return llvm::all_of(values, [](Exact value) { return value.isFinite(); });
}

} // namespace

HostTensor gridloom::loom::contract(const HostTensor &lhs, const HostTensor &rhs,
                                    ElementKind result) {
  int64_t batch = lhs.getShape()[0], m = lhs.getShape()[1], k = lhs.getShape()[2],
          n = rhs.getShape()[2];
  bool exact = isExact({lhs, rhs});
  ElementKind kind = exact ? ElementKind::Exact : lhs.getKind();
  return withComputeType(kind, [&](auto sample) {
    using T = decltype(sample);
    std::vector<T> x = load<T>(lhs), y = load<T>(rhs), out(batch * m * n);
    for (int64_t b = 0; b < batch; ++b) {
      const T *left = x.data() + b * m * k, *right = y.data() + b * k * n;
      T *target = out.data() + b * m * n;
      if constexpr (std::same_as<T, Exact>) {
        if (allFinite(ArrayRef(left, m * k)) && allFinite(ArrayRef(right, k * n))) {
          multiplyMatrices<T, WideAccumulator>(left, right, target, m, n, k);
          continue;
        }
      }
      multiplyMatrices<T, Accumulator<T>>(left, right, target, m, n, k);
    }
    return store(exact ? kind : result, {batch, m, n}, std::move(out));
  });
}

/// `tensor` with its dimensions in the order of the three lists, merged into one per list.
static HostTensor groupDims(const HostTensor &tensor, ArrayRef<int64_t> first,
                            ArrayRef<int64_t> second, ArrayRef<int64_t> third) {
  SmallVector<int64_t> source = getRowMajorStrides(tensor.getShape()), shape, strides, grouped;
  for (ArrayRef<int64_t> dims : {first, second, third}) {
    grouped.push_back(1);
    for (int64_t dim : dims) {
      shape.push_back(tensor.getShape()[dim]);
      strides.push_back(source[dim]);
      grouped.back() *= shape.back();
    }
  }
  return gatherStrided(tensor, shape, strides).reshaped(grouped);
}

Results DotGeneralOp::evaluate(ArrayRef<HostTensor> operands) {
  HostTensor lhs = groupDims(operands[0], getLhsBatch(), getLhsFreeDims(), getLhsContract());
  HostTensor rhs = groupDims(operands[1], getRhsBatch(), getRhsContract(), getRhsFreeDims());
  return one(contract(lhs, rhs, resultKind(*this)).reshaped(resultShape(*this)));
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

HostTensor gridloom::loom::combine(dist::ReductionKind kind, ArrayRef<HostTensor> tensors) {
  const HostTensor &first = tensors.front();
  return withComputeType(first.getKind(), [&](auto sample) {
    using T = decltype(sample);
    std::vector<T> values = load<T>(first);
    for (const HostTensor &tensor : tensors.drop_front())
      for (auto [value, other] : llvm::zip_equal(values, load<T>(tensor)))
        value = reduceScalar(kind, value, other);
    return store(first.getKind(), first.getShape(), std::move(values));
  });
}

FailureOr<HostTensor> gridloom::loom::getNeutral(Operation *op, dist::ReductionKind kind,
                                                 const HostTensor &input) {
  Type element = cast<RankedTensorType>(op->getResult(0).getType()).getElementType();
  FailureOr<HostTensor> neutral = HostTensor::fromAttribute(
      DenseElementsAttr::get(RankedTensorType::get({}, element), getNeutralElement(element, kind)));
  if (failed(neutral))
    return op->emitOpError() << "has no meaning for elements of type " << element;
  return input.getKind() == ElementKind::Exact ? neutral->toExactMode() : *neutral;
}

Results ReduceOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &input = operands[0];
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < input.getRank(); ++dim)
    if (!llvm::is_contained(getDims(), dim))
      kept.push_back(dim);
  HostTensor rows = groupDims(input, {}, kept, getDims());
  int64_t count = rows.getShape()[1], length = rows.getShape()[2];
  FailureOr<HostTensor> neutral = getNeutral(*this, getKind(), input);
  if (failed(neutral))
    return failure();
  return withComputeType(input.getKind(), [&](auto sample) -> Results {
    using T = decltype(sample);
    std::vector<T> values = load<T>(rows), out(count, load<T>(*neutral)[0]);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < length; ++j)
        out[i] = reduceScalar(getKind(), out[i], values[i * length + j]);
    return one(store(input.getKind(), resultShape(*this), std::move(out)));
  });
}

Results SoftmaxOp::evaluate(ArrayRef<HostTensor> operands) {
  if (isExact(operands))
    return evaluateDecomposed(*this, operands);
  const HostTensor &input = operands[0];
  std::vector<double> values = input.toDoubles();
  int64_t length = input.getShape()[getDim()],
          stride = getRowMajorStrides(input.getShape())[getDim()];
  for (int64_t start = 0; start < input.getNumElements(); ++start) {
    if ((start / stride) % length != 0)
      continue;
    double peak = -INFINITY, sum = 0;
    for (int64_t i = 0; i < length; ++i)
      peak = maximum(peak, values[start + i * stride]);
    for (int64_t i = 0; i < length; ++i) {
      double &value = values[start + i * stride];
      value = std::exp(value - peak);
      sum += value;
    }
    for (int64_t i = 0; i < length; ++i)
      values[start + i * stride] /= sum;
  }
  return one(HostTensor::fromDoubles(input.getKind(), input.getShape(), values));
}

/// Normalises rows of the last dimension, after subtracting their mean if they are to be `centred`.
static Results evaluateRowNorm(ArrayRef<HostTensor> operands, double epsilon, bool centred) {
  const HostTensor &input = operands[0];
  std::vector<double> values = input.toDoubles(), scale = operands[1].toDoubles();
  std::vector<double> bias =
      operands.size() > 2 ? operands[2].toDoubles() : std::vector<double>(scale.size());
  int64_t length = scale.size();
  for (int64_t start = 0; start < input.getNumElements(); start += length) {
    MutableArrayRef<double> row(values.data() + start, length);
    double mean = 0, variance = 0;
    if (centred)
      for (double value : row)
        mean += value / length;
    for (double value : row)
      variance += (value - mean) * (value - mean) / length;
    for (int64_t i = 0; i < length; ++i)
      row[i] = (row[i] - mean) / std::sqrt(variance + epsilon) * scale[i] + bias[i];
  }
  return one(HostTensor::fromDoubles(input.getKind(), input.getShape(), values));
}

Results LayerNormOp::evaluate(ArrayRef<HostTensor> operands) {
  if (isExact(operands))
    return evaluateDecomposed(*this, operands);
  return evaluateRowNorm(operands, getEpsilon().convertToDouble(), /*centred=*/true);
}

Results RmsNormOp::evaluate(ArrayRef<HostTensor> operands) {
  if (isExact(operands))
    return evaluateDecomposed(*this, operands);
  return evaluateRowNorm(operands, getEpsilon().convertToDouble(), /*centred=*/false);
}

//===----------------------------------------------------------------------===//
// Operations that move elements
//===----------------------------------------------------------------------===//

template <typename T>
static void gatherRows(const T *source, T *&target, ArrayRef<int64_t> shape,
                       ArrayRef<int64_t> strides) {
  if (shape.empty()) {
    *target++ = *source;
    return;
  }
  if (shape.size() == 1) {
    for (int64_t i = 0; i < shape[0]; ++i)
      *target++ = source[i * strides[0]];
    return;
  }
  for (int64_t i = 0; i < shape[0]; ++i)
    gatherRows(source + i * strides[0], target, shape.drop_front(), strides.drop_front());
}

HostTensor gridloom::loom::gatherStrided(const HostTensor &source, ArrayRef<int64_t> shape,
                                         ArrayRef<int64_t> strides, int64_t offset) {
  HostTensor result(source.getKind(), shape);
  if (result.getNumElements() == 0)
    return result;
  auto gather = [&](auto sample) {
    using T = decltype(sample);
    T *target = result.getMutableValues<T>().data();
    gatherRows(source.getValues<T>().data() + offset, target, shape, strides);
  };
  switch (source.getElementSize()) {
  case 1:
    gather(uint8_t());
    break;
  case 2:
    gather(uint16_t());
    break;
  case 4:
    gather(uint32_t());
    break;
  default:
    gather(uint64_t());
  }
  return result;
}

Results ConstantOp::evaluate(ArrayRef<HostTensor>) {
  FailureOr<HostTensor> tensor = HostTensor::fromAttribute(getValue());
  if (failed(tensor))
    return emitOpError() << "holds a value the compiler cannot read, of type "
                         << getValue().getType();
  return one(*std::move(tensor));
}

Results IotaOp::evaluate(ArrayRef<HostTensor>) {
  ArrayRef<int64_t> shape = resultShape(*this);
  int64_t length = shape[getDim()], stride = getRowMajorStrides(shape)[getDim()];
  std::vector<int64_t> values(loom::countElements(shape));
  for (auto [i, value] : llvm::enumerate(values))
    value = (static_cast<int64_t>(i) / stride) % length;
  return one(HostTensor::fromInts(resultKind(*this), shape, values));
}

Results BroadcastOp::evaluate(ArrayRef<HostTensor> operands) {
  ArrayRef<int64_t> shape = resultShape(*this);
  SmallVector<int64_t> source = getRowMajorStrides(operands[0].getShape()),
                       strides(shape.size(), 0);
  for (auto [i, dim] : llvm::enumerate(getDims()))
    if (operands[0].getShape()[i] != 1)
      strides[dim] = source[i];
  return one(gatherStrided(operands[0], shape, strides));
}

Results ReshapeOp::evaluate(ArrayRef<HostTensor> operands) {
  return one(operands[0].reshaped(resultShape(*this)));
}

Results TransposeOp::evaluate(ArrayRef<HostTensor> operands) {
  SmallVector<int64_t> source = getRowMajorStrides(operands[0].getShape()), strides;
  for (int64_t dim : getPermutation())
    strides.push_back(source[dim]);
  return one(gatherStrided(operands[0], resultShape(*this), strides));
}

Results SliceOp::evaluate(ArrayRef<HostTensor> operands) {
  SmallVector<int64_t> strides = getRowMajorStrides(operands[0].getShape());
  int64_t offset = 0;
  for (auto [stride, start, step] : llvm::zip_equal(strides, getStarts(), getStrides())) {
    offset += start * stride;
    stride *= step;
  }
  return one(gatherStrided(operands[0], resultShape(*this), strides, offset));
}

Results ConcatenateOp::evaluate(ArrayRef<HostTensor> operands) {
  HostTensor result(operands[0].getKind(), resultShape(*this));
  SmallVector<int64_t> starts(result.getRank(), 0);
  for (const HostTensor &operand : operands) {
    result.insert(operand, starts);
    starts[getDim()] += operand.getShape()[getDim()];
  }
  return one(std::move(result));
}

FailureOr<HostTensor> gridloom::loom::evaluateGather(GatherOp op, const HostTensor &input,
                                                     const HostTensor &indices,
                                                     bool poisonOutside) {
  int64_t dim = op.getDim(), extent = input.getShape()[dim];
  int64_t outer = loom::countElements(input.getShape().take_front(dim));
  int64_t inner = loom::countElements(input.getShape().drop_front(dim + 1));
  HostTensor result(input.getKind(), resultShape(op));
  if (poisonOutside)
    result.fillWithPoison();
  size_t rowBytes = inner * input.getElementSize();
  std::vector<int64_t> positions = indices.toInts();
  char *target = result.getMutableData();
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t position : positions) {
      if (position >= 0 && position < extent) {
        if (rowBytes > 0)
          std::memcpy(target, input.getData() + (i * extent + position) * rowBytes, rowBytes);
      } else if (!poisonOutside) {
        return op.emitOpError() << "index " << position << " is outside of dimension " << dim
                                << " of size " << extent;
      }
      target += rowBytes;
    }
  }
  return result;
}

Results GatherOp::evaluate(ArrayRef<HostTensor> operands) {
  FailureOr<HostTensor> result =
      evaluateGather(*this, operands[0], operands[1], /*poisonOutside=*/false);
  if (failed(result))
    return failure();
  return one(*std::move(result));
}

Results GetWeightOp::evaluate(ArrayRef<HostTensor>) {
  return emitOpError() << "of '" << getName()
                       << "' has no value here: weights are resolved by the interpreter";
}
