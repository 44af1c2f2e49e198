//===- Contractions.cpp - matrix products and Einsum ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"

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

Value onnx_import::gemm(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return {};
  int64_t xContract = node.intAttribute("transA", 0) ? 0 : 1;
  int64_t yContract = node.intAttribute("transB", 0) ? 1 : 0;
  if (getShape(x).size() != 2 || getShape(y).size() != 2 ||
      getShape(x)[xContract] != getShape(y)[yContract]) {
    node.error() << "operands " << toString(getShape(x)) << " and " << toString(getShape(y))
                 << " cannot be multiplied with transA = " << 1 - xContract
                 << ", transB = " << yContract;
    return {};
  }
  Value result = node.dotGeneral(x, y, {}, {}, {xContract}, {yContract});
  double alpha = node.floatAttribute("alpha", 1), beta = node.floatAttribute("beta", 1);
  bool hasBias = node.hasOperand(2) && beta != 0;
  Value bias = hasBias ? node.operand(2) : Value();
  if (hasBias && failed(node.checkSameElementType(result, bias)))
    return {};
  // Fractions of integers are added in f64 before they become integers again.
  Type element = getTensorType(x).getElementType();
  if (!isa<FloatType>(element) && (alpha != 1 || (hasBias && beta != 1))) {
    Type wide = Float64Type::get(node.getContext());
    result = node.convert(result, wide);
    bias = node.convert(bias, wide);
  }
  if (alpha != 1)
    result = node.binary<loom::MultiplyOp>(result, alpha);
  if (!hasBias || !result)
    return node.convert(result, element);
  if (beta != 1)
    bias = node.binary<loom::MultiplyOp>(bias, beta);
  auto shape = node.broadcastShapes(getShape(result), getShape(bias));
  if (!shape)
    return {};
  if (ArrayRef<int64_t>(*shape) != getShape(result)) {
    node.error() << "operand " << toString(getShape(bias)) << " does not broadcast to "
                 << toString(getShape(result));
    return {};
  }
  return node.convert(node.binary<loom::AddOp>(result, bias), element);
}

static LogicalResult importGemm(Node &node) { return node.setResult(gemm(node)); }

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

/// Drops dimensions of 1 under an ellipsis that other terms have in other sizes: nothing needs to
/// be repeated.
static void dropUnits(Node &node, Labelled &x, const llvm::StringMap<int64_t> &sizes) {
  Dims kept;
  std::string left;
  for (auto [label, size] : llvm::zip_equal(x.labels, getShape(x.value))) {
    if (llvm::isDigit(label) && size != sizes.lookup(StringRef(&label, 1)))
      continue;
    kept.push_back(size);
    left.push_back(label);
  }
  x.value = node.reshape(x.value, kept);
  x.labels = left;
}

/// Sums over the labels that are not in `keep`.
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

/// Takes diagonals until the term repeats no label.
static void takeDiagonals(Node &node, Labelled &x) {
  auto findRepeated = [&](size_t &first, size_t &second) {
    for (first = 0; first < x.labels.size(); ++first) {
      second = x.labels.find(x.labels[first], first + 1);
      if (second != std::string::npos)
        return true;
    }
    return false;
  };
  size_t first = 0, second = 0;
  while (findRepeated(first, second) && x.value) {
    // With both dimensions joined into one, elements of the diagonal are size + 1 apart.
    int64_t rank = x.labels.size(), size = getShape(x.value)[first];
    Dims order, joined;
    std::string left;
    for (int64_t i = 0; i < rank; ++i)
      if (i != static_cast<int64_t>(first) && i != static_cast<int64_t>(second)) {
        order.push_back(i);
        joined.push_back(getShape(x.value)[i]);
        left.push_back(x.labels[i]);
      }
    order.append({static_cast<int64_t>(first), static_cast<int64_t>(second)});
    joined.push_back(size * size);
    left.push_back(x.labels[first]);
    x.value = node.reshape(node.transpose(x.value, order), joined);
    x.value = node.slice(x.value, rank - 2, 0, size * size, size + 1);
    x.labels = left;
  }
}

/// The product over common labels, summed over those that are not in `keep`.
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

