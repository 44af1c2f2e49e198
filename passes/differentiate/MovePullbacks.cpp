//===- MovePullbacks.cpp - pullbacks of operations that move elements -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// All are linear: the pullback is the transpose. Broadcast and sum are each other's transpose, as
// are pad and slice, and a permutation and its inverse.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Pullbacks.h"

using namespace mlir;
using namespace gridloom;

static void pullBackBroadcast(loom::BroadcastOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    SmallVector<int64_t> repeated;
    for (int64_t dim = 0; dim < ct.getRank(); ++dim) {
      const auto *own = llvm::find(op.getDims(), dim);
      if (own == op.getDims().end() ||
          shapeOf(op.getInput())[own - op.getDims().begin()] != ct.getShape()[dim])
        repeated.push_back(dim);
    }
    return ct.sum(repeated).reshape(shapeOf(op.getInput()));
  });
}

static void pullBackReshape(loom::ReshapeOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] { return ct.reshape(shapeOf(op.getInput())); });
}

static void pullBackTranspose(loom::TransposeOp op, Term ct, Adjoints &to) {
  SmallVector<int64_t> inverse(op.getPermutation().size());
  for (auto [i, dim] : llvm::enumerate(op.getPermutation()))
    inverse[dim] = static_cast<int64_t>(i);
  to.add(op.getInput(), [&] { return ct.transpose(inverse); });
}

static void pullBackReverse(loom::ReverseOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] { return ct.reverse(op.getDims()); });
}

static void pullBackSlice(loom::SliceOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    SmallVector<int64_t> high, interior;
    for (auto [d, size] : llvm::enumerate(ct.getShape())) {
      int64_t stride = op.getStrides()[d];
      int64_t covered = size ? (size - 1) * stride + 1 : 0;
      high.push_back(shapeOf(op.getInput())[d] - op.getStarts()[d] - covered);
      interior.push_back(stride - 1);
    }
    return ct.pad(op.getStarts(), high, interior);
  });
}

/// The padding is constant and has no cotangent.
static void pullBackPad(loom::PadOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    SmallVector<int64_t> limits, strides;
    for (auto [d, size] : llvm::enumerate(shapeOf(op.getInput()))) {
      strides.push_back(op.getInterior()[d] + 1);
      limits.push_back(op.getLow()[d] + (size ? (size - 1) * strides.back() + 1 : 0));
    }
    return ct.slice(op.getLow(), limits, strides);
  });
}

static void pullBackConcatenate(loom::ConcatenateOp op, Term ct, Adjoints &to) {
  auto dim = static_cast<int64_t>(op.getDim());
  int64_t start = 0;
  for (Value input : op.getInputs()) {
    int64_t stop = start + shapeOf(input)[dim];
    to.add(input, [&] { return ct.slice(dim, start, stop); });
    start = stop;
  }
}

void gridloom::attachMovePullbacks(MLIRContext &context) {
  attachPullback<loom::BroadcastOp, pullBackBroadcast>(context);
  attachPullback<loom::ReshapeOp, pullBackReshape>(context);
  attachPullback<loom::TransposeOp, pullBackTranspose>(context);
  attachPullback<loom::ReverseOp, pullBackReverse>(context);
  attachPullback<loom::SliceOp, pullBackSlice>(context);
  attachPullback<loom::PadOp, pullBackPad>(context);
  attachPullback<loom::ConcatenateOp, pullBackConcatenate>(context);
}
