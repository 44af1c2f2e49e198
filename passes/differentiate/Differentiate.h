//===- Differentiate.h - derivatives of programs ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE_DIFFERENTIATE_H
#define GRIDLOOM_PASSES_DIFFERENTIATE_DIFFERENTIATE_H

#include "dialects/loom/Loom.h"

#include "mlir/Pass/Pass.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/differentiate/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/differentiate/Passes.h.inc"

} // namespace gridloom

#endif // GRIDLOOM_PASSES_DIFFERENTIATE_DIFFERENTIATE_H
