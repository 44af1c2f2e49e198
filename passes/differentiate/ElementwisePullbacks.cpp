//===- ElementwisePullbacks.cpp - pullbacks of elementwise operations -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Pullbacks.h"

#include <numbers>

using namespace mlir;
using namespace gridloom;
using loom::Direction;

//===----------------------------------------------------------------------===//
// One operand
//===----------------------------------------------------------------------===//

/// The pullback of an operation y = f(x) whose cotangent is `formula(x, y, ct)`.
template <typename Op, auto formula> static void pullBackUnary(Op op, Term ct, Adjoints &to) {
  to.add(op.getInput(),
         [&] { return formula(to.term(op.getInput()), to.term(op.getOutput()), ct); });
}

template <typename Op, auto formula> static void attachUnary(MLIRContext &context) {
  attachPullback<Op, pullBackUnary<Op, formula>>(context);
}

static Term square(Term x) { return x * x; }

/// Formulas by the operation's name.
namespace formula {
namespace {
Term negate(Term, Term, Term ct) { return -ct; }
/// At 0 the sign is 0, and so is the derivative.
Term abs(Term x, Term, Term ct) { return ct * x.apply<loom::SignOp>(); }
Term exp(Term, Term y, Term ct) { return ct * y; }
Term log(Term x, Term, Term ct) { return ct / x; }
Term sqrt(Term, Term y, Term ct) { return ct * 0.5 / y; }
Term rsqrt(Term x, Term y, Term ct) { return ct * -0.5 * y / x; }
Term tanh(Term, Term y, Term ct) { return ct * (1 - square(y)); }
Term erf(Term x, Term, Term ct) {
  return ct * (-square(x)).apply<loom::ExpOp>() * (2 * std::numbers::inv_sqrtpi);
}
Term logistic(Term, Term y, Term ct) { return ct * y * (1 - y); }
Term sine(Term x, Term, Term ct) { return ct * x.apply<loom::CosineOp>(); }
Term cosine(Term x, Term, Term ct) { return -(ct * x.apply<loom::SineOp>()); }
Term tan(Term, Term y, Term ct) { return ct * (square(y) + 1); }
Term asin(Term x, Term, Term ct) { return ct * (1 - square(x)).apply<loom::RsqrtOp>(); }
Term acos(Term x, Term y, Term ct) { return -asin(x, y, ct); }
Term atan(Term x, Term, Term ct) { return ct / (square(x) + 1); }
Term sinh(Term x, Term, Term ct) { return ct * x.apply<loom::CoshOp>(); }
Term cosh(Term x, Term, Term ct) { return ct * x.apply<loom::SinhOp>(); }
Term asinh(Term x, Term, Term ct) { return ct * (square(x) + 1).apply<loom::RsqrtOp>(); }
/// Two factors, since x * x overflows earlier.
Term acosh(Term x, Term, Term ct) {
  return ct * (x - 1).apply<loom::RsqrtOp>() * (x + 1).apply<loom::RsqrtOp>();
}
Term atanh(Term x, Term, Term ct) { return ct / (1 - square(x)); }
} // namespace
} // namespace formula

/// The derivative of x * P(x) and of its approximation (Hendrycks and Gimpel 2016, section 2).
static void pullBackGelu(loom::GeluOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&]() -> Value {
    Term x = to.term(op.getInput());
    if (op.getForm() == loom::GeluForm::Erf) {
      Term below = ((x * (1 / std::numbers::sqrt2)).apply<loom::ErfOp>() + 1) * 0.5;
      Term density = (square(x) * -0.5).apply<loom::ExpOp>() *
                     (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
      return ct * (below + x * density);
    }
    const double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, a = 0.044715;
    Term u = ((x + x * square(x) * a) * k).apply<loom::TanhOp>();
    return ct * ((u + 1) * 0.5 + x * (1 - square(u)) * ((square(x) * (3 * a) + 1) * (0.5 * k)));
  });
}

/// From float to float; values converted to integers have no cotangent.
static void pullBackConvert(loom::ConvertOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] { return ct.convert(op.getInput().getType().getElementType()); });
}

//===----------------------------------------------------------------------===//
// Two operands
//===----------------------------------------------------------------------===//

static void pullBackAdd(loom::AddOp op, Term ct, Adjoints &to) {
  to.add(op.getLhs(), [&] { return ct; });
  to.add(op.getRhs(), [&] { return ct; });
}

static void pullBackSubtract(loom::SubtractOp op, Term ct, Adjoints &to) {
  to.add(op.getLhs(), [&] { return ct; });
  to.add(op.getRhs(), [&] { return -ct; });
}

static void pullBackMultiply(loom::MultiplyOp op, Term ct, Adjoints &to) {
  to.add(op.getLhs(), [&] { return ct * to.term(op.getRhs()); });
  to.add(op.getRhs(), [&] { return ct * to.term(op.getLhs()); });
}

static void pullBackDivide(loom::DivideOp op, Term ct, Adjoints &to) {
  to.add(op.getLhs(), [&] { return ct / to.term(op.getRhs()); });
  to.add(op.getRhs(), [&] { return -(ct / to.term(op.getRhs())) * to.term(op.getOutput()); });
}

