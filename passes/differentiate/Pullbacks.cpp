//===- Pullbacks.cpp - the table of pullbacks -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Pullbacks.h"

void gridloom::registerPullbacks(mlir::DialectRegistry &registry) {
  registry.addExtension(+[](mlir::MLIRContext *context, loom::LoomDialect *) {
    attachElementwisePullbacks(*context);
    attachMovePullbacks(*context);
    attachIndexingPullbacks(*context);
    attachContractionPullbacks(*context);
    attachWindowPullbacks(*context);
  });
}
