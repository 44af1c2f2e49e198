//===- Normalizations.cpp - softmax and normalisations -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"
#include "dialects/loom/Training.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

static Value softmax(Node &node, Value x, int64_t dim) {
  return node.emit<loom::SoftmaxOp>(x.getType(), x, dim);
}

static Value logSoftmax(Node &node, Value x, int64_t dim) { return node.logSoftmax(x, dim); }

using AlongDim = Value (*)(Node &node, Value x, int64_t dim);

template <AlongDim function> static LogicalResult importAlongAxis(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  auto axis = node.normalizeAxis(node.intAttribute("axis", -1), getTensorType(x).getRank());
  return axis ? node.setResult(function(node, x, *axis)) : failure();
}

/// Up to version 12 the input is seen as a matrix cut at `axis`, and rows are normalised.
template <AlongDim function> static LogicalResult importOfMatrix(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  auto axis = node.normalizeAxis(node.intAttribute("axis", 1), shape.size());
  if (!axis)
    return failure();
  Value matrix = node.reshape(x, {loom::countElements(shape.take_front(*axis)),
                                  loom::countElements(shape.drop_front(*axis))});
  return node.setResult(matrix ? node.reshape(function(node, matrix, 1), shape) : Value());
}

//===----------------------------------------------------------------------===//
// Layer and RMS normalisation
//===----------------------------------------------------------------------===//

/// `parameter` as one number per element of the normalised dimensions.
static Value flattenParameter(Node &node, Value parameter, ArrayRef<int64_t> normalized) {
  if (!parameter)
    return {};
  Value whole = loom::countElements(getShape(parameter)) == loom::countElements(normalized)
                    ? parameter
                    : node.broadcastTo(parameter, normalized);
  return node.reshape(whole, {loom::countElements(normalized)});
}

static LogicalResult checkParameter(Node &node, unsigned index, ArrayRef<int64_t> normalized) {
  ArrayRef<int64_t> shape = getShape(node.operand(index));
  auto joined = node.broadcastShapes(shape, normalized);
  if (!joined)
    return failure();
  if (ArrayRef<int64_t>(*joined) != normalized)
    return node.error() << "input " << index << " is " << toString(shape) << ", expected "
                        << toString(normalized);
  return success();
}

/// Mean and 1 / standard deviation, the optional results of LayerNormalization, in the type that
/// attribute stash_type names.
static LogicalResult importStatistics(Node &node, Value x, int64_t axis, double epsilon) {
  if (!node.hasResult(1) && !node.hasResult(2))
    return success();
  Type stash = node.elementType(node.intAttribute("stash_type", 1));
  if (!stash)
    return failure();
  x = node.widen(x);
  Dims dims = llvm::to_vector(llvm::seq<int64_t>(axis, getTensorType(x).getRank()));
  Value mean = node.mean(x, dims, /*keepDims=*/true);
  Value centred = node.binary<loom::SubtractOp>(x, mean);
  Value variance = node.mean(node.binary<loom::MultiplyOp>(centred, centred), dims, true);
  Value deviation = node.unary<loom::SqrtOp>(node.binary<loom::AddOp>(variance, epsilon));
  Value inverse = node.binary<loom::DivideOp>(node.splatLike(deviation, 1), deviation);
  return failure(failed(node.setResult(1, node.convert(mean, stash))) ||
                 failed(node.setResult(2, node.convert(inverse, stash))));
}

/// Operand 0 as rows of the normalised dimensions, from attribute axis on, and the given operands
/// after it as vectors of a row's length.
struct Rows {
  Value x;
  SmallVector<Value> parameters;
  int64_t axis;
};

