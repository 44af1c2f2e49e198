//===- LoomWindowRules.cpp - sharding rules of window operations ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Halo.h"
#include "dialects/loom/LoomWindow.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom::dist;
using namespace gridloom::loom;
using llvm::enumerate;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// Fetches what a device's `part` output positions read along a dimension: `reach` elements of the
/// padded input each, `stride` apart.
static Value fetchDim(OpBuilder &builder, Location loc, Value shard, const CutDim &cut,
                      int64_t part, int64_t stride, int64_t reach, int64_t low, int64_t interior,
                      Attribute fill) {
  int64_t size = (part - 1) * stride + reach;
  Window window =
      Window::regular(getNumParts(builder, cut.axes), part * stride, -low, size, interior);
  return fetchWindow(builder, loc, shard, cut, window, fill);
}

//===----------------------------------------------------------------------===//
// pad
//===----------------------------------------------------------------------===//

ShardingRule PadOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  for (auto [i, size] : enumerate(shapeOf(getOutput())))
    addWindowDim(rule, in, out, size,
                 getLow()[i] == 0 && getHigh()[i] == 0 && getInterior()[i] == 0,
                 {.begin = -getLow()[i], .interior = getInterior()[i]});
  rule.tensors = {in, out};
  return rule;
}

/// Linear, f(x + y) = f(x) + f(y), if the padding is zero.
bool PadOp::isLinear() {
  if (auto value = dyn_cast<FloatAttr>(getValue()))
    return value.getValue().isZero();
  auto value = dyn_cast<IntegerAttr>(getValue());
  return value && value.getValue().isZero();
}

SmallVector<Value> PadOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                    FactorAxes axes) {
  Value input = operands[0];
  SmallVector<int64_t> low(getLow()), high(getHigh()), interior(getInterior());
  for (auto [dim, size] : enumerate(shapeOf(getInput()))) {
    if (axes[dim].empty() || (!low[dim] && !high[dim] && !interior[dim]))
      continue;
    int64_t part = cast<RankedTensorType>(types[0]).getDimSize(dim);
    input = fetchDim(builder, getLoc(), input, {static_cast<int64_t>(dim), size, axes[dim]}, part,
                     1, 1, low[dim], interior[dim], getValue());
    low[dim] = high[dim] = interior[dim] = 0;
  }
  return {PadOp::create(builder, getLoc(), types[0], input, getValueAttr(), low, high, interior)};
}

//===----------------------------------------------------------------------===//
// window, reduce_window
//===----------------------------------------------------------------------===//

/// Adds the dimensions of the input and the output's leading ones: windows slide over the
/// operation's dims, after `low` elements of padding; other dimensions are the same in both.
template <typename Op>
static void addSlidDims(Op op, ShardingRule &rule, TensorFactors &in, TensorFactors &out,
                        ArrayRef<int64_t> low) {
  ArrayRef<int64_t> dims = op.getDims();
  for (int64_t i = 0; i < static_cast<int64_t>(shapeOf(op.getInput()).size()); ++i) {
    size_t at = llvm::find(dims, i) - dims.begin();
    bool isSame = at == dims.size();
    WindowDim window;
    if (!isSame)
      window = {.step = op.getStrides()[at],
                .begin = -low[at],
                .reach = (op.getSizes()[at] - 1) * op.getDilations()[at] + 1};
    addWindowDim(rule, in, out, shapeOf(op.getOutput())[i], isSame, window);
  }
}

ShardingRule WindowOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  addSlidDims(*this, rule, in, out, SmallVector<int64_t>(getDims().size(), 0));
  for (int64_t size : getSizes())
    out.push_back({rule.addFactor(size, FactorKind::NeedReplication)});
  rule.tensors = {in, out};
  return rule;
}

bool WindowOp::isLinear() { return true; }

SmallVector<Value> WindowOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                       FactorAxes axes) {
  Value input = operands[0];
  for (auto [dim, window, stride, dilation] :
       llvm::zip_equal(getDims(), getSizes(), getStrides(), getDilations())) {
    if (axes[dim].empty())
      continue;
    auto type = cast<RankedTensorType>(types[0]);
    Attribute none = getNeutralElement(type.getElementType(), ReductionKind::Sum);
    input = fetchDim(builder, getLoc(), input, {dim, shapeOf(getInput())[dim], axes[dim]},
                     type.getDimSize(dim), stride, (window - 1) * dilation + 1, 0, 0, none);
  }
  return cloneWithLocalTypes(builder, *this, input, types);
}

