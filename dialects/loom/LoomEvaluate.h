//===- LoomEvaluate.h - pieces of the reference evaluation ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_LOOMEVALUATE_H
#define GRIDLOOM_DIALECTS_LOOM_LOOMEVALUATE_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// Element (i0, i1, ...) of the result is element `offset + sum of i * stride` of `source`.
HostTensor gatherStrided(const HostTensor &source, llvm::ArrayRef<int64_t> shape,
                         llvm::ArrayRef<int64_t> strides, int64_t offset = 0);

/// [B, M, K] times [B, K, N]; floats accumulate in f64, integers wrap.
/// `result` is the element kind of the product; operands in exact mode give Exact.
HostTensor contract(const HostTensor &lhs, const HostTensor &rhs, ElementKind result);

/// Reduces tensors of one shape, element by element; floats accumulate in f64.
HostTensor combine(dist::ReductionKind kind, llvm::ArrayRef<HostTensor> tensors);

/// The element with which a reduction of `input` to the result of `op` begins, as a scalar. Fails,
/// with an error on `op`, if its elements cannot be reduced.
llvm::FailureOr<HostTensor> getNeutral(mlir::Operation *op, dist::ReductionKind kind,
                                       const HostTensor &input);

/// loom.gather. An index outside the input is an error on `op`, or gives poison if `poisonOutside`,
/// as padded rows of indices need it.
llvm::FailureOr<HostTensor> evaluateGather(GatherOp op, const HostTensor &input,
                                           const HostTensor &indices, bool poisonOutside);

/// loom.gather_elements, with the same `poisonOutside`.
llvm::FailureOr<HostTensor> evaluateGatherElements(GatherElementsOp op, const HostTensor &input,
                                                   const HostTensor &indices, bool poisonOutside);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_LOOMEVALUATE_H
