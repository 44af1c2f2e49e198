//===- Derivatives.h - attributes of derivatives ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_DERIVATIVES_H
#define GRIDLOOM_DIALECTS_LOOM_DERIVATIVES_H

#include "llvm/ADT/StringRef.h"

namespace gridloom::loom {

/// On a maximum or minimum: the operand that gets the derivative where both are equal; without it
/// each gets half. On a module: the importer has set it.
inline constexpr llvm::StringLiteral kTies = "loom.ties";
inline constexpr llvm::StringLiteral kTiesToLhs = "lhs";
inline constexpr llvm::StringLiteral kTiesToRhs = "rhs";

/// On an operation with one result, which derivatives treat as a constant. An example is the
/// maximum of a row, which softmax does not depend on.
inline constexpr llvm::StringLiteral kFlat = "loom.flat";

/// On a result that is a gradient: it may be sharded as its value is.
inline constexpr llvm::StringLiteral kGradient = "loom.gradient";

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_DERIVATIVES_H
