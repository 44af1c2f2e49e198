//===- Train.h - training steps ---------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_TRAIN_H
#define GRIDLOOM_PASSES_TRAIN_TRAIN_H

#include "dialects/loom/Loom.h"

#include "mlir/Pass/Pass.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/train/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/train/Passes.h.inc"

} // namespace gridloom

#endif // GRIDLOOM_PASSES_TRAIN_TRAIN_H
