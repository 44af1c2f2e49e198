//===- NamePattern.h - names with stars -------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_NAMEPATTERN_H
#define GRIDLOOM_DIALECTS_LOOM_NAMEPATTERN_H

#include "llvm/ADT/StringRef.h"

namespace gridloom {

/// Whether `name` is `pattern`, in which a star stands for any text. A name that has a star itself
/// is a pattern that matches it.
bool matchesPattern(llvm::StringRef pattern, llvm::StringRef name);

} // namespace gridloom

#endif // GRIDLOOM_DIALECTS_LOOM_NAMEPATTERN_H
