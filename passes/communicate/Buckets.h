//===- Buckets.h - several values in one message ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE_BUCKETS_H
#define GRIDLOOM_PASSES_COMMUNICATE_BUCKETS_H

#include "passes/communicate/Communicate.h"

namespace gridloom {

/// Whether `op` comes after `than`; null, the maker of arguments, comes before all.
inline bool isLater(mlir::Operation *op, mlir::Operation *than) {
  return op && (!than || than->isBeforeInBlock(op));
}

/// The range of a block in which a message of several values can be placed.
class BucketPlace {
public:
  /// Adds a value that `made` makes and `used` uses first. Returns false, and does not add it, if
  /// one of the values would be used before another one is there.
  bool take(mlir::Operation *made, mlir::Operation *used) {
    mlir::Operation *newLast = isLater(made, last) ? made : last;
    mlir::Operation *newFirst = !first || used->isBeforeInBlock(first) ? used : first;
    if (newLast && !newLast->isBeforeInBlock(newFirst))
      return false;
    last = newLast;
    first = newFirst;
    return true;
  }
  /// The last maker of the values; null if all are arguments.
  mlir::Operation *getLast() const { return last; }

private:
  mlir::Operation *last = nullptr;
  mlir::Operation *first = nullptr; ///< user of the values
};

/// Adds to the cause of a message that it is a bucket of `members` values.
inline void nameBucket(mlir::Operation *message, size_t members) {
  if (llvm::StringRef cause = dist::getCause(message); !cause.empty())
    message->setAttr(dist::kBecause,
                     mlir::StringAttr::get(message->getContext(),
                                           "a bucket of " + llvm::Twine(members) + ": " + cause));
}

} // namespace gridloom

#endif // GRIDLOOM_PASSES_COMMUNICATE_BUCKETS_H