static std::optional<Rows> getRows(Node &node, unsigned numParameters) {
  Value x = node.operand(0);
  if (!x)
    return std::nullopt;
  ArrayRef<int64_t> shape = getShape(x);
  auto axis = node.normalizeAxis(node.intAttribute("axis", -1), shape.size());
  if (!axis)
    return std::nullopt;
  ArrayRef<int64_t> normalized = shape.drop_front(*axis);
  Dims rows(shape.take_front(*axis));
  rows.push_back(loom::countElements(normalized));
  Rows result{node.reshape(x, rows), {}, *axis};
  for (unsigned i = 1; i <= numParameters; ++i) {
    bool isThere = i == 1 || node.hasOperand(i);
    Value parameter = isThere ? node.operand(i) : Value();
    if (isThere && (!parameter || failed(checkParameter(node, i, normalized))))
      return std::nullopt;
    result.parameters.push_back(flattenParameter(node, parameter, normalized));
  }
  return result;
}

static LogicalResult importLayerNormalization(Node &node) {
  std::optional<Rows> rows = getRows(node, 2);
  double epsilon = node.floatAttribute("epsilon", 1e-5f);
  if (!rows || failed(importStatistics(node, node.operand(0), rows->axis, epsilon)))
    return failure();
  Value result = node.emit<loom::LayerNormOp>(rows->x.getType(), rows->x, rows->parameters[0],
                                              rows->parameters[1], llvm::APFloat(epsilon));
  return node.setResult(node.reshape(result, getShape(node.operand(0))));
}

static LogicalResult importRmsNormalization(Node &node) {
  std::optional<Rows> rows = getRows(node, 1);
  if (!rows || failed(node.checkSameElementType(rows->x, rows->parameters[0])))
    return failure();
  llvm::APFloat epsilon(double(node.floatAttribute("epsilon", 1e-5f)));
  Value result =
      node.emit<loom::RmsNormOp>(rows->x.getType(), rows->x, rows->parameters[0], epsilon);
  return node.setResult(node.reshape(result, getShape(node.operand(0))));
}

//===----------------------------------------------------------------------===//
// Normalisation per channel
//===----------------------------------------------------------------------===//

/// A vector of one number per channel, repeated over [n, c, ...].
static Value perChannel(Node &node, Value vector, ArrayRef<int64_t> shape) {
  return node.broadcast(vector, shape, {1});
}

/// Fails unless x has channels and operands `first` to `last` one number for each of them or, if
/// given, of the groups.
static LogicalResult checkChannels(Node &node, Value x, unsigned first, unsigned last,
                                   std::optional<int64_t> groups = std::nullopt) {
  if (!x)
    return failure();
  if (getTensorType(x).getRank() < 2)
    return node.error() << "input " << toString(getShape(x)) << " has no channels";
  for (unsigned i = first; i <= last; ++i) {
    if (!node.operand(i))
      return failure();
    int64_t count = groups.value_or(getShape(x)[1]);
    if (getShape(node.operand(i)) != ArrayRef<int64_t>{count})
      return node.error() << "input " << i << " is " << toString(getShape(node.operand(i)))
                          << " for " << count << (groups ? " groups" : " channels");
  }
  return success();
}

/// Result `index` is the running statistic of operand `index` + 2 after this batch, whose own
/// statistic is `current`: old * momentum + current * (1 - momentum). Training makes it the
/// operand's next value.
static LogicalResult importRunning(Node &node, unsigned index, Value current) {
  GraphImporter &importer = node.getImporter();
  Value given = node.operand(index + 2);
  Type type = getTensorType(given).getElementType();
  double momentum = node.floatAttribute("momentum", 0.9F);
  auto update = [&](Value old) {
    Value kept = node.binary<loom::MultiplyOp>(
        node.convert(old, getTensorType(current).getElementType()), momentum);
    Value added = node.binary<loom::MultiplyOp>(current, 1 - momentum);
    return node.convert(node.binary<loom::AddOp>(kept, added), type);
  };
  if (node.hasResult(index) && failed(node.setResult(index, update(given))))
    return failure();
  if (!importer.isTraining())
    return success();
  if (importer.isInBody())
    return node.error() << "updates running statistics in a loop or branch, which cannot be "
                        << "trained; unroll it (--unroll) or export it with training_mode 0";
  TrainingMarks &marks = importer.getTrainingMarks();
  marks.addUpdate(given, update(marks.getLatest(given)));
  return success();
}

