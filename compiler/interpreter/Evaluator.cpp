//===- Evaluator.cpp - operations of one device ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Evaluator.h"

#include "dialects/loom/LoomEvaluate.h"

using namespace mlir;
using namespace gridloom;
using loom::ElementKind;
using loom::HostTensor;

FailureOr<TensorList> Evaluator::evaluate(Operation *op, ArrayRef<HostTensor> operands) {
  FailureOr<TensorList> results = TensorList();
  if (auto call = dyn_cast<plan::CallOp>(op)) {
    auto kernel = symbols.lookup<plan::KernelOp>(call.getKernel());
    if (!kernel)
      return op->emitOpError() << "calls kernel '" << call.getKernel()
                               << "', which the module has not";
    results = evaluateBlock(kernel.getBody().front(), operands);
  } else if (auto matmul = dyn_cast<plan::MatmulOp>(op)) {
    results = evaluateMatmul(matmul, operands);
  } else if (auto gather = dyn_cast<loom::GatherOp>(op)) {
    FailureOr<HostTensor> result =
        loom::evaluateGather(gather, operands[0], operands[1], options.poisonOutside);
    if (failed(result))
      return failure();
    results->push_back(*std::move(result));
  } else if (auto gather = dyn_cast<loom::GatherElementsOp>(op)) {
    FailureOr<HostTensor> result =
        loom::evaluateGatherElements(gather, operands[0], operands[1], options.poisonOutside);
    if (failed(result))
      return failure();
    results->push_back(*std::move(result));
  } else if (auto evaluable = dyn_cast<loom::EvaluateInterface>(op)) {
    results = evaluable.evaluate(operands);
  } else {
    return op->emitOpError("has no reference evaluation");
  }
  if (failed(results))
    return failure();
  for (auto [result, tensor] : llvm::zip_equal(op->getResults(), *results)) {
    auto type = cast<RankedTensorType>(result.getType());
    if (type.getShape() != tensor.getShape())
      return op->emitOpError() << "evaluates to shape ["
                               << llvm::make_range(tensor.getShape().begin(),
                                                   tensor.getShape().end())
                               << "], its type is " << type;
    if (options.exact)
      tensor = tensor.toExactMode();
  }
  return results;
}

FailureOr<TensorList> Evaluator::evaluateBlock(Block &block, ArrayRef<HostTensor> arguments) {
  DenseMap<Value, HostTensor> values;
  for (auto [argument, tensor] : llvm::zip_equal(block.getArguments(), arguments))
    values[argument] = tensor;
  TensorList operands;
  for (Operation &op : block) {
    operands.clear();
    for (Value operand : op.getOperands())
      operands.push_back(values.lookup(operand));
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    FailureOr<TensorList> results = TensorList();
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      FailureOr<HostTensor> tensor = getGlobalWeight(weight);
      if (failed(tensor))
        return failure();
      results->push_back(*std::move(tensor));
    } else {
      results = evaluate(&op, operands);
    }
    if (failed(results))
      return failure();
    for (auto [result, tensor] : llvm::zip_equal(op.getResults(), *results))
      values[result] = std::move(tensor);
  }
  return operands;
}

FailureOr<HostTensor> Evaluator::getGlobalWeight(loom::GetWeightOp op) {
  auto found = globals.find(op.getName());
  if (found != globals.end())
    return found->second;
  FailureOr<HostTensor> tensor = failure();
  Operation *symbol = symbols.lookup(op.getName());
  if (auto weight = dyn_cast_or_null<loom::WeightOp>(symbol)) {
    tensor = weights.load(weight);
  } else if (auto derived = dyn_cast_or_null<loom::DerivedOp>(symbol)) {
    FailureOr<TensorList> results = evaluateBlock(derived.getBody().front(), {});
    if (succeeded(results))
      tensor = results->front();
  } else {
    return op.emitOpError() << "names '" << op.getName() << "', which is no weight of the module";
  }
  if (failed(tensor))
    return failure();
  if (options.exact)
    *tensor = tensor->toExactMode();
  globals[op.getName()] = *tensor;
  return tensor;
}

//===----------------------------------------------------------------------===//
// plan.matmul
//===----------------------------------------------------------------------===//