/// The output's labels: `given`, or in alphabetical order those that occur once in the terms,
/// `written` one after another.
static std::string getOutputLabels(StringRef written, bool isGiven, StringRef given,
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
  for (char label : written)
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
  std::string written;
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
      if (llvm::isDigit(label))
        hidden = std::max<int64_t>(hidden, label - '0' + 1);
      int64_t &size = sizes.try_emplace(StringRef(&label, 1), shape[at]).first->second;
      // Dimensions under ellipses broadcast.
      if (llvm::isDigit(label) && size == 1)
        size = shape[at];
      if (size != shape[at] && !(llvm::isDigit(label) && shape[at] == 1))
        return malformed("gives '" + Twine(label) + "' sizes " + Twine(size) + " and " +
                         Twine(shape[at]));
    }
    written += *labels;
    terms.push_back({value, *labels});
  }
  for (Labelled &term : terms) {
    dropUnits(node, term, sizes);
    takeDiagonals(node, term);
    if (!term.value)
      return failure();
  }
  bool isGiven = StringRef(equation).contains("->");
  std::string wanted = getOutputLabels(written, isGiven, output, hidden);
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

/// One step of Gaussian elimination on matrices [batch, n, n]: multiplies `product` by the largest
/// element of the first column, with the sign of the exchange that brings it to the top, and
/// returns the remaining matrices, [batch, n - 1, n - 1].
static Value eliminate(Node &node, Value x, Value &product) {
  int64_t batch = getShape(x)[0], n = getShape(x)[1];
  auto indices = RankedTensorType::get({batch, n}, IntegerType::get(node.getContext(), 64));

  Value first = node.reshape(node.slice(x, 2, 0, 1), {batch, n});
  Value place = node.emit<loom::ArgReduceOp>(indices.clone(ArrayRef<int64_t>{batch}),
                                             node.unary<loom::AbsOp>(first),
                                             dist::ReductionKind::Max, 1, /*last=*/false);
  if (!place)
    return {};
  Value isPivot = node.compare(loom::Direction::EQ, node.iota(indices, 1),
                               node.broadcast(place, {batch, n}, {0}));
  auto overRows = [&](Value row, int64_t dim) {
    return node.broadcast(row, {batch, n, n}, {0, dim});
  };
  Value pivotRow = node.reduce(node.select(overRows(isPivot, 1), x, node.splatLike(x, 0)),
                               dist::ReductionKind::Sum, {1},
                               /*keepDims=*/false);
  Value pivot = node.reshape(node.slice(pivotRow, 1, 0, 1), {batch});
  Value moved = node.compare(loom::Direction::NE, place, 0.0);
  product = node.binary<loom::MultiplyOp>(
      product, node.select(moved, node.unary<loom::NegateOp>(pivot), pivot));
  if (n == 1 || !pivotRow)
    return {};
  // The first row replaces the pivot's row; the first place is dropped.
  Value top = node.reshape(node.slice(x, 1, 0, 1), {batch, n});
  Value rest = node.slice(node.select(overRows(isPivot, 1), overRows(top, 2), x), 1, 1, n);
  Value safe =
      node.select(node.compare(loom::Direction::EQ, pivot, 0.0), node.splatLike(pivot, 1), pivot);
  Value scaled = node.binary<loom::DivideOp>(node.slice(pivotRow, 1, 1, n),
                                             node.broadcast(safe, {batch, n - 1}, {0}));
  Value left = node.reshape(node.slice(rest, 2, 0, 1), {batch, n - 1});
  Value update =
      node.binary<loom::MultiplyOp>(node.broadcast(left, {batch, n - 1, n - 1}, {0, 1}),
                                    node.broadcast(scaled, {batch, n - 1, n - 1}, {0, 2}));
  return node.binary<loom::SubtractOp>(node.slice(rest, 2, 1, n), update);
}

static LogicalResult importDet(Node &node) {
  constexpr int64_t kMaxSize = 64; // each row becomes a dozen operations
  Value x = node.operand(0);
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  if (shape.size() < 2 || shape.back() != shape[shape.size() - 2] || shape.back() > kMaxSize)
    return node.error() << toString(shape) << " is not of square matrices of at most " << kMaxSize
                        << " rows";
  int64_t n = shape.back();
  SmallVector<int64_t> outer(shape.drop_back(2));
  int64_t batch = loom::countElements(outer);
  Value product = node.splat(getTensorType(x).clone(ArrayRef<int64_t>{batch}), 1);
  Value matrix = node.reshape(x, {batch, n, n});
  for (int64_t i = 0; i < n && product; ++i)
    matrix = eliminate(node, matrix, product);
  return node.setResult(node.reshape(product, outer));
}

ArrayRef<OpRule> onnx_import::getContractionRules() {
  static constexpr OpRule rules[] = {
      {"Det", 11, 28, importDet},
      {"Einsum", 12, 28, importEinsum},
      {"Gemm", 7, 28, importGemm},
      {"MatMul", 1, 28, importMatMul},
  };
  return rules;
}
