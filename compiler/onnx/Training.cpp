//===- Training.cpp - what only models in training mode have --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Training.h"

#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"
#include "dialects/loom/Random.h"
#include "dialects/loom/WeightUse.h"

#include "llvm/Support/xxhash.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

Value TrainingMarks::getLatest(Value weight) const {
  auto read = weight.getDefiningOp<loom::GetWeightOp>();
  Value latest = read ? updates.lookup(read.getNameAttr().getAttr()) : Value();
  return latest ? latest : weight;
}

void TrainingMarks::addUpdate(Value weight, Value next) {
  if (auto read = weight.getDefiningOp<loom::GetWeightOp>())
    updates[read.getNameAttr().getAttr()] = next;
}

namespace {
struct OperandUse {
  StringLiteral op;
  unsigned operand;
  StringLiteral use;
};
} // namespace

void onnx_import::markUses(const Node &node) {
  static constexpr OperandUse uses[] = {
      {"RNN", 1, loom::kRecurrentWeight},
      {"RNN", 2, loom::kRecurrentWeight},
      {"RNN", 3, loom::kBias},
      {"GRU", 1, loom::kRecurrentWeight},
      {"GRU", 2, loom::kRecurrentWeight},
      {"GRU", 3, loom::kBias},
      {"LSTM", 1, loom::kRecurrentWeight},
      {"LSTM", 2, loom::kRecurrentWeight},
      {"LSTM", 3, loom::kBias},
      {"LSTM", 7, loom::kRecurrentWeight}, // from the cell to the gates
      {"Gather", 0, loom::kEmbedding},
      {"BatchNormalization", 1, loom::kNormScale},
      {"BatchNormalization", 2, loom::kNormBias},
      {"GroupNormalization", 1, loom::kNormScale},
      {"GroupNormalization", 2, loom::kNormBias},
      {"InstanceNormalization", 1, loom::kNormScale},
      {"InstanceNormalization", 2, loom::kNormBias},
      {"LayerNormalization", 1, loom::kNormScale},
      {"LayerNormalization", 2, loom::kNormBias},
      {"RMSNormalization", 1, loom::kNormScale},
  };
  for (const OperandUse &use : uses)
    if (node.getOpType() == use.op && node.hasOperand(use.operand))
      if (auto read = node.operand(use.operand).getDefiningOp<loom::GetWeightOp>())
        read->setAttr(loom::kUse, node.getBuilder().getStringAttr(use.use));
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// Random bits of the shape of `like`, seeded by attribute seed or, without it, the node's name.
static Value emitRandomBits(Node &node, Value like) {
  GraphImporter &importer = node.getImporter();
  if (importer.isInBody()) {
    node.error() << "draws random numbers in a loop or branch, where they would be the same in "
                 << "every trip; unroll it (--unroll) or export it with training_mode false";
    return {};
  }
  auto named = static_cast<int64_t>(llvm::xxh3_64bits(node.getName()));
  int64_t seed = node.intAttribute("seed", named);
  return loom::createRandomBits(node.getBuilder(), node.getLoc(), getShape(like), seed,
                                importer.getTrainingMarks().takeStream(seed));
}

/// True where an element stays: where the upper 24 bits, as a number from 0 to 1, are `ratio` or
/// more.
static Value emitMask(Node &node, Value x, double ratio) {
  Value upper = node.binary<loom::ShiftRightLogicalOp>(emitRandomBits(node, x), 8);
  return node.compare(loom::Direction::GE, upper, std::ceil(std::ldexp(ratio, 24)));
}

/// Keeps x / (1 - ratio) with probability 1 - ratio, else zero (Srivastava et al. 2014). Before
/// training_mode was an operand, and without it, the input passes.
static LogicalResult importDropout(Node &node) {
  Value x = node.operand(0);
  FailureOr<std::optional<double>> training = node.numberOperand(2, "training_mode");
  if (!x || failed(training))
    return failure();
  double ratio = 0;
  if (training->value_or(0) != 0 && !node.getImporter().isInference()) {
    FailureOr<std::optional<double>> given = node.numberOperand(1, "ratio");
    if (failed(given))
      return failure();
    ratio = given->value_or(0.5);
    if (!(ratio >= 0 && ratio < 1))
      return node.error() << "ratio is " << ratio << ", expected at least 0 and below 1";
    if (!isa<FloatType>(getTensorType(x).getElementType()))
      return node.error() << "input is " << x.getType() << ", expected floats";
  }
  if (training->value_or(0) == 0)
    node.getImporter().getTrainingMarks().addEvaluated("Dropout", loom::getNodeName(node.getLoc()));
  if (ratio == 0) {
    // Up to version 9 the mask has the input's type; ONNX Runtime fills it since version 12.
    RankedTensorType type = getTensorType(x);
    if (node.getOpset() >= 10)
      type = type.clone(IntegerType::get(node.getContext(), 1));
    if (node.hasResult(1) && failed(node.setResult(1, node.splat(type, node.getOpset() >= 12))))
      return failure();
    return node.setResult(x);
  }
  Value mask = emitMask(node, x, ratio);
  if (!mask || failed(node.setResult(1, mask)))
    return failure();
  Value scaled = node.binary<loom::MultiplyOp>(x, 1 / (1 - ratio));
  return node.setResult(node.select(mask, scaled, node.splatLike(x, 0)));
}

ArrayRef<OpRule> onnx_import::getTrainingRules() {
  static constexpr OpRule rules[] = {{"Dropout", 7, 28, importDropout}};
  return rules;
}
