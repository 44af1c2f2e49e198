//===- IndexingPullbacks.cpp - pullbacks of gather, scatter and scans -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reading at indices and adding at indices are each other's transposes: the cotangents of an
// element that is read twice are added up.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Pullbacks.h"

using namespace mlir;
using namespace gridloom;
using dist::ReductionKind;
using loom::Direction;

/// Adds `updates` into zeros.
static Term scatterSum(Term updates, RankedTensorType type, Value indices, int64_t dim) {
  return updates.emit<loom::ScatterOp>(
      type, updates.splat(type, 0), indices, updates, dim,
      dist::ReductionKindAttr::get(type.getContext(), ReductionKind::Sum));
}

/// Several dimensions of indices are flattened to one, in `ct`, too.
static void pullBackGather(loom::GatherOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    RankedTensorType type = typeOf(op.getInput());
    auto dim = static_cast<int64_t>(op.getDim());
    int64_t count = op.getIndices().getType().getNumElements();
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = count;
    return scatterSum(ct.reshape(shape), type, ct.with(op.getIndices()).reshape({count}), dim);
  });
}

static void pullBackGatherElements(loom::GatherElementsOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    return scatterSum(ct, typeOf(op.getInput()), op.getIndices(),
                      static_cast<int64_t>(op.getDim()));
  });
}

//===----------------------------------------------------------------------===//
// scatter
//===----------------------------------------------------------------------===//

namespace {
/// The places that a scatter's updates go to.
class Places {
public:
  Places(loom::ScatterOp op, Term ct)
      : op(op), dim(static_cast<int64_t>(op.getDim())), indices(ct.with(op.getIndices())),
        isInside(areInside(indices, shapeOf(op.getInput())[dim])),
        inside(isInside.select(indices, indices.splat(0))) {}

  /// The elements of `x`, of the input's shape or of one dimension, at the updates' places.
  Term read(Term x) {
    SmallVector<int64_t> shape(x.getShape());
    if (!op.takesSlices() || shape.size() == 1) {
      shape = SmallVector<int64_t>(indices.getShape());
      return x.emit<loom::GatherElementsOp>(x.getType().clone(shape), x, inside,
                                            shape.size() == 1 ? 0 : dim);
    }
    shape[dim] = indices.getShape()[0];
    return x.emit<loom::GatherOp>(x.getType().clone(shape), x, inside, dim);
  }

  /// For each index, whether its update stays in the result: it is inside and, if updates replace,
  /// the last one for its place.
  Term stays() {
    if (op.getReduction())
      return isInside;
    // Each update writes its number; one that reads its own number is the last.
    SmallVector<int64_t> shape(shapeOf(op.getInput()));
    int64_t along = dim;
    if (op.takesSlices() || shape.size() == 1) {
      shape = {shape[dim]};
      along = 0;
    }
    Term number = indices.iota(indices.getShape(), along);
    Term none = indices.splat(number.getType().clone(shape), -1);
    Term last = none.emit<loom::ScatterOp>(none.getType(), none, indices, number, along,
                                           dist::ReductionKindAttr());
    return isInside.apply<loom::AndOp>(read(last).compare(Direction::EQ, number));
  }

  /// `x`, of the updates' shape, where `condition`, with one element per index, is true; else zero.
  Term keep(Term x, Term condition) {
    return x.where(op.takesSlices() ? condition.broadcast(x.getShape(), {dim}) : condition);
  }

private:
  /// Updates outside of the dimension are ignored, so their places must not be read.
  static Term areInside(Term indices, int64_t size) {
    Term isBelow = indices.compare(Direction::LT, static_cast<double>(size));
    return indices.compare(Direction::GE, 0).apply<loom::AndOp>(isBelow);
  }

  loom::ScatterOp op;
  int64_t dim;
  Term indices, isInside, inside;
};
} // namespace

/// Gradients flow to the input where nothing replaces it, and to the updates that stay.
static void pullBackScatter(loom::ScatterOp op, Term ct, Adjoints &to) {
  Places places(op, ct);
  to.add(op.getInput(), [&]() -> Value {
    if (op.getReduction())
      return ct;
    Term zeros = ct.splat(op.getUpdates().getType(), 0);
    return ct.emit<loom::ScatterOp>(ct.getType(), ct, op.getIndices(), zeros, op.getDim(),
                                    dist::ReductionKindAttr());
  });
  to.add(op.getUpdates(), [&] { return places.keep(places.read(ct), places.stays()); });
}

static StringRef findScatterObstacle(loom::ScatterOp op) {
  bool isSum = !op.getReduction() || *op.getReduction() == ReductionKind::Sum;
  return isSum ? "" : "updates that are multiplied or compared into a tensor";
}

//===----------------------------------------------------------------------===//
// cumulative
//===----------------------------------------------------------------------===//

/// Each element is part of all sums from it on.
static void pullBackCumulative(loom::CumulativeOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    return ct.emit<loom::CumulativeOp>(ct.getType(), ct, op.getKind(), op.getDim(),
                                       op.getExclusive(), !op.getReverse());
  });
}

static StringRef findCumulativeObstacle(loom::CumulativeOp op) {
  return op.getKind() == ReductionKind::Sum ? "" : "a running product, maximum or minimum";
}

void gridloom::attachIndexingPullbacks(MLIRContext &context) {
  attachPullback<loom::GatherOp, pullBackGather>(context);
  attachPullback<loom::GatherElementsOp, pullBackGatherElements>(context);
  attachPullback<loom::ScatterOp, pullBackScatter, findScatterObstacle>(context);
  attachPullback<loom::CumulativeOp, pullBackCumulative, findCumulativeObstacle>(context);
}