/// The cotangent of an operand, where it compares as `wins` with the other; ties as said.
static Term chooseWhere(Term own, Term other, Term ct, Direction wins, bool tiesCount,
                        bool tiesAreHalved) {
  Direction orEqual = wins == Direction::GT ? Direction::GE : Direction::LE;
  Term won = ct.where(own.compare(tiesCount ? orEqual : wins, other));
  return tiesAreHalved ? own.compare(Direction::EQ, other).select(ct * 0.5, won) : won;
}

/// Comparisons with NaN are false, so its derivative is 0; only the result shows it.
template <typename Op> static void pullBackExtremum(Op op, Term ct, Adjoints &to) {
  constexpr Direction wins = std::is_same_v<Op, loom::MaximumOp> ? Direction::GT : Direction::LT;
  Term lhs = to.term(op.getLhs()), rhs = to.term(op.getRhs());
  auto ties = op->template getAttrOfType<StringAttr>(loom::kTies);
  bool isLeft = ties && ties.getValue() == loom::kTiesToLhs;
  bool isRight = ties && ties.getValue() == loom::kTiesToRhs;
  to.add(lhs, [&] { return chooseWhere(lhs, rhs, ct, wins, isLeft, !ties); });
  to.add(rhs, [&] { return chooseWhere(rhs, lhs, ct, wins, isRight, !ties); });
}

/// Guards against 0 to a negative power for exponent 0, and against the logarithm of 0.
static void pullBackPower(loom::PowerOp op, Term ct, Adjoints &to) {
  Term base = to.term(op.getLhs()), exponent = to.term(op.getRhs()), y = to.term(op.getOutput());
  to.add(base, [&] {
    Term slope = exponent * base.apply<loom::PowerOp>(exponent - 1);
    return ct * slope.where(exponent.compare(Direction::NE, 0));
  });
  to.add(exponent, [&] {
    Term safe = base.compare(Direction::EQ, 0).select(base.splat(1), base);
    return ct * y * safe.apply<loom::LogOp>();
  });
}

/// y = a - b * trunc(a / b), where the quotient changes in steps.
static void pullBackRemainder(loom::RemainderOp op, Term ct, Adjoints &to) {
  to.add(op.getLhs(), [&] { return ct; });
  to.add(op.getRhs(), [&] {
    Term whole = (to.term(op.getLhs()) - to.term(op.getOutput())) / to.term(op.getRhs());
    return -ct * whole.apply<loom::RoundNearestEvenOp>();
  });
}

static void pullBackSelect(loom::SelectOp op, Term ct, Adjoints &to) {
  Term predicate = to.term(op.getPredicate());
  to.add(op.getOnTrue(), [&] { return predicate.select(ct, ct.splat(0)); });
  to.add(op.getOnFalse(), [&] { return predicate.select(ct.splat(0), ct); });
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

template <typename... Ops> static void attachFlat(MLIRContext &context) {
  (Ops::template attachInterface<FlatModel<Ops>>(context), ...);
}

void gridloom::attachElementwisePullbacks(MLIRContext &context) {
  attachUnary<loom::NegateOp, formula::negate>(context);
  attachUnary<loom::AbsOp, formula::abs>(context);
  attachUnary<loom::ExpOp, formula::exp>(context);
  attachUnary<loom::LogOp, formula::log>(context);
  attachUnary<loom::SqrtOp, formula::sqrt>(context);
  attachUnary<loom::RsqrtOp, formula::rsqrt>(context);
  attachUnary<loom::TanhOp, formula::tanh>(context);
  attachUnary<loom::ErfOp, formula::erf>(context);
  attachUnary<loom::LogisticOp, formula::logistic>(context);
  attachUnary<loom::SineOp, formula::sine>(context);
  attachUnary<loom::CosineOp, formula::cosine>(context);
  attachUnary<loom::TanOp, formula::tan>(context);
  attachUnary<loom::AsinOp, formula::asin>(context);
  attachUnary<loom::AcosOp, formula::acos>(context);
  attachUnary<loom::AtanOp, formula::atan>(context);
  attachUnary<loom::SinhOp, formula::sinh>(context);
  attachUnary<loom::CoshOp, formula::cosh>(context);
  attachUnary<loom::AsinhOp, formula::asinh>(context);
  attachUnary<loom::AcoshOp, formula::acosh>(context);
  attachUnary<loom::AtanhOp, formula::atanh>(context);
  attachPullback<loom::GeluOp, pullBackGelu>(context);
  attachPullback<loom::ConvertOp, pullBackConvert>(context);
  attachPullback<loom::AddOp, pullBackAdd>(context);
  attachPullback<loom::SubtractOp, pullBackSubtract>(context);
  attachPullback<loom::MultiplyOp, pullBackMultiply>(context);
  attachPullback<loom::DivideOp, pullBackDivide>(context);
  attachPullback<loom::MaximumOp, pullBackExtremum<loom::MaximumOp>>(context);
  attachPullback<loom::MinimumOp, pullBackExtremum<loom::MinimumOp>>(context);
  attachPullback<loom::PowerOp, pullBackPower>(context);
  attachPullback<loom::RemainderOp, pullBackRemainder>(context);
  attachPullback<loom::SelectOp, pullBackSelect>(context);
  attachFlat<loom::FloorOp, loom::CeilOp, loom::SignOp, loom::RoundNearestEvenOp,
             loom::BitcastConvertOp>(context);
}