ShardingRule ReduceWindowOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  addSlidDims(*this, rule, in, out, getLow());
  rule.tensors = {in, out};
  return rule;
}

bool ReduceWindowOp::isLinear() { return getKind() == ReductionKind::Sum; }

SmallVector<Value> ReduceWindowOp::partition(OpBuilder &builder, ValueRange operands,
                                             TypeRange types, FactorAxes axes) {
  Value input = operands[0];
  auto type = cast<RankedTensorType>(types[0]);
  SmallVector<int64_t> low(getLow()), high(getHigh());
  for (auto [i, dim] : enumerate(getDims())) {
    if (axes[dim].empty())
      continue;
    input =
        fetchDim(builder, getLoc(), input, {dim, shapeOf(getInput())[dim], axes[dim]},
                 type.getDimSize(dim), getStrides()[i], (getSizes()[i] - 1) * getDilations()[i] + 1,
                 low[i], 0, getNeutralElement(type.getElementType(), getKind()));
    low[i] = high[i] = 0;
  }
  return {ReduceWindowOp::create(builder, getLoc(), type, input, getKind(), getDims(), getSizes(),
                                 getStrides(), low, high, getDilations())};
}

//===----------------------------------------------------------------------===//
// convolution
//===----------------------------------------------------------------------===//

/// Batch and output channels split the result; input channels leave partial sums. If there are
/// several groups, they are the major factor of both kinds of channels.
ShardingRule ConvolutionOp::getShardingRule() {
  ShardingRule rule;
  ArrayRef<int64_t> input = shapeOf(getInput()), weight = shapeOf(getWeight()),
                    output = shapeOf(getOutput());
  auto groups = static_cast<int64_t>(getGroups());
  int64_t batch = rule.addFactor(input[0]);
  TensorFactors in{{batch}, {}}, kernel{{}, {}}, out{{batch}, {}};
  if (groups > 1) {
    int64_t group = rule.addFactor(groups);
    for (auto *channels : {&in[1], &kernel[0], &out[1]})
      channels->push_back(group);
  }
  if (int64_t share = output[1] / groups; share > 1 || groups == 1) {
    int64_t factor = rule.addFactor(share);
    kernel[0].push_back(factor);
    out[1].push_back(factor);
  }
  int64_t depth = rule.addFactor(weight[1], FactorKind::Reduction);
  if (weight[1] > 1 || groups == 1)
    in[1].push_back(depth);
  kernel[1].push_back(depth);
  for (size_t i = 2; i < input.size(); ++i) {
    size_t at = i - 2;
    addWindowDim(rule, in, out, output[i], /*isSame=*/false,
                 {.step = getStrides()[at],
                  .begin = -getLow()[at],
                  .reach = (weight[i] - 1) * getDilations()[at] + 1,
                  .interior = getInputDilations()[at] - 1});
    kernel.push_back({rule.addFactor(weight[i], FactorKind::NeedReplication)});
  }
  rule.tensors = {in, kernel, out};
  return rule;
}

/// If a spatial dimension is split, fetches the halo that the device's part of the output reads,
/// with the zeros around and between elements.
SmallVector<Value> ConvolutionOp::partition(OpBuilder &builder, ValueRange operands,
                                            TypeRange types, FactorAxes axes) {
  ShardingRule rule = getShardingRule();
  auto type = cast<RankedTensorType>(types[0]);
  Value input = operands[0];
  SmallVector<int64_t> low(getLow()), high(getHigh()), spacing(getInputDilations());
  for (size_t i = 0; i < low.size(); ++i) {
    int64_t dim = i + 2;
    const AxisList &split = axes[rule.tensors[2][dim].front()];
    if (split.empty())
      continue;
    int64_t reach = (shapeOf(getWeight())[dim] - 1) * getDilations()[i] + 1;
    input = fetchDim(builder, getLoc(), input, {dim, shapeOf(getInput())[dim], split},
                     type.getDimSize(dim), getStrides()[i], reach, low[i], spacing[i] - 1,
                     getNeutralElement(type.getElementType(), ReductionKind::Sum));
    low[i] = high[i] = 0;
    spacing[i] = 1;
  }
  int64_t groups = getGroups();
  if (groups > 1)
    groups = shapeOf(input)[1] / shapeOf(operands[1])[1];
  return {ConvolutionOp::create(builder, getLoc(), type, input, operands[1], getStrides(), low,
                                high, spacing, getDilations(), groups, getTf32())};
}
