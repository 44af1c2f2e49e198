//===- Reductions.cpp - reductions and global pooling --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {
struct Reduction {
  Value input;
  Dims dims;
  bool keepDims;
};
} // namespace

/// The axes to reduce: an attribute or, since version 13 of ReduceSum and 18 of the others, an
/// operand; none means all, unless `noop_with_empty_axes`.
static FailureOr<Reduction> getReduction(Node &node) {
  Value x = node.operand(0);
  auto given = node.intsAttributeOrOperand("axes", 1);
  if (!x || !given)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  bool keepDims = node.intAttribute("keepdims", 1);
  if (!*given || (*given)->empty()) {
    bool keepsAll = node.intAttribute("noop_with_empty_axes", 0);
    return Reduction{x, keepsAll ? Dims() : llvm::to_vector(llvm::seq<int64_t>(0, rank)), keepDims};
  }
  std::optional<Dims> dims = node.normalizeAxes(**given, rank);
  if (!dims)
    return failure();
  return Reduction{x, *dims, keepDims};
}

template <dist::ReductionKind kind> static LogicalResult importReduce(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  Value x = r->input;
  // Booleans reduce as bytes: max is or, min is and. Of nothing, these are the extremes of the
  // byte, which must be 0 and another number.
  Type element = getTensorType(x).getElementType();
  if (element.isInteger(1))
    x = node.convert(x, IntegerType::get(node.getContext(), 8, IntegerType::Unsigned));
  return node.setResult(node.convert(node.reduce(x, kind, r->dims, r->keepDims), element));
}

static LogicalResult importReduceMean(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  return node.setResult(node.mean(r->input, r->dims, r->keepDims));
}

static LogicalResult importReduceL1(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  return node.setResult(node.reduce(node.unary<loom::AbsOp>(r->input), dist::ReductionKind::Sum,
                                    r->dims, r->keepDims));
}

/// Of 16-bit floats in f32.
static Value sumSquares(Node &node, const Reduction &r) {
  Value x = node.widen(r.input);
  return node.reduce(node.binary<loom::MultiplyOp>(x, x), dist::ReductionKind::Sum, r.dims,
                     r.keepDims);
}

static LogicalResult importReduceSumSquare(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  return node.setResult(
      node.convert(sumSquares(node, *r), getTensorType(r->input).getElementType()));
}

/// x in the element type in which roots and logarithms are taken: integers as f64, 16-bit floats as
/// f32.
static Value toRootType(Node &node, Value x) {
  bool isFloat = x && isa<FloatType>(getTensorType(x).getElementType());
  return isFloat ? node.widen(x) : node.convert(x, Float64Type::get(node.getContext()));
}

Value onnx_import::takeRoot(Node &node, Value sum, int64_t p) {
  if (p == 1 || !sum)
    return sum;
  auto root = [&](Value x) {
    return p == 2 ? node.unary<loom::SqrtOp>(x)
                  : node.binary<loom::PowerOp>(x, 1.0 / static_cast<double>(p));
  };
  if (!node.isDifferentiated())
    return root(sum);
  Value zero = node.splatLike(sum, 0);
  Value guard =
      node.select(node.compare(loom::Direction::EQ, sum, zero), node.splatLike(sum, 1), zero);
  return node.binary<loom::SubtractOp>(root(node.binary<loom::AddOp>(sum, guard)), guard);
}

static LogicalResult importReduceL2(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  Value sum = sumSquares(node, *r);
  if (!sum)
    return failure();
  Value root = takeRoot(node, toRootType(node, sum));
  return node.setResult(node.convert(root, getTensorType(r->input).getElementType()));
}

static LogicalResult importReduceLogSum(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  Value sum = node.reduce(node.widen(r->input), dist::ReductionKind::Sum, r->dims, r->keepDims);
  Value log = node.unary<loom::LogOp>(toRootType(node, sum));
  return node.setResult(node.convert(log, getTensorType(r->input).getElementType()));
}

/// max + log(sum(exp(x - max))), which does not overflow.
static LogicalResult importReduceLogSumExp(Node &node) {
  FailureOr<Reduction> r = getReduction(node);
  if (failed(r))
    return failure();
  Type element = getTensorType(r->input).getElementType();
  Value x = toRootType(node, r->input);
  Value peak = node.reduce(x, dist::ReductionKind::Max, r->dims, r->keepDims);
  // An infinite maximum must not make infinity minus infinity.
  auto guardInfinity = [&](Value value) {
    Value isInfinite = node.compare(loom::Direction::EQ, node.unary<loom::AbsOp>(value),
                                    std::numeric_limits<double>::infinity());
    return node.select(isInfinite, node.splatLike(value, 0), value);
  };
  Value shift = guardInfinity(node.reduceLike(x, dist::ReductionKind::Max, r->dims));
  Value sum = node.reduce(node.unary<loom::ExpOp>(node.binary<loom::SubtractOp>(x, shift)),
                          dist::ReductionKind::Sum, r->dims, r->keepDims);
  Value result = node.binary<loom::AddOp>(guardInfinity(peak), node.unary<loom::LogOp>(sum));
  return node.setResult(result ? node.convert(result, element) : Value());
}

FailureOr<Dims> onnx_import::getSpatialDims(Node &node, Value x) {
  if (!x)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  if (rank < 3)
    return node.error() << "input " << toString(getShape(x)) << " has no spatial dimensions";
  return llvm::to_vector<6>(llvm::seq<int64_t>(2, rank));
}

static LogicalResult importGlobalAveragePool(Node &node) {
  Value x = node.operand(0);
  FailureOr<Dims> dims = getSpatialDims(node, x);
  return failed(dims) ? failure() : node.setResult(node.mean(x, *dims, /*keepDims=*/true));
}

static LogicalResult importGlobalMaxPool(Node &node) {
  Value x = node.operand(0);
  FailureOr<Dims> dims = getSpatialDims(node, x);
  return failed(dims) ? failure()
                      : node.setResult(node.reduce(x, dist::ReductionKind::Max, *dims, true));
}

ArrayRef<OpRule> onnx_import::getReductionRules() {
  using dist::ReductionKind;
  static constexpr OpRule rules[] = {
      {"GlobalAveragePool", 1, 28, importGlobalAveragePool},
      {"GlobalMaxPool", 1, 28, importGlobalMaxPool},
      {"ReduceL1", 1, 28, importReduceL1},
      {"ReduceL2", 1, 28, importReduceL2},
      {"ReduceLogSum", 1, 28, importReduceLogSum},
      {"ReduceLogSumExp", 1, 28, importReduceLogSumExp},
      {"ReduceMax", 1, 28, importReduce<ReductionKind::Max>},
      {"ReduceMean", 1, 28, importReduceMean},
      {"ReduceMin", 1, 28, importReduce<ReductionKind::Min>},
      {"ReduceProd", 1, 28, importReduce<ReductionKind::Prod>},
      {"ReduceSum", 1, 28, importReduce<ReductionKind::Sum>},
      {"ReduceSumSquare", 1, 28, importReduceSumSquare},
  };
  return rules;
}
