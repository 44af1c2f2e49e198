//===- FirstError.h - the first error of a trial ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_FIRSTERROR_H
#define GRIDLOOM_DIALECTS_LOOM_FIRSTERROR_H

#include "dialects/loom/Loom.h"

#include "mlir/IR/Diagnostics.h"

namespace gridloom::loom {

/// While it lives, diagnostics are not shown; the first error is written to `error` in the form of
/// describeWithNode, unless `error` already has text.
class FirstErrorHandler : public mlir::ScopedDiagnosticHandler {
public:
  FirstErrorHandler(mlir::MLIRContext *context, std::string &error, std::string whole)
      : ScopedDiagnosticHandler(context, [&error, whole = std::move(whole)](mlir::Diagnostic &d) {
          if (d.getSeverity() == mlir::DiagnosticSeverity::Error && error.empty())
            error = describeWithNode(d, whole);
          return mlir::success();
        }) {}
};

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_FIRSTERROR_H
