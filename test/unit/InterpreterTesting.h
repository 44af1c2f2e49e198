//===- InterpreterTesting.h - programs as text, run in a test ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_INTERPRETERTESTING_H
#define GRIDLOOM_TEST_UNIT_INTERPRETERTESTING_H

#include "compiler/interpreter/Interpreter.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include "gmock/gmock.h"

namespace gridloom::testing {

/// An MLIR context with all dialects that keeps the first error instead of printing it.
class Context {
public:
  Context() : context(makeRegistry()) {
    context.loadAllAvailableDialects();
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && error.empty())
        error = diagnostic.str();
    });
  }

  mlir::OwningOpRef<mlir::ModuleOp> parse(llvm::StringRef text) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << error << "\n" << text.str();
    return module;
  }
  mlir::MLIRContext *get() { return &context; }
  std::string takeError() { return std::exchange(error, ""); }

private:
  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registry
        .insert<mlir::func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
    return registry;
  }
  mlir::MLIRContext context;
  std::string error;
};

inline loom::HostTensor floats(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<double> values) {
  return loom::HostTensor::fromDoubles(loom::ElementKind::F32, shape, values);
}
inline loom::HostTensor ints(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> values) {
  return loom::HostTensor::fromInts(loom::ElementKind::I64, shape, values);
}

/// Runs a module's only specialisation.
inline llvm::FailureOr<NamedTensors> run(mlir::ModuleOp module, const NamedTensors &inputs,
                                         InterpreterOptions options = {}) {
  GeneratedWeights weights;
  Interpreter interpreter(module, weights, std::move(options));
  return interpreter.run(getSpecialisations(module).front(), inputs);
}

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_INTERPRETERTESTING_H
