//===- OnnxImportFuzz.cpp - arbitrary bytes as an ONNX model --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The importer returns a program that verifies, or an error. The simplify phase must not crash on
// an imported program.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace gridloom;

static void importAndSimplify(const std::string &path) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  bool hasError = false;
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
    hasError |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
  });
  OwningOpRef<ModuleOp> module = importOnnx(context, path);
  if (!module) {
    if (!hasError)
      abort();
    return;
  }
  PassManager passes(&context);
  addImportVerify(passes);
  addSimplifyPasses(passes);
  // The simplify phase may still report an error, e.g. for an index outside of a constant.
  if (failed(verify(*module)) || (failed(passes.run(*module)) && !hasError))
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int file = memfd_create("model", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size))
    abort();
  importAndSimplify("/proc/self/fd/" + std::to_string(file));
  close(file);
  return 0;
}
