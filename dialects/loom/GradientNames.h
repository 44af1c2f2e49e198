//===- GradientNames.h - which parameters gradients are of ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_GRADIENTNAMES_H
#define GRIDLOOM_DIALECTS_LOOM_GRADIENTNAMES_H

#include "llvm/ADT/StringRef.h"

namespace gridloom::loom {

/// On the operation of a training step that makes a parameter's gradient, of the mean over the
/// batch and before clipping: the parameter's name. For those who judge steps; where a phase
/// replaces the operation, nothing takes its place.
inline constexpr llvm::StringLiteral kGradientOf = "loom.gradient_of";

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_GRADIENTNAMES_H
