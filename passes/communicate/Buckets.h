//===- Buckets.h - several values in one message ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE_BUCKETS_H
#define GRIDLOOM_PASSES_COMMUNICATE_BUCKETS_H

#include "passes/communicate/Communicate.h"

namespace gridloom {

/// Whether `op` comes after `than`; null, which makes arguments, comes before all.
inline bool isLater(mlir::Operation *op, mlir::Operation *than) {
  return op && (!than || than->isBeforeInBlock(op));
}

/// Between what operations a message of several values may stand.
class BucketPlace {
public:
  /// Adds a value that `made` makes and `used` is the first to use. False, and it is not added,
  /// where one of the values would be used before another one is there.
  bool take(mlir::Operation *made, mlir::Operation *used) {
    mlir::Operation *newLast = isLater(made, last) ? made : last;
    mlir::Operation *newFirst = !first || used->isBeforeInBlock(first) ? used : first;
    if (newLast && !newLast->isBeforeInBlock(newFirst))
      return false;
    last = newLast;
    first = newFirst;
    return true;
  }
  /// The last of those that make the values; null where all are arguments.
  mlir::Operation *getLast() const { return last; }

private:
  mlir::Operation *last = nullptr;
  mlir::Operation *first = nullptr; ///< of the values' users
};

/// Says of a message with a cause that it is a bucket of so many.
inline void nameBucket(mlir::Operation *message, size_t members) {
  if (llvm::StringRef cause = dist::getCause(message); !cause.empty())
    message->setAttr(dist::kBecause,
                     mlir::StringAttr::get(message->getContext(),
                                           "a bucket of " + llvm::Twine(members) + ": " + cause));
}

} // namespace gridloom

#endif // GRIDLOOM_PASSES_COMMUNICATE_BUCKETS_H
