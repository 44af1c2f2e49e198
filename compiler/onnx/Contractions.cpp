//===- Contractions.cpp - matrix products and Einsum ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"

#include <map>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

static LogicalResult importMatMul(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  return node.setResult(node.matmul(x, y));
}

/// alpha * x * y + beta * c, where x and y may be transposed.
static LogicalResult importGemm(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  int64_t xContract = node.intAttribute("transA", 0) ? 0 : 1;
  int64_t yContract = node.intAttribute("transB", 0) ? 1 : 0;
  if (getShape(x).size() != 2 || getShape(y).size() != 2 ||
      getShape(x)[xContract] != getShape(y)[yContract])
    return node.error() << "operands " << toString(getShape(x)) << " and " << toString(getShape(y))
                        << " cannot be multiplied with transA = " << 1 - xContract
                        << ", transB = " << yContract;
  Value result = node.dotGeneral(x, y, {}, {}, {xContract}, {yContract});
  if (double alpha = node.floatAttribute("alpha", 1); alpha != 1)
    result = node.binary<loom::MultiplyOp>(result, alpha);
  double beta = node.floatAttribute("beta", 1);
  if (!node.hasOperand(2) || beta == 0)
    return node.setResult(result);
  Value bias = node.operand(2);
  if (failed(node.checkSameElementType(result, bias)))
    return failure();
  if (beta != 1)
    bias = node.binary<loom::MultiplyOp>(bias, beta);
  auto shape = node.broadcastShapes(getShape(result), getShape(bias));
  if (!shape)
    return failure();
  if (ArrayRef<int64_t>(*shape) != getShape(result))
    return node.error() << "operand " << toString(getShape(bias)) << " does not broadcast to "
                        << toString(getShape(result));
  return node.setResult(node.binary<loom::AddOp>(result, bias));
}

//===----------------------------------------------------------------------===//
// Einsum
//===----------------------------------------------------------------------===//

namespace {
/// A tensor with a label for each dimension. Dimensions under an ellipsis have the labels '0'
/// (the last), '1', ...
struct Labelled {
  Value value;
  std::string labels;
};
} // namespace

/// Spells out a term such as "b...ij" for a tensor of `rank` dimensions.
static std::optional<std::string> expandTerm(StringRef term, int64_t rank) {
  size_t dots = term.find("...");
  if (dots == StringRef::npos)
    return term.str();
  int64_t hidden = rank - static_cast<int64_t>(term.size() - 3);
  if (hidden < 0 || hidden > 9)
    return std::nullopt;
  std::string labels = term.take_front(dots).str();
  for (int64_t i = hidden; i-- > 0;)
    labels.push_back(static_cast<char>('0' + i));
  return labels + term.drop_front(dots + 3).str();
}

/// Sums the labels that `keep` does not have.
static void sumOut(Node &node, Labelled &x, StringRef keep) {
  Dims dims;
  std::string left;
  for (auto [i, label] : llvm::enumerate(x.labels)) {
    if (keep.contains(label))
      left.push_back(label);
    else
      dims.push_back(i);
  }
  x.value = node.reduce(x.value, dist::ReductionKind::Sum, dims, /*keepDims=*/false);
  x.labels = left;
}

/// The product over common labels, summing those that `keep` does not have.
static Labelled contract(Node &node, Labelled x, Labelled y, StringRef keep) {
  sumOut(node, x, keep.str() + y.labels);
  sumOut(node, y, keep.str() + x.labels);
  Dims xBatch, yBatch, xContract, yContract;
  std::string batch, xFree, yFree;
  for (auto [i, label] : llvm::enumerate(x.labels)) {
    size_t other = y.labels.find(label);
    if (other == std::string::npos) {
      xFree.push_back(label);
    } else if (keep.contains(label)) {
      xBatch.push_back(i);
      yBatch.push_back(other);
      batch.push_back(label);
    } else {
      xContract.push_back(i);
      yContract.push_back(other);
    }
  }
  for (char label : y.labels)
    if (!StringRef(x.labels).contains(label))
      yFree.push_back(label);
  return {node.dotGeneral(x.value, y.value, xBatch, yBatch, xContract, yContract),
          batch + xFree + yFree};
}