/// (x - mean) * scale / sqrt(variance + epsilon) + bias with the statistics of the batch, over all
/// dimensions but the channels (Ioffe and Szegedy 2015, algorithm 1). 16-bit floats are computed in
/// f32.
static LogicalResult importBatchStatistics(Node &node, Value x) {
  Type element = getTensorType(x).getElementType();
  if (!isa<FloatType>(element))
    return node.error() << "input is " << x.getType() << ", expected floats";
  ArrayRef<int64_t> shape = getShape(x);
  Dims dims{0};
  llvm::append_range(dims, llvm::seq<int64_t>(2, shape.size()));
  Value values = node.widen(x), mean = node.mean(values, dims, /*keepDims=*/false);
  Value centred = node.binary<loom::SubtractOp>(values, perChannel(node, mean, shape));
  Value variance = node.mean(node.binary<loom::MultiplyOp>(centred, centred), dims, false);
  Value deviation = node.unary<loom::SqrtOp>(
      node.binary<loom::AddOp>(variance, node.floatAttribute("epsilon", 1e-5F)));
  Type wide = getTensorType(values).getElementType();
  Value factor = node.binary<loom::DivideOp>(node.convert(node.operand(1), wide), deviation);
  Value scaled = node.binary<loom::MultiplyOp>(centred, perChannel(node, factor, shape));
  Value result = node.binary<loom::AddOp>(
      scaled, perChannel(node, node.convert(node.operand(2), wide), shape));
  // Up to version 9 the statistics of the batch are results, too.
  bool hasSaved = node.getOpset() < 14;
  result = node.reshape(node.convert(result, element), getShape(node.operand(0)));
  return failure(failed(node.setResult(result)) || failed(importRunning(node, 1, mean)) ||
                 failed(importRunning(node, 2, variance)) ||
                 (hasSaved && (failed(node.setResult(3, node.convert(mean, element))) ||
                               failed(node.setResult(4, node.convert(variance, element))))));
}

/// Whether the node is in training mode: by attribute training_mode, and up to version 9 by having
/// all five results.
static bool usesBatchStatistics(const Node &node) {
  if (node.getImporter().isInference())
    return false;
  return node.getOpset() < 14 ? node.getNumResults() == 5 : node.intAttribute("training_mode", 0);
}

/// Operand `index`, a running statistic. Training marks it in a read of its own: files may store
/// it and a parameter of equal value once.
static Value readStatistic(Node &node, unsigned index) {
  auto read = node.operand(index).getDefiningOp<loom::GetWeightOp>();
  if (!read || !node.getImporter().isTraining())
    return node.operand(index);
  Operation *own = node.getBuilder().clone(*read);
  own->setAttr(loom::kFrozen, node.getBuilder().getStringAttr(loom::kFrozenStatistic));
  return own->getResult(0);
}

/// x * s + (bias - mean * s) with s = scale / sqrt(variance + epsilon): s and the offset depend on
/// weights alone. A vector is of one channel.
static LogicalResult importBatchNormalization(Node &node) {
  Value x = node.operand(0);
  if (x && getTensorType(x).getRank() == 1)
    x = node.reshape(x, {getShape(x)[0], 1});
  if (failed(checkChannels(node, x, 1, 4)))
    return failure();
  if (usesBatchStatistics(node))
    return importBatchStatistics(node, x);
  node.getImporter().getTrainingMarks().addEvaluated("BatchNormalization",
                                                     loom::getNodeName(node.getLoc()));
  Value mean = readStatistic(node, 3), variance = readStatistic(node, 4);
  Type element = getTensorType(x).getElementType();
  Type statistics = getTensorType(mean).getElementType();
  Value deviation = node.unary<loom::SqrtOp>(
      node.binary<loom::AddOp>(variance, node.floatAttribute("epsilon", 1e-5f)));
  Value factor = node.binary<loom::DivideOp>(node.convert(node.operand(1), statistics), deviation);
  Value offset = node.binary<loom::SubtractOp>(node.convert(node.operand(2), statistics),
                                               node.binary<loom::MultiplyOp>(mean, factor));
  Value scaled = node.binary<loom::MultiplyOp>(
      x, perChannel(node, node.convert(factor, element), getShape(x)));
  Value result = node.binary<loom::AddOp>(
      scaled, perChannel(node, node.convert(offset, element), getShape(x)));
  return node.setResult(node.reshape(result, getShape(node.operand(0))));
}

