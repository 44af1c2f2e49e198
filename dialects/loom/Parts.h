//===- Parts.h - a batch in parts -------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_PARTS_H
#define GRIDLOOM_DIALECTS_LOOM_PARTS_H

#include "llvm/ADT/StringRef.h"

namespace gridloom::loom {

/// On a training step that computes its batch in parts, one after another: their number. Work stays
/// in this order, so that what a part keeps for its backward work ends with it.
inline constexpr llvm::StringLiteral kParts = "loom.parts";

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_PARTS_H
