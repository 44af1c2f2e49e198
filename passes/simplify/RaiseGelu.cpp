//===- RaiseGelu.cpp - GELU from its parts -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// GELU is x/2 + x/2 g with g = erf(x / sqrt 2) or g = tanh(sqrt(2/pi) (x + 0.044715 x^3)), in any
// order of operations: g's argument and the whole are read as polynomials.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Folding.h"
#include "passes/simplify/RaiseComposites.h"

#include <array>
#include <cmath>

using namespace mlir;
using namespace gridloom;

namespace {

/// plain(x) + gated(x) g, where both are polynomials up to x^3.
struct Polynomial {
  using Coefficients = std::array<double, 4>;
  Coefficients plain{}, gated{};

  bool isPlain() const {
    return llvm::all_of(gated, [](double coefficient) { return coefficient == 0; });
  }
};

std::optional<Polynomial::Coefficients> multiply(const Polynomial::Coefficients &a,
                                                 const Polynomial::Coefficients &b) {
  Polynomial::Coefficients product{};
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j) {
      if (a[i] == 0 || b[j] == 0)
        continue;
      if (i + j >= product.size())
        return std::nullopt;
      product[i + j] += a[i] * b[j];
    }
  return product;
}

/// Reads an expression as a polynomial of `x` and `gate`.
class PolynomialReader {
public:
  PolynomialReader(Value x, Value gate) : x(x), gate(gate) {}

  /// Collects the operations read. Nullopt unless it is a polynomial of degree 3 or less.
  std::optional<Polynomial> read(Value value, unsigned depth = 0) {
    Polynomial result;
    if (value == x) {
      result.plain[1] = 1;
      return result;
    }
    if (value == gate) {
      result.gated[0] = 1;
      return result;
    }
    if (std::optional<double> splat = getSplat(value)) {
      result.plain[0] = *splat;
      return result;
    }
    Operation *op = value.getDefiningOp();
    if (!op || depth == kMaxDepth ||
        !isa<loom::AddOp, loom::SubtractOp, loom::MultiplyOp, loom::DivideOp>(op))
      return std::nullopt;
    std::optional<Polynomial> a = read(op->getOperand(0), depth + 1);
    std::optional<Polynomial> b = a ? read(op->getOperand(1), depth + 1) : std::nullopt;
    if (!b)
      return std::nullopt;
    parts.insert(op);
    return combine(op, *a, *b);
  }

  llvm::SetVector<Operation *> parts;

private:
  static constexpr unsigned kMaxDepth = 8;

  static std::optional<Polynomial> combine(Operation *op, const Polynomial &a, Polynomial b) {
    Polynomial result;
    if (isa<loom::AddOp, loom::SubtractOp>(op)) {
      double sign = isa<loom::AddOp>(op) ? 1 : -1;
      for (size_t i = 0; i < result.plain.size(); ++i) {
        result.plain[i] = a.plain[i] + sign * b.plain[i];
        result.gated[i] = a.gated[i] + sign * b.gated[i];
      }
      return result;
    }
    if (isa<loom::DivideOp>(op)) {
      bool isConstant = b.isPlain() && b.plain[1] == 0 && b.plain[2] == 0 && b.plain[3] == 0;
      if (!isConstant || b.plain[0] == 0)
        return std::nullopt;
      b.plain[0] = 1 / b.plain[0];
    }
    if (!a.isPlain() && !b.isPlain())
      return std::nullopt;
    auto plain = multiply(a.plain, b.plain);
    auto gated = a.isPlain() ? multiply(a.plain, b.gated) : multiply(a.gated, b.plain);
    if (!plain || !gated)
      return std::nullopt;
    return Polynomial{*plain, *gated};
  }

  Value x, gate;
};

bool isNear(const Polynomial::Coefficients &actual, const Polynomial::Coefficients &expected) {
  for (auto [a, b] : llvm::zip_equal(actual, expected))
    if (std::abs(a - b) > 1e-6 * std::abs(b))
      return false;
  return true;
}

/// The erf or tanh in the products and sums that make `value`; null if there is none nearby.
Operation *findGate(Value value, unsigned depth = 0) {
  Operation *op = value.getDefiningOp();
  if (!op || isa<loom::ErfOp, loom::TanhOp>(op))
    return op;
  if (depth == 5 || !isa<loom::AddOp, loom::MultiplyOp, loom::DivideOp>(op))
    return nullptr;
  for (Value operand : op->getOperands())
    if (Operation *gate = findGate(operand, depth + 1);
        gate && isa<loom::ErfOp, loom::TanhOp>(gate))
      return gate;
  return nullptr;
}

/// Collects candidates for the variable of the gate's polynomial argument.
void collectVariables(Value value, llvm::SetVector<Value> &variables, unsigned depth = 0) {
  if (getSplat(value))
    return;
  variables.insert(value);
  Operation *op = value.getDefiningOp();
  if (op && depth < 5 && isa<loom::AddOp, loom::MultiplyOp, loom::DivideOp>(op))
    for (Value operand : op->getOperands())
      collectVariables(operand, variables, depth + 1);
}

template <typename RootT> struct RaiseGelu : OpRewritePattern<RootT> {
  using OpRewritePattern<RootT>::OpRewritePattern;

  LogicalResult matchAndRewrite(RootT root, PatternRewriter &rewriter) const override {
    if (!isa<FloatType>(cast<RankedTensorType>(root.getType()).getElementType()))
      return rewriter.notifyMatchFailure(root, "not of floats");
    Operation *gate = findGate(root);
    if (!gate)
      return rewriter.notifyMatchFailure(root, "no erf or tanh");
    bool isErf = isa<loom::ErfOp>(gate);
    double slope = isErf ? M_SQRT1_2 : std::sqrt(2 / M_PI);
    Polynomial::Coefficients inner{0, slope, 0, isErf ? 0 : slope * 0.044715};
    llvm::SetVector<Value> variables;
    collectVariables(gate->getOperand(0), variables);
    for (Value x : variables) {
      PolynomialReader reader(x, gate->getResult(0));
      std::optional<Polynomial> argument = reader.read(gate->getOperand(0));
      if (!argument || !argument->isPlain() || !isNear(argument->plain, inner))
        continue;
      std::optional<Polynomial> whole = reader.read(root);
      if (!whole || !isNear(whole->plain, {0, 0.5, 0, 0}) || !isNear(whole->gated, {0, 0.5, 0, 0}))
        continue;
      reader.parts.insert(gate);
      Location loc = fuseLocations(rewriter, root.getLoc(), reader.parts.getArrayRef());
      rewriter.replaceOp(root,
                         loom::GeluOp::create(rewriter, loc, root.getType(), x,
                                              isErf ? loom::GeluForm::Erf : loom::GeluForm::Tanh));
      return success();
    }
    return rewriter.notifyMatchFailure(root, "not GELU's polynomials");
  }
};

} // namespace

void gridloom::populateRaiseGeluPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseGelu<loom::MultiplyOp>, RaiseGelu<loom::AddOp>, RaiseGelu<loom::DivideOp>>(
      patterns.getContext());
}