/// (x - mean) / sqrt(variance + epsilon) over `dims`; of 16-bit floats in f32.
static Value normalize(Node &node, Value x, ArrayRef<int64_t> dims, double epsilon) {
  x = node.widen(x);
  Value centred = node.binary<loom::SubtractOp>(x, node.mean(x, dims, /*keepDims=*/true));
  Value variance = node.mean(node.binary<loom::MultiplyOp>(centred, centred), dims, true);
  return node.binary<loom::DivideOp>(
      centred, node.unary<loom::SqrtOp>(node.binary<loom::AddOp>(variance, epsilon)));
}

/// normal * scale + bias in x's element type; scale and bias have one number per channel.
static LogicalResult setScaled(Node &node, Value normal, Value scale, Value bias) {
  if (!normal)
    return failure();
  ArrayRef<int64_t> shape = getShape(normal);
  Value scaled = node.binary<loom::MultiplyOp>(normal, perChannel(node, node.widen(scale), shape));
  Value result = node.binary<loom::AddOp>(scaled, perChannel(node, node.widen(bias), shape));
  return node.setResult(node.convert(result, getTensorType(node.operand(0)).getElementType()));
}

static LogicalResult importInstanceNormalization(Node &node) {
  Value x = node.operand(0);
  if (failed(checkChannels(node, x, 1, 2)))
    return failure();
  Dims dims = llvm::to_vector(llvm::seq<int64_t>(2, getTensorType(x).getRank()));
  Value normal = normalize(node, x, dims, node.floatAttribute("epsilon", 1e-5f));
  return setScaled(node, normal, node.operand(1), node.operand(2));
}

/// Repeats one number per group for each of its channels.
static Value repeatGroups(Node &node, Value vector, int64_t channels) {
  int64_t groups = getShape(vector)[0];
  return node.reshape(node.broadcast(vector, {groups, channels / groups}, {0}), {channels});
}

/// Up to version 20 scale and bias are per group, from 21 on per channel.
static LogicalResult importGroupNormalization(Node &node) {
  int64_t groups = node.intAttribute("num_groups", 0);
  bool isPerGroup = node.getOpset() < 21;
  Value x = node.operand(0);
  if (failed(checkChannels(node, x, 1, 2, isPerGroup ? std::optional(groups) : std::nullopt)))
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  if (groups < 1 || shape[1] % groups)
    return node.error() << "cannot put " << shape[1] << " channels in " << groups << " groups";
  Dims grouped{shape[0], groups, loom::countElements(shape.drop_front(1)) / groups};
  Value normal =
      normalize(node, node.reshape(x, grouped), {2}, node.floatAttribute("epsilon", 1e-5f));
  auto parameter = [&](unsigned index) {
    Value vector = node.operand(index);
    return isPerGroup ? repeatGroups(node, vector, shape[1]) : vector;
  };
  return setScaled(node, node.reshape(normal, shape), parameter(1), parameter(2));
}

static LogicalResult importMeanVarianceNormalization(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  auto axes = node.normalizeAxes(node.intsAttribute("axes").value_or(Dims{0, 2, 3}),
                                 getTensorType(x).getRank());
  if (!axes)
    return failure();
  Type element = getTensorType(x).getElementType();
  x = node.widen(x);
  Value centred = node.binary<loom::SubtractOp>(x, node.mean(x, *axes, /*keepDims=*/true));
  Value variance = node.mean(node.binary<loom::MultiplyOp>(centred, centred), *axes, true);
  Value deviation = node.binary<loom::AddOp>(node.unary<loom::SqrtOp>(variance), 1e-9);
  return node.setResult(node.convert(node.binary<loom::DivideOp>(centred, deviation), element));
}

