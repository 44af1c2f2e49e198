//===- Clipping.cpp - gradient clipping -----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Clipping.h"

#include "passes/train/OptimizerRules.h"
#include "support/CallText.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

const char *const gridloom::train::kClipGrammar =
    "norm(LIMIT), which scales all gradients so that the norm over all of them is at most LIMIT "
    "(as "
    "PyTorch's clip_grad_norm_), or value(LIMIT), which moves each element to within -LIMIT and "
    "LIMIT";

Term gridloom::train::getGlobalNorm(ArrayRef<Term> gradients) {
  bool isDouble = llvm::any_of(
      gradients, [](const Term &term) { return term.getType().getElementType().isF64(); });
  Builder types(gradients.front().getType().getContext());
  Type element = isDouble ? types.getF64Type() : types.getF32Type();
  std::optional<Term> total;
  for (const Term &gradient : gradients) {
    Term sum = sumAll(square(gradient.convert(element)));
    total = total ? *total + sum : sum;
  }
  return total->apply<loom::SqrtOp>();
}

std::optional<ClipSpec> ClipSpec::parse(const std::string &text, std::string &error) {
  CallText call;
  std::string fault = call.parse(text);
  ClipSpec spec;
  spec.kind = call.name == "value" ? Kind::Value : Kind::Norm;
  if (fault.empty() && call.name != "value" && call.name != "norm")
    fault = "is neither norm nor value";
  if (fault.empty() && (call.arguments.size() != 1 || !call.settings.empty()))
    fault = "has not one limit, a number";
  if (fault.empty()) {
    std::optional<double> limit = parseNumber(call.arguments.front());
    if (limit && *limit >= kMinPositive && *limit <= kMaxLimit)
      spec.limit = *limit;
    else
      fault = "has limit " + call.arguments.front() + ", which is not a number from 1e-37 to 1e30";
  }
  if (fault.empty())
    return spec;
  error = "clipping '" + text + "' " + fault + "; give " + kClipGrammar;
  return std::nullopt;
}

SmallVector<Term> ClipSpec::apply(ArrayRef<Term> gradients, Term norm) const {
  if (kind == Kind::Value)
    return llvm::map_to_vector(gradients, [&](const Term &gradient) {
      return gradient.apply<loom::MinimumOp>(gradient.splat(limit))
          .apply<loom::MaximumOp>(gradient.splat(-limit));
    });
  Term share = norm.splat(limit) / (norm + 1e-6);
  Term factor = share.apply<loom::MinimumOp>(share.splat(1));
  return llvm::map_to_vector(gradients, [&](const Term &gradient) {
    Term wide = gradient.convert(getComputeType(gradient.getType().getElementType()));
    return (wide * spread(factor, wide.getType())).convert(gradient.getType().getElementType());
  });
}
