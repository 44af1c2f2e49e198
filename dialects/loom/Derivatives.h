//===- Derivatives.h - attributes of derivatives ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_DERIVATIVES_H
#define GRIDLOOM_DIALECTS_LOOM_DERIVATIVES_H

#include "llvm/ADT/StringRef.h"

namespace gridloom::loom {

/// On a maximum or minimum: the operand that counts where both are equal, which the derivative
/// depends on. Without it each counts half. On a module: the importer has said so.
inline constexpr llvm::StringLiteral kTies = "loom.ties";
inline constexpr llvm::StringLiteral kTiesToLhs = "lhs";
inline constexpr llvm::StringLiteral kTiesToRhs = "rhs";

/// On an operation with one result, which derivatives take as a constant: the largest of a row, of
/// which softmax does not depend, needs no pullback.
inline constexpr llvm::StringLiteral kFlat = "loom.flat";

/// On a result that is a gradient: it may lie as what it is the gradient of does.
inline constexpr llvm::StringLiteral kGradient = "loom.gradient";

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_DERIVATIVES_H
