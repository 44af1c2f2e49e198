//===- Losses.cpp - losses of classifiers ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Scores are [n, classes, d...], targets [n, d...] and weights [classes].
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

using dist::ReductionKind;

/// Fails unless operands 1 and 2, targets and weights, fit the scores.
static LogicalResult checkTargets(Node &node) {
  Value scores = node.operand(0), targets = node.operand(1);
  if (!scores || !targets)
    return failure();
  ArrayRef<int64_t> shape = getShape(scores);
  if (shape.size() < 2)
    return node.error() << "input " << toString(shape) << " has no classes";
  Dims expected(shape);
  expected.erase(expected.begin() + 1);
  if (getShape(targets) != ArrayRef<int64_t>(expected))
    return node.error() << "targets are " << toString(getShape(targets)) << ", expected "
                        << toString(expected);
  if (!node.hasOperand(2))
    return success();
  if (getShape(node.operand(2)) != shape.slice(1, 1))
    return node.error() << "weights are " << toString(getShape(node.operand(2))) << " for "
                        << shape[1] << " classes";
  return node.checkSameElementType(scores, node.operand(2));
}

/// Reduces losses as attribute `reduction` says; the mean divides by the sum of the weights, if
/// any.
static Value reduceLosses(Node &node, Value losses, Value weights) {
  std::string reduction = node.stringAttribute("reduction", "mean");
  if (reduction == "none" || !losses)
    return losses;
  Dims all = llvm::to_vector(llvm::seq<int64_t>(0, getTensorType(losses).getRank()));
  auto sum = [&](Value x) { return node.reduce(x, ReductionKind::Sum, all, /*keepDims=*/false); };
  if (reduction == "sum")
    return sum(losses);
  if (reduction == "mean" && !weights)
    return node.mean(losses, all, /*keepDims=*/false);
  if (reduction == "mean")
    return node.convert(
        node.binary<loom::DivideOp>(sum(node.widen(losses)), sum(node.widen(weights))),
        getTensorType(losses).getElementType());
  node.error() << "reduction '" << reduction << "' is not one of none, sum, mean";
  return {};
}

/// -weights[t] * logs[n, t, d...] with t = targets[n, d...], zero where t is `ignore_index`, which
/// need not be a class.
static Value negativeLogLikelihood(Node &node, Value logs) {
  Value targets = node.convert(node.operand(1), IntegerType::get(node.getContext(), 64));
  Value counts, weights;
  if (node.hasAttribute("ignore_index")) {
    counts = node.compare(loom::Direction::NE, targets,
                          static_cast<double>(node.intAttribute("ignore_index", 0)));
    targets = node.select(counts, targets, node.splatLike(targets, 0));
  }
  if (!logs || !targets)
    return {};
  Dims single(getShape(logs));
  single[1] = 1;
  Value picked = node.emit<loom::GatherElementsOp>(
      getTensorType(logs).clone(single), logs, node.reshape(targets, single), /*dim=*/int64_t(1));
  Value losses = node.unary<loom::NegateOp>(node.reshape(picked, getShape(targets)));
  if (node.hasOperand(2)) {
    weights = node.gather(node.operand(2), targets, 0);
    losses = node.binary<loom::MultiplyOp>(losses, weights);
  }
  if (counts && losses) {
    Value zero = node.splatLike(losses, 0);
    weights = node.select(counts, weights ? weights : node.splatLike(losses, 1), zero);
    losses = node.select(counts, losses, zero);
  }
  return reduceLosses(node, losses, weights);
}

static LogicalResult importNegativeLogLikelihood(Node &node) {
  if (failed(checkTargets(node)))
    return failure();
  return node.setResult(negativeLogLikelihood(node, node.operand(0)));
}

/// The same for the log softmax along the classes, which is the second result.
static LogicalResult importSoftmaxCrossEntropy(Node &node) {
  if (failed(checkTargets(node)))
    return failure();
  Value logs = node.logSoftmax(node.operand(0), 1);
  return failure(failed(node.setResult(0, negativeLogLikelihood(node, logs))) ||
                 failed(node.setResult(1, logs)));
}

ArrayRef<OpRule> onnx_import::getLossRules() {
  static constexpr OpRule rules[] = {
      {"NegativeLogLikelihoodLoss", 12, 28, importNegativeLogLikelihood},
      {"SoftmaxCrossEntropyLoss", 12, 28, importSoftmaxCrossEntropy},
  };
  return rules;
}
