//===- Messages.h - several values in one message ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_MESSAGES_H
#define GRIDLOOM_PASSES_SCHEDULE_MESSAGES_H

#include "dialects/dist/Dist.h"

namespace gridloom {

/// The buffer of an all_reduce of several values, which follow each other in it; the sums replace
/// the values.
struct Message {
  mlir::RankedTensorType type;        ///< [elements]
  llvm::SmallVector<int64_t> offsets; ///< of each value, in elements, aligned to cache lines
  /// Begin and size of the gaps between values, in elements: zeros that are sent along.
  llvm::SmallVector<std::pair<int64_t, int64_t>> gaps;
};

/// Whether the operation is an all_reduce of several values, sent as one message.
bool isMessage(mlir::Operation *op);

Message layOutMessage(dist::AllReduceOp op);

/// Whether a value can be computed straight into its message: only if nothing else reads it, under
/// any shape, because the sum replaces it.
bool isOfMessageAlone(mlir::Value root);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_MESSAGES_H
