//===- Uses.cpp - roles of weights ----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Survey.h"

#include "dialects/loom/WeightUse.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

namespace {

/// In order of precedence: a weight that is read in several ways has the first of their roles.
enum class Use { Recurrent, Matmul, Convolution, Embedding, NormScale, NormBias, Bias, Other };

StringRef nameOf(Use use) {
  switch (use) {
  case Use::Recurrent:
    return loom::kRecurrentWeight;
  case Use::Matmul:
    return "matmul weight";
  case Use::Convolution:
    return "convolution weight";
  case Use::Embedding:
    return loom::kEmbedding;
  case Use::NormScale:
    return loom::kNormScale;
  case Use::NormBias:
    return loom::kNormBias;
  case Use::Bias:
    return loom::kBias;
  case Use::Other:
    break;
  }
  return "other";
}

/// Operations that only move or repeat elements, or give them another type.
bool isMove(Operation *op) {
  return isa<loom::ReshapeOp, loom::TransposeOp, loom::BroadcastOp, loom::ConvertOp, loom::SliceOp>(
      op);
}

Value skipMoves(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isMove(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Whether a value is normalised, or divided by a root such as a standard deviation.
bool isNormalized(Value value) {
  Operation *op = skipMoves(value).getDefiningOp();
  if (!op)
    return false;
  if (op->hasTrait<loom::NormalizesRows>())
    return true;
  auto isRoot = [](Value each) {
    Operation *root = skipMoves(each).getDefiningOp();
    return isa_and_nonnull<loom::SqrtOp, loom::RsqrtOp>(root);
  };
  if (auto divide = dyn_cast<loom::DivideOp>(op))
    return isRoot(divide.getRhs());
  auto product = dyn_cast<loom::MultiplyOp>(op);
  return product && (isRoot(product.getLhs()) || isRoot(product.getRhs()));
}

/// Whether a value is the product of a weight and normalised values.
bool isScaledNormal(Value value) {
  auto product = skipMoves(value).getDefiningOp<loom::MultiplyOp>();
  if (!product)
    return false;
  for (auto [one, other] : {std::pair(product.getLhs(), product.getRhs()),
                            std::pair(product.getRhs(), product.getLhs())})
    if (skipMoves(one).getDefiningOp<loom::GetWeightOp>() && isNormalized(other))
      return true;
  return false;
}

/// Follows a weight through operations that move its elements to those that use them.
class UseFinder {
public:
  void add(loom::GetWeightOp read) {
    auto attr = read->getAttrOfType<StringAttr>(loom::kUse);
    if (attr)
      addUse(llvm::StringSwitch<Use>(attr.getValue())
                 .Case(loom::kRecurrentWeight, Use::Recurrent)
                 .Case(loom::kEmbedding, Use::Embedding)
                 .Case(loom::kNormScale, Use::NormScale)
                 .Case(loom::kNormBias, Use::NormBias)
                 .Default(Use::Bias));
    // An embedding with a constant index may be a slice of a weight that is multiplied.
    if (!attr || attr.getValue() == loom::kEmbedding)
      follow(read.getOutput());
  }
  Use get() const { return found.value_or(Use::Other); }

private:
  void addUse(Use use) { found = std::min(found.value_or(use), use); }
  void follow(Value value) {
    for (OpOperand &use : value.getUses()) {
      if (isMove(use.getOwner()))
        follow(use.getOwner()->getResult(0));
      else
        addUse(classify(use));
    }
  }
  static Use classify(OpOperand &use) {
    Operation *op = use.getOwner();
    unsigned operand = use.getOperandNumber();
    if (isa<loom::DotGeneralOp>(op))
      return Use::Matmul;
    if (isa<loom::ConvolutionOp>(op) && operand == 1)
      return Use::Convolution;
    if (isa<loom::GatherOp, loom::GatherElementsOp>(op) && operand == 0)
      return Use::Embedding;
    if (op->hasTrait<loom::NormalizesRows>())
      return operand == 1 ? Use::NormScale : operand == 2 ? Use::NormBias : Use::Other;
    if (op->getNumOperands() != 2)
      return Use::Other;
    Value other = op->getOperand(1 - operand);
    if (isa<loom::AddOp>(op) || (isa<loom::SubtractOp>(op) && operand == 1))
      return isScaledNormal(other) ? Use::NormBias : Use::Bias;
    return isa<loom::MultiplyOp>(op) && isNormalized(other) ? Use::NormScale : Use::Other;
  }

  std::optional<Use> found;
};

} // namespace

std::string train::describeUse(ArrayRef<loom::GetWeightOp> reads) {
  UseFinder finder;
  for (loom::GetWeightOp read : reads)
    finder.add(read);
  return nameOf(finder.get()).str();
}
