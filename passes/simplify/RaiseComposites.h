//===- RaiseComposites.h - patterns of loom-raise-composites -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY_RAISECOMPOSITES_H
#define GRIDLOOM_PASSES_SIMPLIFY_RAISECOMPOSITES_H

#include "dialects/loom/Loom.h"

#include "mlir/IR/PatternMatch.h"

namespace gridloom {

/// Fuses the location `root` with those of all `parts` in program order.
mlir::Location fuseLocations(mlir::OpBuilder &builder, mlir::Location root,
                             llvm::ArrayRef<mlir::Operation *> parts);

void populateRaiseGeluPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseNormalizationPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseUpdatePatterns(mlir::RewritePatternSet &patterns);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SIMPLIFY_RAISECOMPOSITES_H
