//===- ExpandContractions.h - contractions without a library ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_EXPANDCONTRACTIONS_H
#define GRIDLOOM_PASSES_FUSE_EXPANDCONTRACTIONS_H

#include "dialects/loom/Contraction.h"

namespace gridloom {

/// Whether libraries multiply these element types: f32, or f16 or bf16 with a result of the same
/// type or f32.
bool isInLibrary(loom::DotGeneralOp dot);

using loom::transposeTo;

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_EXPANDCONTRACTIONS_H
