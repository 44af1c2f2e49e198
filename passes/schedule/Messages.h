//===- Messages.h - several values in one message ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_MESSAGES_H
#define GRIDLOOM_PASSES_SCHEDULE_MESSAGES_H

#include "dialects/dist/Dist.h"

namespace gridloom {

/// The buffer of an all_reduce of several values, which lie in it one after another: their sums
/// come where they were.
struct Message {
  mlir::RankedTensorType type;        ///< [elements]
  llvm::SmallVector<int64_t> offsets; ///< of each value, in elements; each begins a cache line
  /// Begin and size of what lies between values, in elements, which is sent along: zeros.
  llvm::SmallVector<std::pair<int64_t, int64_t>> gaps;
};

/// Whether the operation is an all_reduce of several values, which are one message.
bool isMessage(mlir::Operation *op);

Message layOutMessage(dist::AllReduceOp op);

/// Whether a value can be computed right into the message that takes it: nothing else reads it,
/// which would find the sum there, not even under another shape.
bool isOfMessageAlone(mlir::Value root);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_MESSAGES_H
