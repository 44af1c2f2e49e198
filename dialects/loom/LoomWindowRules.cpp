//===- LoomWindowRules.cpp - how window operations can be split -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomWindow.h"

using namespace mlir;
using namespace gridloom::dist;
using namespace gridloom::loom;
using llvm::enumerate;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// Dimensions of one size on both sides are one factor; the others have to be whole.
static void addWholeUnlessEqual(ShardingRule &rule, TensorFactors &in, TensorFactors &out,
                                int64_t from, int64_t to, bool isSame) {
  if (isSame) {
    in.push_back({rule.addFactor(from)});
    out.push_back(in.back());
    return;
  }
  in.push_back({rule.addFactor(from, FactorKind::NeedReplication)});
  out.push_back({rule.addFactor(to, FactorKind::NeedReplication)});
}

//===----------------------------------------------------------------------===//
// pad
//===----------------------------------------------------------------------===//

ShardingRule PadOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  for (auto [i, from] : enumerate(shapeOf(getInput()))) {
    bool isSame = getLow()[i] == 0 && getHigh()[i] == 0 && getInterior()[i] == 0;
    addWholeUnlessEqual(rule, in, out, from, shapeOf(getOutput())[i], isSame);
  }
  rule.tensors = {in, out};
  return rule;
}

/// f(x + y) = f(x) + f(y) where zeros are put in.
bool PadOp::isLinear() {
  if (auto value = dyn_cast<FloatAttr>(getValue()))
    return value.getValue().isZero();
  auto value = dyn_cast<IntegerAttr>(getValue());
  return value && value.getValue().isZero();
}

SmallVector<Value> PadOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                    FactorAxes) {
  return cloneWithLocalTypes(builder, *this, operands, types);
}

//===----------------------------------------------------------------------===//
// window, reduce_window
//===----------------------------------------------------------------------===//

ShardingRule WindowOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  for (auto [i, from] : enumerate(shapeOf(getInput())))
    addWholeUnlessEqual(rule, in, out, from, shapeOf(getOutput())[i],
                        !llvm::is_contained(getDims(), i));
  for (int64_t size : getSizes())
    out.push_back({rule.addFactor(size, FactorKind::NeedReplication)});
  rule.tensors = {in, out};
  return rule;
}

bool WindowOp::isLinear() { return true; }

SmallVector<Value> WindowOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                       FactorAxes) {
  return cloneWithLocalTypes(builder, *this, operands, types);
}

ShardingRule ReduceWindowOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  for (auto [i, from] : enumerate(shapeOf(getInput())))
    addWholeUnlessEqual(rule, in, out, from, shapeOf(getOutput())[i],
                        !llvm::is_contained(getDims(), i));
  rule.tensors = {in, out};
  return rule;
}

bool ReduceWindowOp::isLinear() { return getKind() == ReductionKind::Sum; }

SmallVector<Value> ReduceWindowOp::partition(OpBuilder &builder, ValueRange operands,
                                             TypeRange types, FactorAxes) {
  return cloneWithLocalTypes(builder, *this, operands, types);
}

//===----------------------------------------------------------------------===//
// convolution
//===----------------------------------------------------------------------===//

/// Batch and output channels split the result, input channels leave partial sums. Groups, where
/// there are several, are the major factor of both kinds of channels.
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
    in.push_back({rule.addFactor(input[i], FactorKind::NeedReplication)});
    kernel.push_back({rule.addFactor(weight[i], FactorKind::NeedReplication)});
    out.push_back({rule.addFactor(output[i], FactorKind::NeedReplication)});
  }
  rule.tensors = {in, kernel, out};
  return rule;
}

SmallVector<Value> ConvolutionOp::partition(OpBuilder &builder, ValueRange operands,
                                            TypeRange types, FactorAxes axes) {
  SmallVector<Value> results = cloneWithLocalTypes(builder, *this, operands, types);
  if (getGroups() > 1)
    results[0].getDefiningOp<ConvolutionOp>().setGroups(shapeOf(operands[0])[1] /
                                                        shapeOf(operands[1])[1]);
  return results;
}
