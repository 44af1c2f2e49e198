//===- Simplify.h - the import and simplify phases --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY_SIMPLIFY_H
#define GRIDLOOM_PASSES_SIMPLIFY_SIMPLIFY_H

#include "dialects/loom/Loom.h"
#include "passes/train/TrainOptions.h"

#include "mlir/Pass/Pass.h"

namespace gridloom {

#define GEN_PASS_DECL
#include "passes/simplify/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/simplify/Passes.h.inc"

/// Adds the check of the importer's output.
void addImportVerify(mlir::OpPassManager &pm);
struct SimplifyOptions {
  std::string precision = "f32";          ///< f32, tf32, bf16 or f16
  std::string gradientsOf;                ///< the output that is differentiated; empty: none
  std::vector<std::string> withRespectTo; ///< weights and inputs; empty: all float weights
  TrainOptions train;                     ///< a training step beside the model
};

/// Adds the first part of the simplify phase: folds, canonicalises, recognises composites.
/// Differentiation follows.
void addRaisePasses(mlir::OpPassManager &pm);
/// Adds the whole phase: folds, canonicalises, recognises composites, differentiates, sets the
/// precision, moves weight-only work to the prologue, verifies.
void addSimplifyPasses(mlir::OpPassManager &pm, const SimplifyOptions &options = {});

/// Checks I-G1 to I-G4 of loom-verify-imported. Fails with a diagnostic.
llvm::LogicalResult verifyImported(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SIMPLIFY_SIMPLIFY_H
