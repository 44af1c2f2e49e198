//===- Activations.cpp - activation functions ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "dialects/loom/Derivatives.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The derivative at 0 is 0.
static LogicalResult importRelu(Node &node) {
  Value result = node.binary<loom::MaximumOp>(node.operand(0), 0.0);
  return node.setResult(node.markTies(result, loom::kTiesToRhs));
}

static LogicalResult importSigmoid(Node &node) {
  return node.setResult(node.unary<loom::LogisticOp>(node.operand(0)));
}

static LogicalResult importTanh(Node &node) {
  return node.setResult(node.unary<loom::TanhOp>(node.operand(0)));
}

static LogicalResult importGelu(Node &node) {
  Value x = node.operand(0);
  std::string form = node.stringAttribute("approximate", "none");
  if (form != "none" && form != "tanh")
    return node.error() << "approximate is '" << form << "', expected 'none' or 'tanh'";
  if (!x)
    return failure();
  return node.setResult(node.emit<loom::GeluOp>(
      x.getType(), x, form == "tanh" ? loom::GeluForm::Tanh : loom::GeluForm::Erf));
}

/// x where x > threshold, else `otherwise`.
static Value choose(Node &node, Value x, Value positive, Value otherwise, double threshold = 0) {
  return node.select(node.compare(loom::Direction::GT, x, threshold), positive, otherwise);
}

static LogicalResult importLeakyRelu(Node &node) {
  Value x = node.operand(0);
  Value small = node.binary<loom::MultiplyOp>(x, node.floatAttribute("alpha", 0.01f));
  return node.setResult(choose(node, x, x, small));
}

static LogicalResult importPRelu(Node &node) {
  Value x = node.operand(0);
  return node.setResult(choose(node, x, x, node.binary<loom::MultiplyOp>(x, node.operand(1))));
}

/// scale * (x where x > 0, else alpha * (exp(x / divisor) - 1)).
static LogicalResult importExponential(Node &node, double alpha, double scale, double divisor) {
  Value x = node.operand(0);
  // exp of large x is discarded, but must not become infinity on the way.
  Value low = node.markTies(node.binary<loom::MinimumOp>(x, 0.0), loom::kTiesToLhs);
  if (divisor != 1)
    low = node.binary<loom::DivideOp>(low, divisor);
  Value curve = node.binary<loom::SubtractOp>(node.unary<loom::ExpOp>(low), 1.0);
  Value result = choose(node, x, x, node.binary<loom::MultiplyOp>(curve, alpha));
  return node.setResult(scale == 1 ? result : node.binary<loom::MultiplyOp>(result, scale));
}

static LogicalResult importElu(Node &node) {
  return importExponential(node, node.floatAttribute("alpha", 1), 1, 1);
}

static LogicalResult importCelu(Node &node) {
  double alpha = node.floatAttribute("alpha", 1);
  return importExponential(node, alpha, 1, alpha);
}

static LogicalResult importSelu(Node &node) {
  return importExponential(node, node.floatAttribute("alpha", 1.67326319217681884765625f),
                           node.floatAttribute("gamma", 1.05070102214813232421875f), 1);
}

/// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
static Value softplus(Node &node, Value x) {
  Value tail = node.unary<loom::ExpOp>(node.unary<loom::NegateOp>(node.unary<loom::AbsOp>(x)));
  Value sum = node.binary<loom::AddOp>(tail, 1.0);
  // What the sum's rounding lost of the tail, to first order (Higham 2002, section 1.14.1).
  Value lost = node.binary<loom::DivideOp>(
      node.binary<loom::SubtractOp>(tail, node.binary<loom::SubtractOp>(sum, 1.0)), sum);
  Value log = node.binary<loom::AddOp>(node.unary<loom::LogOp>(sum), lost);
  return node.binary<loom::AddOp>(node.binary<loom::MaximumOp>(x, 0.0), log);
}

static LogicalResult importSoftplus(Node &node) {
  return node.setResult(softplus(node, node.operand(0)));
}

static LogicalResult importMish(Node &node) {
  Value x = node.operand(0);
  return node.setResult(
      node.binary<loom::MultiplyOp>(x, node.unary<loom::TanhOp>(softplus(node, x))));
}

