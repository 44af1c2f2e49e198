//===- LoomEvaluateIndexing.cpp - reference evaluation by index -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomEvaluate.h"
#include "dialects/loom/LoomScalars.h"

#include <cstring>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

using Results = EvaluateResults;

namespace {

/// A tensor as [outer, size, inner] around one dimension.
struct Lanes {
  int64_t outer, size, inner;

  Lanes(ArrayRef<int64_t> shape, int64_t dim)
      : outer(loom::countElements(shape.take_front(dim))), size(shape[dim]),
        inner(loom::countElements(shape.drop_front(dim + 1))) {}
  int64_t at(int64_t i, int64_t place, int64_t j) const { return (i * size + place) * inner + j; }
  /// Calls `function` for every position in the other dimensions.
  void forEach(function_ref<void(int64_t i, int64_t j)> function) const {
    for (int64_t i = 0; i < outer; ++i)
      for (int64_t j = 0; j < inner; ++j)
        function(i, j);
  }
};

void copyElement(HostTensor &to, int64_t target, const HostTensor &from, int64_t source) {
  size_t size = to.getElementSize();
  std::memcpy(to.getMutableData() + target * size, from.getData() + source * size, size);
}

/// The order in which NaN is greater than every number.
template <typename T> bool isBefore(T x, T y, bool descending) {
  if (descending)
    std::swap(x, y);
  return isNaN(y) ? !isNaN(x) : x < y;
}

} // namespace

Results ReverseOp::evaluate(ArrayRef<HostTensor> operands) {
  SmallVector<int64_t> strides = getRowMajorStrides(operands[0].getShape());
  int64_t offset = 0;
  for (int64_t dim : getDims()) {
    offset += (operands[0].getShape()[dim] - 1) * strides[dim];
    strides[dim] = -strides[dim];
  }
  return one(gatherStrided(operands[0], resultShape(*this), strides, offset));
}

FailureOr<HostTensor> gridloom::loom::evaluateGatherElements(GatherElementsOp op,
                                                             const HostTensor &input,
                                                             const HostTensor &indices,
                                                             bool poisonOutside) {
  int64_t dim = op.getDim();
  Lanes from(input.getShape(), dim), to(indices.getShape(), dim);
  HostTensor result(input.getKind(), resultShape(op));
  if (poisonOutside)
    result.fillWithPoison();
  std::vector<int64_t> positions = indices.toInts();
  std::optional<int64_t> outside;
  to.forEach([&](int64_t i, int64_t j) {
    for (int64_t place = 0; place < to.size; ++place) {
      int64_t position = positions[to.at(i, place, j)];
      if (position >= 0 && position < from.size)
        copyElement(result, to.at(i, place, j), input, from.at(i, position, j));
      else
        outside = position;
    }
  });
  if (outside && !poisonOutside)
    return op.emitOpError() << "index " << *outside << " is outside of dimension " << dim
                            << " of size " << from.size;
  return result;
}

Results GatherElementsOp::evaluate(ArrayRef<HostTensor> operands) {
  FailureOr<HostTensor> result =
      evaluateGatherElements(*this, operands[0], operands[1], /*poisonOutside=*/false);
  if (failed(result))
    return failure();
  return one(*std::move(result));
}

Results ScatterOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &input = operands[0], &updates = operands[2];
  Lanes to(input.getShape(), getDim()), from(updates.getShape(), getDim());
  std::vector<int64_t> indices = operands[1].toInts();
  bool slices = takesSlices();
  return withComputeType(input.getKind(), [&](auto sample) -> Results {
    using T = decltype(sample);
    std::vector<T> values = load<T>(input), changes = load<T>(updates);
    for (int64_t i = 0; i < from.outer; ++i)
      for (int64_t place = 0; place < from.size; ++place)
        for (int64_t j = 0; j < from.inner; ++j) {
          int64_t index = indices[slices ? place : from.at(i, place, j)];
          if (index < 0 || index >= to.size)
            continue;
          T &value = values[to.at(i, index, j)];
          T change = changes[from.at(i, place, j)];
          value = getReduction() ? reduceScalar(*getReduction(), value, change) : change;
        }
    return one(store(input.getKind(), input.getShape(), std::move(values)));
  });
}

Results CumulativeOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &input = operands[0];
  Lanes lanes(input.getShape(), getDim());
  FailureOr<HostTensor> neutral = getNeutral(*this, getKind(), input);
  if (failed(neutral))
    return failure();
  return withComputeType(input.getKind(), [&](auto sample) -> Results {
    using T = decltype(sample);
    std::vector<T> values = load<T>(input);
    T first = load<T>(*neutral)[0];
    lanes.forEach([&](int64_t i, int64_t j) {
      T running = first;
      for (int64_t step = 0; step < lanes.size; ++step) {
        T &value = values[lanes.at(i, getReverse() ? lanes.size - 1 - step : step, j)];
        T next = reduceScalar(getKind(), running, value);
        value = getExclusive() ? running : next;
        running = next;
      }
    });
    return one(store(input.getKind(), input.getShape(), std::move(values)));
  });
}

Results ArgReduceOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &input = operands[0];
  Lanes lanes(input.getShape(), getDim());
  bool isMax = getKind() == dist::ReductionKind::Max;
  std::vector<int64_t> places(lanes.outer * lanes.inner);
  withComputeType(input.getKind(), [&](auto sample) {
    using T = decltype(sample);
    std::vector<T> values = load<T>(input);
    lanes.forEach([&](int64_t i, int64_t j) {
      int64_t &best = places[i * lanes.inner + j];
      for (int64_t place = 1; place < lanes.size; ++place) {
        T x = values[lanes.at(i, place, j)], peak = values[lanes.at(i, best, j)];
        bool better = isNaN(x) ? !isNaN(peak) : !isNaN(peak) && (isMax ? peak < x : x < peak);
        bool equal = isNaN(x) ? isNaN(peak) : x == peak;
        if (better || (getLast() && equal))
          best = place;
      }
    });
  });
  return one(HostTensor::fromInts(ElementKind::I64, resultShape(*this), places));
}

Results ArgsortOp::evaluate(ArrayRef<HostTensor> operands) {
  const HostTensor &input = operands[0];
  Lanes lanes(input.getShape(), getDim()), out(resultShape(*this), getDim());
  std::vector<int64_t> places(loom::countElements(resultShape(*this)));
  withComputeType(input.getKind(), [&](auto sample) {
    using T = decltype(sample);
    std::vector<T> values = load<T>(input);
    std::vector<int64_t> order(lanes.size);
    lanes.forEach([&](int64_t i, int64_t j) {
      for (auto [place, value] : llvm::enumerate(order))
        value = place;
      llvm::stable_sort(order, [&](int64_t a, int64_t b) {
        return isBefore(values[lanes.at(i, a, j)], values[lanes.at(i, b, j)], getDescending());
      });
      for (int64_t place = 0; place < out.size; ++place)
        places[out.at(i, place, j)] = order[place];
    });
  });
  return one(HostTensor::fromInts(ElementKind::I64, resultShape(*this), places));
}