static LogicalResult importLpNormalization(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  auto axis = node.normalizeAxis(node.intAttribute("axis", -1), getTensorType(x).getRank());
  int64_t power = node.intAttribute("p", 2);
  if (!axis)
    return failure();
  if (power != 1 && power != 2)
    return node.error() << "p is " << power << ", expected 1 or 2";
  Type element = getTensorType(x).getElementType();
  x = node.widen(x);
  Value terms = power == 1 ? node.unary<loom::AbsOp>(x) : node.binary<loom::MultiplyOp>(x, x);
  Value norm = node.reduceLike(terms, dist::ReductionKind::Sum, {*axis});
  // A row of zeros stays zero, and has the gradient 0: nothing is divided by its norm.
  Value zero = node.splatLike(x, 0);
  Value isZero = node.compare(loom::Direction::EQ, norm, zero);
  norm = node.select(isZero, node.splatLike(x, 1), norm);
  if (power == 2)
    norm = node.unary<loom::SqrtOp>(norm);
  Value result = node.select(isZero, zero, node.binary<loom::DivideOp>(x, norm));
  return node.setResult(node.convert(result, element));
}

/// x / (bias + alpha / size * squares summed over `size` neighbouring channels) ^ beta
static LogicalResult importLrn(Node &node) {
  Value x = node.operand(0);
  int64_t size = node.intAttribute("size", 0);
  if (!x)
    return failure();
  if (getShape(x).size() < 2 || size < 1 || size > (1 << 16))
    return node.error() << "cannot sum over " << size << " channels of " << toString(getShape(x));
  Type element = getTensorType(x).getElementType();
  x = node.widen(x);
  Value squares = node.binary<loom::MultiplyOp>(x, x);
  int64_t channels = getShape(x)[1], before = (size - 1) / 2;
  Value sum;
  for (int64_t shift = -before; shift < size - before; ++shift) {
    if (std::abs(shift) >= channels)
      continue;
    // Channel c takes channel c + shift, and zero beyond the ends.
    Value part =
        node.slice(squares, 1, std::max<int64_t>(shift, 0), channels + std::min<int64_t>(shift, 0));
    if (shift != 0 && part) {
      SmallVector<int64_t> shape(getShape(x));
      shape[1] = std::abs(shift);
      Value zeros = node.splat(getTensorType(x).clone(shape), 0);
      part = shift > 0 ? node.concatenate({part, zeros}, 1) : node.concatenate({zeros, part}, 1);
    }
    sum = sum ? node.binary<loom::AddOp>(sum, part) : part;
  }
  double alpha = node.floatAttribute("alpha", 0.0001F) / static_cast<double>(size);
  Value base = node.binary<loom::AddOp>(node.binary<loom::MultiplyOp>(sum, alpha),
                                        node.floatAttribute("bias", 1));
  Value divisor = node.binary<loom::PowerOp>(base, node.floatAttribute("beta", 0.75));
  return node.setResult(node.convert(node.binary<loom::DivideOp>(x, divisor), element));
}

ArrayRef<OpRule> onnx_import::getNormalizationRules() {
  static constexpr OpRule rules[] = {
      {"BatchNormalization", 7, 28, importBatchNormalization},
      {"GroupNormalization", 18, 28, importGroupNormalization},
      {"InstanceNormalization", 6, 28, importInstanceNormalization},
      {"LRN", 1, 28, importLrn},
      {"LayerNormalization", 17, 28, importLayerNormalization},
      {"LogSoftmax", 1, 12, importOfMatrix<logSoftmax>},
      {"LogSoftmax", 13, 28, importAlongAxis<logSoftmax>},
      {"LpNormalization", 1, 28, importLpNormalization},
      {"MeanVarianceNormalization", 9, 28, importMeanVarianceNormalization},
      {"RMSNormalization", 23, 28, importRmsNormalization},
      {"Softmax", 1, 12, importOfMatrix<softmax>},
      {"Softmax", 13, 28, importAlongAxis<softmax>},
  };
  return rules;
}