static LogicalResult importSoftsign(Node &node) {
  Value x = node.operand(0);
  return node.setResult(
      node.binary<loom::DivideOp>(x, node.binary<loom::AddOp>(node.unary<loom::AbsOp>(x), 1.0)));
}

Value onnx_import::hardSigmoid(Node &node, Value x, double alpha, double beta) {
  Value line = node.binary<loom::AddOp>(node.binary<loom::MultiplyOp>(x, alpha), beta);
  Value low = node.markTies(node.binary<loom::MinimumOp>(line, 1.0), loom::kTiesToRhs);
  return node.markTies(node.binary<loom::MaximumOp>(low, 0.0), loom::kTiesToRhs);
}

static LogicalResult importHardSigmoid(Node &node) {
  return node.setResult(hardSigmoid(node, node.operand(0), node.floatAttribute("alpha", 0.2f),
                                    node.floatAttribute("beta", 0.5)));
}

static LogicalResult importHardSwish(Node &node) {
  Value x = node.operand(0);
  return node.setResult(node.binary<loom::MultiplyOp>(x, hardSigmoid(node, x, 1.0 / 6, 0.5)));
}

static LogicalResult importSwish(Node &node) {
  Value x = node.operand(0);
  double alpha = node.floatAttribute("alpha", 1);
  Value scaled = alpha == 1 ? x : node.binary<loom::MultiplyOp>(x, alpha);
  return node.setResult(node.binary<loom::MultiplyOp>(x, node.unary<loom::LogisticOp>(scaled)));
}

/// Swish of the gate, times the other operand.
static LogicalResult importSwiGlu(Node &node) {
  Value gate = node.operand(0), x = node.operand(1);
  if (failed(node.checkSameElementType(gate, x)))
    return failure();
  if (getShape(gate) != getShape(x))
    return node.error() << "operands " << toString(getShape(gate)) << " and "
                        << toString(getShape(x)) << " differ in shape";
  double alpha = node.floatAttribute("alpha", 1);
  Value scaled = alpha == 1 ? gate : node.binary<loom::MultiplyOp>(gate, alpha);
  Value swish = node.binary<loom::MultiplyOp>(gate, node.unary<loom::LogisticOp>(scaled));
  return node.setResult(node.binary<loom::MultiplyOp>(swish, x));
}

static LogicalResult importThresholdedRelu(Node &node) {
  Value x = node.operand(0);
  return node.setResult(choose(node, x, x, node.splatLike(x, 0), node.floatAttribute("alpha", 1)));
}

/// x + bias below -lambd, x - bias above lambd, 0 between. Integers are shrunk in f64, for lambd
/// and bias may be fractions.
static LogicalResult importShrink(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  Type element = getTensorType(x).getElementType();
  if (!isa<FloatType>(element))
    x = node.convert(x, Float64Type::get(node.getContext()));
  double lambda = node.floatAttribute("lambd", 0.5), bias = node.floatAttribute("bias", 0);
  Value inner = node.select(node.compare(loom::Direction::LT, x, -lambda),
                            node.binary<loom::AddOp>(x, bias), node.splatLike(x, 0));
  Value outer = choose(node, x, node.binary<loom::SubtractOp>(x, bias), inner, lambda);
  return node.setResult(node.convert(outer, element));
}

ArrayRef<OpRule> onnx_import::getActivationRules() {
  static constexpr OpRule rules[] = {
      {"Celu", 12, 28, importCelu},
      {"Elu", 6, 28, importElu},
      {"Gelu", 20, 28, importGelu},
      {"HardSigmoid", 6, 28, importHardSigmoid},
      {"HardSwish", 14, 28, importHardSwish},
      {"LeakyRelu", 6, 28, importLeakyRelu},
      {"Mish", 18, 28, importMish},
      {"PRelu", 7, 28, importPRelu},
      {"Relu", 6, 28, importRelu},
      {"Selu", 6, 28, importSelu},
      {"Shrink", 9, 28, importShrink},
      {"Sigmoid", 6, 28, importSigmoid},
      {"Softplus", 1, 28, importSoftplus},
      {"Softsign", 1, 28, importSoftsign},
      {"SwiGLU", 28, 28, importSwiGlu},
      {"Swish", 24, 28, importSwish},
      {"Tanh", 6, 28, importTanh},
      {"ThresholdedRelu", 10, 28, importThresholdedRelu},
  };
  return rules;
}
