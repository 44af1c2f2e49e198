//===- NamePattern.h - names with stars -------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_NAMEPATTERN_H
#define GRIDLOOM_DIALECTS_LOOM_NAMEPATTERN_H

#include "llvm/ADT/StringRef.h"

namespace gridloom {

/// Whether `name` matches `pattern`, in which a star stands for any text. A name with a star also
/// matches itself as a pattern.
bool matchesPattern(llvm::StringRef pattern, llvm::StringRef name);

} // namespace gridloom

#endif // GRIDLOOM_DIALECTS_LOOM_NAMEPATTERN_H