/// The output's labels: given, or all that appear once, in alphabetical order.
static std::string getOutputLabels(ArrayRef<Labelled> terms, bool isGiven, StringRef given,
                                   int64_t hidden) {
  std::string ellipsis;
  for (int64_t i = hidden; i-- > 0;)
    ellipsis.push_back(static_cast<char>('0' + i));
  if (isGiven) {
    size_t dots = given.find("...");
    return dots == StringRef::npos
               ? given.str()
               : (given.take_front(dots) + ellipsis + given.drop_front(dots + 3)).str();
  }
  std::map<char, int> counts;
  for (const Labelled &term : terms)
    for (char label : term.labels)
      ++counts[label];
  std::string labels = ellipsis;
  for (auto [label, count] : counts)
    if (count == 1 && !llvm::isDigit(label))
      labels.push_back(label);
  return labels;
}

static LogicalResult importEinsum(Node &node) {
  std::string equation = node.stringAttribute("equation", "");
  llvm::erase(equation, ' ');
  auto malformed = [&](const Twine &reason) {
    return node.error() << "equation '" << equation << "' " << reason.str();
  };
  auto [left, output] = StringRef(equation).split("->");
  SmallVector<StringRef> names;
  left.split(names, ',');
  if (names.size() != node.getNumOperands())
    return malformed("does not have " + Twine(node.getNumOperands()) + " terms");
  SmallVector<Labelled> terms;
  llvm::StringMap<int64_t> sizes;
  int64_t hidden = 0;
  for (auto [i, name] : llvm::enumerate(names)) {
    Value value = node.operand(i);
    if (!value)
      return failure();
    ArrayRef<int64_t> shape = getShape(value);
    std::optional<std::string> labels = expandTerm(name, shape.size());
    if (!labels || labels->size() != shape.size())
      return malformed("does not fit operand " + Twine(i) + ", which is " + toString(shape));
    for (auto [at, label] : llvm::enumerate(*labels)) {
      if (!llvm::isAlpha(label) && !llvm::isDigit(label))
        return malformed("has the label '" + Twine(label) + "'");
      if (labels->find(label) != at)
        return malformed("repeats '" + Twine(label) + "' in a term, which is not supported");
      if (llvm::isDigit(label))
        hidden = std::max<int64_t>(hidden, label - '0' + 1);
      int64_t &size = sizes.try_emplace(StringRef(&label, 1), shape[at]).first->second;
      if (size != shape[at])
        return malformed("gives '" + Twine(label) + "' sizes " + Twine(size) + " and " +
                         Twine(shape[at]));
    }
    terms.push_back({value, *labels});
  }
  bool isGiven = StringRef(equation).contains("->");
  std::string wanted = getOutputLabels(terms, isGiven, output, hidden);
  for (auto [at, label] : llvm::enumerate(wanted))
    if (!sizes.contains(StringRef(&label, 1)) || wanted.find(label) != at)
      return malformed("has the output label '" + Twine(label) + "' twice or nowhere else");
  Labelled result = terms.front();
  for (size_t i = 1; i < terms.size(); ++i) {
    std::string keep = wanted;
    for (const Labelled &later : ArrayRef(terms).drop_front(i + 1))
      keep += later.labels;
    if (failed(node.checkSameElementType(result.value, terms[i].value)))
      return failure();
    result = contract(node, result, terms[i], keep);
    if (!result.value)
      return failure();
  }
  sumOut(node, result, wanted);
  Dims permutation;
  for (char label : wanted)
    permutation.push_back(result.labels.find(label));
  return node.setResult(node.transpose(result.value, permutation));
}

ArrayRef<OpRule> onnx_import::getContractionRules() {
  static constexpr OpRule rules[] = {
      {"Einsum", 12, 28, importEinsum},
      {"Gemm", 7, 28, importGemm},
      {"MatMul", 7, 28, importMatMul},
  };
  return rules;
}
