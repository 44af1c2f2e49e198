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
                               << "', which is not in the module";
    results = evaluateBlock(kernel.getBody().front(), operands);
  } else if (auto matmul = dyn_cast<plan::MatmulOp>(op)) {
    results = evaluateMatmul(matmul, operands);
  } else if (auto convolution = dyn_cast<plan::ConvolutionOp>(op)) {
    results = evaluateConvolution(convolution, operands);
  } else if (auto attention = dyn_cast<plan::AttentionOp>(op)) {
    results = evaluateAttention(attention, operands);
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
    return op.emitOpError() << "names '" << op.getName()
                            << "', which is not a weight of the module";
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

/// The memory of an operand, including the padding of a weight that is stored padded.
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

/// Puts the elements of `dense` at the strides' places in `out`, and poison everywhere else.
static void scatterStrided(const HostTensor &dense, HostTensor &out, ArrayRef<int64_t> shape,
                           ArrayRef<int64_t> strides) {
  std::vector<int64_t> places(out.getNumElements());
  for (auto [i, place] : llvm::enumerate(places))
    place = i;
  HostTensor memory = HostTensor::fromInts(ElementKind::I64, {out.getNumElements()}, places);
  HostTensor targets = loom::gatherStrided(memory, shape, strides);
  out.fillWithPoison();
  size_t size = out.getElementSize();
  char *data = out.getMutableData();
  for (auto [i, target] : llvm::enumerate(targets.getValues<int64_t>()))
    std::memcpy(data + target * size, dense.getData() + i * size, size);
}

/// A scale in exact mode. Where the model divides by an f32 the descriptor holds the reciprocal,
/// rounded to f64; exactly it is one over that f32.
static loom::Exact getExactScale(double alpha) {
  auto divisor = static_cast<double>(static_cast<float>(1 / alpha));
  if (alpha != static_cast<double>(static_cast<float>(alpha)) && 1 / divisor == alpha)
    return loom::Exact::fromDouble(divisor).inverse();
  return loom::Exact::fromDouble(alpha);
}

/// Scales a product by alpha and adds a residual and a bias along the last dimension, rounded once.
template <typename T>
static void applyEpilogue(std::vector<T> &values, T alpha, ArrayRef<T> residual, ArrayRef<T> bias) {
  for (auto [i, value] : llvm::enumerate(values)) {
    value = value * alpha;
    if (!residual.empty())
      value = value + residual[i];
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
  std::optional<ElementKind> kind = loom::getElementKind(outType.getElementType());
  if (!kind)
    return op.emitOpError("has a result of type ") << outType;
  HostTensor out(options.exact ? ElementKind::Exact : *kind, outType.getShape());
  if (getReach(view(m, k), descriptor.getLhs()) > lhs.getNumElements() ||
      getReach(view(k, n), descriptor.getRhs()) > rhs.getNumElements() ||
      getReach(view(m, n), descriptor.getOut()) > out.getNumElements())
    return op.emitOpError("has a descriptor that reaches beyond its operands");
  lhs = loom::gatherStrided(lhs, view(m, k), descriptor.getLhs()).reshaped({batches, m, k});
  rhs = loom::gatherStrided(rhs, view(k, n), descriptor.getRhs()).reshaped({batches, k, n});
  // With a fallback, that kernel defines the epilogue.
  bool addsBias = op.getBias() && !op.getFallback();
  HostTensor residual;
  if (op.getResidual())
    residual = loom::gatherStrided(operands.back(), view(m, n), descriptor.getOut());
  HostTensor product = loom::contract(lhs, rhs, ElementKind::F64);
  double alpha = descriptor.getAlphaValue();
  if (options.exact) {
    std::vector<loom::Exact> values = product.toExact(), added, bias;
    if (op.getResidual())
      added = residual.toExact();
    if (addsBias)
      bias = operands[2].toExact();
    applyEpilogue<loom::Exact>(values, getExactScale(alpha), added, bias);
    product = HostTensor::fromExact(product.getShape(), std::move(values));
  } else {
    std::vector<double> values = product.toDoubles(), added, bias;
    if (op.getResidual())
      added = residual.toDoubles();
    if (addsBias)
      bias = operands[2].toDoubles();
    applyEpilogue<double>(values, alpha, added, bias);
    product = HostTensor::fromDoubles(out.getKind(), product.getShape(), values);
  }
  scatterStrided(product, out, view(m, n), descriptor.getOut());
  if (!op.getFallback())
    return TensorList{std::move(out)};
  auto kernel = symbols.lookup<plan::KernelOp>(*op.getFallback());
  if (!kernel)
    return op.emitOpError() << "falls back to kernel '" << *op.getFallback()
                            << "', which is not in the module";
  TensorList arguments{std::move(out)};
  llvm::append_range(arguments, operands.slice(2, op.getBias() ? 1 : 0));
  return evaluateBlock(kernel.getBody().front(), arguments);
}

//===----------------------------------------------------------------------===//
// plan.convolution and plan.attention
//===----------------------------------------------------------------------===//

namespace {

/// A library call as loom operations on dense operands.
class Expansion {
public:
  explicit Expansion(Operation *op) : op(op), builder(op->getContext()) {
    builder.setInsertionPointToEnd(&block);
  }

  /// Operand `value` as a dense tensor of `shape`; null where strides reach beyond it.
  Value read(Value value, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
    auto place = llvm::find(op->getOperands(), value);
    HostTensor memory = getPhysical(value, given[std::distance(op->operand_begin(), place)]);
    if (getReach(shape, strides) > memory.getNumElements())
      return {};
    dense.push_back(loom::gatherStrided(memory, shape, strides));
    Type element = cast<RankedTensorType>(value.getType()).getElementType();
    return block.addArgument(RankedTensorType::get(shape, element), op->getLoc());
  }

  template <typename Op, typename... Args> Op make(Args &&...args) {
    return Op::create(builder, op->getLoc(), std::forward<Args>(args)...);
  }
  Value convert(Value value, Type element) {
    return make<loom::ConvertOp>(cast<RankedTensorType>(value.getType()).clone(element), value);
  }
  Value splat(RankedTensorType type, double value) {
    auto number = builder.getFloatAttr(type.getElementType(), value);
    return make<loom::ConstantOp>(type, SplatElementsAttr::get(type, number));
  }

  Operation *op;
  ArrayRef<HostTensor> given;
  OpBuilder builder;
  Block block;
  SmallVector<HostTensor> dense;
};

} // namespace

FailureOr<TensorList> Evaluator::evaluateConvolution(plan::ConvolutionOp op,
                                                     ArrayRef<HostTensor> operands) {
  plan::ConvolutionAttr descriptor = op.getDescriptor();
  Expansion expansion(op);
  expansion.given = operands;
  ArrayRef<int64_t> shape = descriptor.getOutput();
  Value input = expansion.read(op.getInput(), descriptor.getInput(), descriptor.getInputStrides());
  Value weight =
      expansion.read(op.getWeight(), descriptor.getWeight(), descriptor.getWeightStrides());
  Value bias = op.getBias() ? expansion.read(op.getBias(), shape[1], 1) : Value();
  Value residual = op.getResidual()
                       ? expansion.read(op.getResidual(), shape, descriptor.getOutputStrides())
                       : Value();
  if (!input || !weight || (op.getBias() && !bias) || (op.getResidual() && !residual))
    return op.emitOpError("has a descriptor that reaches beyond its operands");
  auto outType = cast<RankedTensorType>(op.getOutput().getType());
  auto type = RankedTensorType::get(shape, outType.getElementType());
  SmallVector<int64_t> undilated(descriptor.getStrides().size(), 1);
  Value result = expansion.make<loom::ConvolutionOp>(
      type, input, weight, descriptor.getStrides(), descriptor.getLow(), descriptor.getHigh(),
      undilated, descriptor.getDilations(), descriptor.getGroups());
  if (bias)
    result = expansion.make<loom::AddOp>(
        result, expansion.make<loom::BroadcastOp>(type, bias, ArrayRef<int64_t>{1}));
  if (residual)
    result = expansion.make<loom::AddOp>(result, residual);
  if (descriptor.getEpilogue().getActivation() == plan::Activation::Relu)
    result = expansion.make<loom::MaximumOp>(result, expansion.splat(type, 0));
  expansion.make<loom::YieldOp>(result);
  FailureOr<TensorList> results = evaluateBlock(expansion.block, expansion.dense);
  if (failed(results))
    return failure();
  HostTensor out(results->front().getKind(), outType.getShape());
  if (getReach(shape, descriptor.getOutputStrides()) > out.getNumElements())
    return op.emitOpError("has a descriptor that reaches beyond its result");
  scatterStrided(results->front(), out, shape, descriptor.getOutputStrides());
  return TensorList{std::move(out)};
}

FailureOr<TensorList> Evaluator::evaluateAttention(plan::AttentionOp op,
                                                   ArrayRef<HostTensor> operands) {
  plan::AttentionAttr descriptor = op.getDescriptor();
  ArrayRef<int64_t> sizes = descriptor.getSizes();
  int64_t queries = sizes[2], keys = sizes[3], depth = sizes[4], depthOut = sizes[5];
  auto with = [&](int64_t rows, int64_t columns) {
    return SmallVector<int64_t>{sizes[0], sizes[1], rows, columns};
  };
  Expansion expansion(op);
  expansion.given = operands;
  Value query = expansion.read(op.getQuery(), with(queries, depth), descriptor.getQuery());
  Value key = expansion.read(op.getKey(), with(keys, depth), descriptor.getKey());
  Value value = expansion.read(op.getValue(), with(keys, depthOut), descriptor.getValue());
  Value mask = op.getMask()
                   ? expansion.read(op.getMask(), with(queries, keys), descriptor.getMask())
                   : Value();
  if (!query || !key || !value || (op.getMask() && !mask))
    return op.emitOpError("has a descriptor that reaches beyond its operands");
  auto outType = cast<RankedTensorType>(op.getOutput().getType());
  Type f32 = expansion.builder.getF32Type(), i64 = expansion.builder.getI64Type();
  auto type = RankedTensorType::get(with(queries, keys), f32);
  auto multiply = [&](Value lhs, Value rhs, int64_t contract, ArrayRef<int64_t> shape) {
    return expansion.make<loom::DotGeneralOp>(
        RankedTensorType::get(shape, f32), expansion.convert(lhs, f32), expansion.convert(rhs, f32),
        ArrayRef<int64_t>{0, 1}, ArrayRef<int64_t>{0, 1}, ArrayRef<int64_t>{3},
        ArrayRef<int64_t>{contract});
  };
  Value scores = multiply(query, key, 3, type.getShape());
  scores = expansion.make<loom::MultiplyOp>(
      scores, expansion.splat(type, descriptor.getScale().getValueAsDouble()));
  if (mask)
    scores = expansion.make<loom::AddOp>(scores, expansion.convert(mask, f32));
  if (descriptor.getCausal()) {
    auto index = [&](int64_t dim) { return expansion.make<loom::IotaOp>(type.clone(i64), dim); };
    Value hidden = expansion.splat(type, -std::numeric_limits<double>::infinity());
    Value seen = expansion.make<loom::CompareOp>(type.clone(expansion.builder.getI1Type()),
                                                 index(2), index(3), loom::Direction::GE);
    scores = expansion.make<loom::SelectOp>(seen, scores, hidden);
  }
  Value weights = expansion.make<loom::SoftmaxOp>(type, scores, 3);
  Value result = multiply(weights, value, 2, with(queries, depthOut));
  expansion.make<loom::YieldOp>(expansion.convert(result, outType.getElementType()));
  FailureOr<TensorList> results = evaluateBlock(expansion.block, expansion.dense);
  if (failed(results))
    return failure();
  HostTensor out(results->front().getKind(), outType.getShape());
  if (getReach(with(queries, depthOut), descriptor.getOut()) > out.getNumElements())
    return op.emitOpError("has a descriptor that reaches beyond its result");
  scatterStrided(results->front(), out, with(queries, depthOut), descriptor.getOut());
  return TensorList{std::move(out)};
}
