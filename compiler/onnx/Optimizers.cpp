//===- Optimizers.cpp - steps of optimizers as nodes ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Adagrad, Adam and Momentum of domain ai.onnx.preview.training, version 1, as ONNX's schemas write
// them. They differ from PyTorch's in what decays and where epsilon is. Operands are the rate R and
// the number of updates T, then lists: all tensors, all their gradients, and all of each kind of
// optimizer state. Results are the lists without the gradients.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "passes/train/OptimizerRules.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// The step of one tensor. All terms have its type, except numbers, which have rank 0.
struct TensorStep {
  Term rate, count;
  /// Whether T is above 0, i1.
  Term hasBegun;
  Term tensor, gradient;
  /// The optimizer state, in the order of the operands; the step puts the next values here.
  SmallVector<Term> kept;

  Term spread(const Term &number) const { return train::spread(number, tensor.getType()); }
  /// The gradient of the loss plus 0.5 coefficient |tensor|^2.
  Term penalize(double coefficient) const {
    return coefficient ? tensor * coefficient + gradient : gradient;
  }
};

/// The next value of the tensor.
using Formula = llvm::function_ref<Term(TensorStep &)>;

} // namespace

/// An operand of one element as a scalar. Null, with an error, if it has more.
static Value readScalar(Node &node, unsigned index, StringRef name) {
  Value value = node.operand(index);
  if (value && getTensorType(value).getNumElements() != 1) {
    node.error() << name << " is " << value.getType() << ", expected one number";
    return {};
  }
  return value ? node.reshape(value, {}) : value;
}

/// Fails, with an error, unless all lists hold tensors of the types that the first one does.
static LogicalResult checkLists(Node &node, unsigned lists, unsigned count) {
  for (unsigned i = 0; i < lists * count; ++i) {
    Value tensor = node.operand(2 + i % count), value = node.operand(2 + i);
    if (!tensor || !value)
      return failure();
    Type element = getTensorType(tensor).getElementType();
    if (!element.isF32() && !element.isF64())
      return node.error() << "operand " << 2 + i % count << " is " << tensor.getType()
                          << ", expected f32 or f64";
    if (value.getType() != tensor.getType())
      return node.error() << "operand " << 2 + i << " is " << value.getType() << ", but tensor "
                          << i % count << " is " << tensor.getType();
  }
  return success();
}

/// Applies `formula` to each tensor, which has `kept` tensors of optimizer state.
static LogicalResult importSteps(Node &node, unsigned kept, Formula formula) {
  Value rate = readScalar(node, 0, "R"), count = readScalar(node, 1, "T");
  if (!rate || !count)
    return failure();
  unsigned lists = 2 + kept, given = node.getNumOperands() - 2;
  if (given == 0 || given % lists != 0)
    return node.error() << "has " << given << " operands after R and T, expected " << lists
                        << " for each tensor";
  unsigned tensors = given / lists;
  if (failed(checkLists(node, lists, tensors)))
    return failure();
  auto term = [&](Value value) { return Term(node.getBuilder(), node.getLoc(), value); };
  for (unsigned i = 0; i < tensors; ++i) {
    Term tensor = term(node.operand(2 + i));
    Type element = tensor.getType().getElementType();
    Term number = term(count).convert(element);
    TensorStep step{
        term(rate).convert(element),         number, number.compare(loom::Direction::GT, 0), tensor,
        term(node.operand(2 + tensors + i)), {}};
    for (unsigned list = 2; list < lists; ++list)
      step.kept.push_back(term(node.operand(2 + list * tensors + i)));
    LogicalResult result = node.setResult(i, formula(step));
    for (auto [list, value] : llvm::enumerate(step.kept))
      if (succeeded(result))
        result = node.setResult((1 + list) * tensors + i, value);
    if (failed(result))
      return failure();
  }
  return success();
}

static Term root(const Term &term) { return term.apply<loom::SqrtOp>(); }

/// Duchi et al. 2011, with a rate that decays.
static LogicalResult importAdagrad(Node &node) {
  double penalty = node.floatAttribute("norm_coefficient", 0);
  double decay = node.floatAttribute("decay_factor", 0);
  double epsilon = node.floatAttribute("epsilon", 1e-6F);
  return importSteps(node, 1, [&](TensorStep &step) {
    Term gradient = step.penalize(penalty);
    Term power = step.kept[0] = step.kept[0] + train::square(gradient);
    Term rate = decay ? step.rate / (step.count * decay + 1) : step.rate;
    return step.tensor - gradient / (root(power) + epsilon) * step.spread(rate);
  });
}

/// Kingma and Ba 2015 in the form of the end of its section 2: the rate is corrected, and epsilon
/// added to the uncorrected root. With T = 0 nothing is corrected.
static LogicalResult importAdam(Node &node) {
  double alpha = node.floatAttribute("alpha", 0.9F), beta = node.floatAttribute("beta", 0.999F);
  for (auto [name, value] : {std::pair("alpha", alpha), std::pair("beta", beta)})
    if (!(value >= 0 && value < 1))
      return node.error() << name << " is " << value << ", expected at least 0 and below 1";
  double epsilon = node.floatAttribute("epsilon", 1e-6F);
  double penalty = node.floatAttribute("norm_coefficient", 0);
  double shrinkage = node.floatAttribute("norm_coefficient_post", 0);
  return importSteps(node, 2, [&](TensorStep &step) {
    Term gradient = step.penalize(penalty);
    Term average = step.kept[0] = train::blend(step.kept[0], gradient, alpha);
    Term power = step.kept[1] = train::blend(step.kept[1], train::square(gradient), beta);
    Term count = step.hasBegun.select(step.count, step.count.splat(1));
    Term factor = root(train::correctBias(count, beta)) / train::correctBias(count, alpha);
    Term rate = step.rate * step.hasBegun.select(factor, factor.splat(1));
    Term next = step.tensor - average / (root(power) + epsilon) * step.spread(rate);
    return shrinkage ? next * (1 - shrinkage) : next;
  });
}

/// Sutskever et al. 2013 as PyTorch has it, with a share of the gradient instead of dampening. The
/// first gradient counts whole.
static LogicalResult importMomentum(Node &node) {
  for (StringRef name : {"alpha", "beta", "norm_coefficient", "mode"})
    if (!node.hasAttribute(name))
      return node.error() << "has no attribute '" << name << "'";
  std::string mode = node.stringAttribute("mode", "");
  if (mode != "standard" && mode != "nesterov")
    return node.error() << "mode '" << mode << "' is not one of standard, nesterov";
  double alpha = node.floatAttribute("alpha", 0), beta = node.floatAttribute("beta", 0);
  double penalty = node.floatAttribute("norm_coefficient", 0);
  return importSteps(node, 1, [&](TensorStep &step) {
    Term gradient = step.penalize(penalty), one = step.count.splat(1);
    Term share = step.hasBegun.select(step.count.splat(beta), one);
    Term momentum = step.kept[0] = step.kept[0] * alpha + gradient * step.spread(share);
    Term direction = mode == "nesterov" ? gradient + momentum * alpha : momentum;
    return step.tensor - direction * step.spread(step.rate);
  });
}

ArrayRef<OpRule> onnx_import::getOptimizerRules() {
  static constexpr OpRule rules[] = {
      {"Adagrad", 1, 1, importAdagrad, kTrainingDomain},
      {"Adam", 1, 1, importAdam, kTrainingDomain},
      {"Momentum", 1, 1, importMomentum, kTrainingDomain},
  };
  return rules;
}
