//===- LoomWindowEvaluate.cpp - reference evaluation of windows -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomEvaluate.h"
#include "dialects/loom/LoomWindow.h"
#include "dialects/loom/Padding.h"

#include <cstring>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

using Results = FailureOr<SmallVector<HostTensor>>;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static void copyRows(const char *source, char *target, size_t bytes, ArrayRef<int64_t> shape,
                     ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  if (shape.empty()) {
    std::memcpy(target, source, bytes);
    return;
  }
  for (int64_t i = 0; i < shape[0]; ++i)
    copyRows(source + i * from[0] * bytes, target + i * to[0] * bytes, bytes, shape.drop_front(),
             from.drop_front(), to.drop_front());
}

/// `input` with `fill`, of its element type, around and between its elements.
static HostTensor padTensor(const HostTensor &input, Attribute fill, ArrayRef<int64_t> low,
                            ArrayRef<int64_t> high, ArrayRef<int64_t> interior) {
  SmallVector<int64_t> shape;
  for (auto [size, before, after, between] : llvm::zip_equal(input.getShape(), low, high, interior))
    shape.push_back(getPaddedSize(size, before, after, between));
  auto scalar = RankedTensorType::get({}, cast<TypedAttr>(fill).getType());
  HostTensor value = *HostTensor::fromAttribute(DenseElementsAttr::get(scalar, fill));
  if (input.getKind() == ElementKind::Exact)
    value = value.toExactMode();
  SmallVector<int64_t> strides(shape.size(), 0);
  HostTensor result = gatherStrided(value, shape, strides);

  SmallVector<int64_t> target = getRowMajorStrides(shape);
  int64_t offset = 0;
  for (auto [stride, before, between] : llvm::zip_equal(target, low, interior)) {
    offset += before * stride;
    stride *= between + 1;
  }
  if (input.getNumElements() > 0)
    copyRows(input.getData(), result.getMutableData() + offset * input.getElementSize(),
             input.getElementSize(), input.getShape(), getRowMajorStrides(input.getShape()),
             target);
  return result;
}

Results PadOp::evaluate(ArrayRef<HostTensor> operands) {
  return SmallVector<HostTensor>{
      padTensor(operands[0], getValue(), getLow(), getHigh(), getInterior())};
}

Results WindowOp::evaluate(ArrayRef<HostTensor> operands) {
  SmallVector<int64_t> strides = getRowMajorStrides(operands[0].getShape()), inner;
  for (auto [dim, stride, dilation] : llvm::zip_equal(getDims(), getStrides(), getDilations())) {
    inner.push_back(strides[dim] * dilation);
    strides[dim] *= stride;
  }
  strides.append(inner);
  return SmallVector<HostTensor>{gatherStrided(operands[0], shapeOf(getOutput()), strides)};
}

Results ReduceWindowOp::evaluate(ArrayRef<HostTensor> operands) {
  SmallVector<int64_t> low(operands[0].getRank(), 0), high(low), interior(low);
  for (auto [i, dim] : llvm::enumerate(getDims())) {
    low[dim] = getLow()[i];
    high[dim] = getHigh()[i];
  }
  Type element = cast<RankedTensorType>(getInput().getType()).getElementType();
  HostTensor padded =
      padTensor(operands[0], getNeutralElement(element, getKind()), low, high, interior);
  SmallVector<int64_t> source = getRowMajorStrides(padded.getShape()), strides(source);
  for (auto [dim, stride] : llvm::zip_equal(getDims(), getStrides()))
    strides[dim] *= stride;
  // One tensor per element of the window: the values that all positions read there.
  SmallVector<HostTensor> parts;
  for (int64_t number = 0, count = computeProduct(getSizes()); number < count; ++number) {
    int64_t offset = 0, rest = number;
    for (size_t i = getDims().size(); i-- > 0; rest /= getSizes()[i])
      offset += rest % getSizes()[i] * getDilations()[i] * source[getDims()[i]];
    parts.push_back(gatherStrided(padded, shapeOf(getOutput()), strides, offset));
  }
  return SmallVector<HostTensor>{combine(getKind(), parts)};
}

/// A product of matrices per group: weights times what each output position reads.
Results ConvolutionOp::evaluate(ArrayRef<HostTensor> operands) {
  SmallVector<int64_t> low{0, 0}, high{0, 0}, interior{0, 0};
  llvm::append_range(low, getLow());
  llvm::append_range(high, getHigh());
  for (int64_t dilation : getInputDilations())
    interior.push_back(dilation - 1);
  auto type = cast<RankedTensorType>(getInput().getType());
  HostTensor input = padTensor(
      operands[0], Builder(getContext()).getZeroAttr(type.getElementType()), low, high, interior);
  ArrayRef<int64_t> weight = operands[1].getShape(), output = shapeOf(getOutput());
  auto groups = static_cast<int64_t>(getGroups());
  int64_t batch = output[0], share = output[1] / groups,
          positions = computeProduct(output.drop_front(2)),
          depth = computeProduct(weight.drop_front(1));

  // [group, channel, window..., batch, position...]
  SmallVector<int64_t> source = getRowMajorStrides(input.getShape());
  SmallVector<int64_t> shape{groups, weight[1]}, strides{weight[1] * source[1], source[1]};
  for (auto [i, dilation] : llvm::enumerate(getDilations())) {
    shape.push_back(weight[i + 2]);
    strides.push_back(source[i + 2] * dilation);
  }
  shape.push_back(batch);
  strides.push_back(source[0]);
  for (auto [i, stride] : llvm::enumerate(getStrides())) {
    shape.push_back(output[i + 2]);
    strides.push_back(source[i + 2] * stride);
  }
  HostTensor columns =
      gatherStrided(input, shape, strides).reshaped({groups, depth, batch * positions});
  HostTensor product =
      contract(operands[1].reshaped({groups, share, depth}), columns, operands[0].getKind());
  SmallVector<int64_t> order{positions, share * batch * positions, batch * positions, 1};
  return SmallVector<HostTensor>{
      gatherStrided(product, {batch, groups, share, positions}, order).reshaped(output)};
}
