//===- Gathered.h - weights gathered where they are used --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_GATHERED_H
#define GRIDLOOM_DIALECTS_DIST_GATHERED_H

#include "llvm/ADT/StringRef.h"

namespace gridloom::dist {

/// On an all_gather of a parameter that a device keeps a part of: the number of its unit in the
/// function, in the order of first uses. A unit travels in one message. What is gathered is dropped
/// after its last use.
inline constexpr llvm::StringLiteral kGathered = "dist.gathered";
/// On a function with such all_gathers: the bytes that gathered parameters may take at a time,
/// those in use and those on their way. None starts before there is room for it.
inline constexpr llvm::StringLiteral kGatherWindow = "dist.gather_window";

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_GATHERED_H