/// The memory of an operand: with its padding when it is a weight stored with some.
static HostTensor getPhysical(Value operand, const HostTensor &tensor) {
  auto weight = operand.getDefiningOp<loom::GetWeightOp>();
  if (!weight || !weight.getLayout() || weight.getLayout()->getPad() == 0)
    return tensor;
  SmallVector<int64_t> starts(tensor.getRank(), 0), sizes(tensor.getShape());
  sizes.back() += weight.getLayout()->getPad();
  return tensor.extract(starts, sizes);
}

/// One past the last element that strides reach.
static int64_t getReach(ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  int64_t last = 0;
  for (auto [size, stride] : llvm::zip_equal(sizes, strides))
    last += (size - 1) * stride;
  return last + 1;
}

/// A scale in exact mode. Where the model divides by an f32 the descriptor holds the reciprocal,
/// rounded to f64; exactly it is one over that f32.
static loom::Exact getExactScale(double alpha) {
  auto divisor = static_cast<double>(static_cast<float>(1 / alpha));
  if (alpha != static_cast<double>(static_cast<float>(alpha)) && 1 / divisor == alpha)
    return loom::Exact::fromDouble(divisor).inverse();
  return loom::Exact::fromDouble(alpha);
}

/// The product as alpha times it, plus a bias along the last dimension, rounded once.
template <typename T> static void applyEpilogue(std::vector<T> &values, T alpha, ArrayRef<T> bias) {
  for (auto [i, value] : llvm::enumerate(values)) {
    value = value * alpha;
    if (!bias.empty())
      value = value + bias[i % bias.size()];
  }
}

FailureOr<TensorList> Evaluator::evaluateMatmul(plan::MatmulOp op, ArrayRef<HostTensor> operands) {
  plan::MatmulAttr descriptor = op.getDescriptor();
  ArrayRef<int64_t> sizes = descriptor.getSizes();
  ArrayRef<int64_t> batch = sizes.drop_back(3);
  int64_t m = sizes[sizes.size() - 3], n = sizes[sizes.size() - 2], k = sizes.back();
  int64_t batches = loom::countElements(batch);
  auto view = [&](int64_t rows, int64_t columns) {
    SmallVector<int64_t> shape(batch);
    shape.append({rows, columns});
    return shape;
  };
  HostTensor lhs = getPhysical(op.getLhs(), operands[0]),
             rhs = getPhysical(op.getRhs(), operands[1]);
  auto outType = cast<RankedTensorType>(op.getOutput().getType());
  HostTensor out(options.exact ? ElementKind::Exact : operands[0].getKind(), outType.getShape());
  if (getReach(view(m, k), descriptor.getLhs()) > lhs.getNumElements() ||
      getReach(view(k, n), descriptor.getRhs()) > rhs.getNumElements() ||
      getReach(view(m, n), descriptor.getOut()) > out.getNumElements())
    return op.emitOpError("has a descriptor that reaches beyond its operands");
  lhs = loom::gatherStrided(lhs, view(m, k), descriptor.getLhs()).reshaped({batches, m, k});
  rhs = loom::gatherStrided(rhs, view(k, n), descriptor.getRhs()).reshaped({batches, k, n});
  HostTensor product = loom::contract(lhs, rhs, ElementKind::F64);
  double alpha = descriptor.getAlphaValue();
  if (options.exact) {
    std::vector<loom::Exact> values = product.toExact(), bias;
    if (op.getBias())
      bias = operands[2].toExact();
    applyEpilogue<loom::Exact>(values, getExactScale(alpha), bias);
    product = HostTensor::fromExact(product.getShape(), std::move(values));
  } else {
    std::vector<double> values = product.toDoubles(), bias;
    if (op.getBias())
      bias = operands[2].toDoubles();
    applyEpilogue<double>(values, alpha, bias);
    product = HostTensor::fromDoubles(out.getKind(), product.getShape(), values);
  }
  // Where each element of the product goes in the output's memory.
  std::vector<int64_t> places(out.getNumElements());
  for (auto [i, place] : llvm::enumerate(places))
    place = i;
  HostTensor memory = HostTensor::fromInts(ElementKind::I64, {out.getNumElements()}, places);
  HostTensor targets = loom::gatherStrided(memory, view(m, n), descriptor.getOut());
  out.fillWithPoison();
  size_t size = out.getElementSize();
  char *data = out.getMutableData();
  for (auto [i, target] : llvm::enumerate(targets.getValues<int64_t>()))
    std::memcpy(data + target * size, product.getData() + i * size, size);
  return TensorList{std::move(out)};
}
