//===- PhasesTest.cpp - the phase table's guarantees are checked ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Phases.h"
#include "compiler/driver/Registration.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include "gmock/gmock.h"

using namespace gridloom;

namespace {

class PhasesTest : public testing::Test {
protected:
  PhasesTest() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }
  /// The phase's passes, in the syntax of --pass-pipeline.
  std::string list(const Phase &phase) {
    mlir::PassManager pm(&context);
    phase.addPasses(pm, phaseContext);
    std::string text;
    llvm::raw_string_ostream stream(text);
    pm.printAsTextualPipeline(stream);
    return text;
  }
  mlir::MLIRContext context;
  PhaseContext phaseContext;
};

TEST_F(PhasesTest, EachEndsWithItsVerifyPass) {
  for (const Phase &phase : getPhases()) {
    if (phase.name == "emit")
      continue;
    ASSERT_NE(phase.addPasses, nullptr) << phase.name.str();
    std::string text = list(phase);
    std::string last = text.substr(text.find_last_of("(,") + 1);
    EXPECT_THAT(last, testing::HasSubstr("verify")) << text;
  }
}

TEST_F(PhasesTest, ImportIsVerifiedAsImport) {
  const Phase &import = getPhases()[*findPhase("import")];
  auto run = [&](const std::string &location) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(
        R"(module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
          func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]})
              -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
              attributes {loom.entry = "main", loom.dims = {}} {
            %0 = loom.exp %x : tensor<4xf32> loc()" +
            location + R"()
            return %0 : tensor<4xf32>
          }
        })",
        &context);
    EXPECT_TRUE(module);
    mlir::PassManager pm(&context);
    import.addPasses(pm, phaseContext);
    return mlir::succeeded(pm.run(*module));
  };
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    message += diagnostic.str();
    return mlir::success();
  });
  EXPECT_TRUE(run("\"node\"")) << message;
  EXPECT_FALSE(run("unknown"));
  EXPECT_THAT(message, testing::HasSubstr("has no ONNX node in its location"));
}

} // namespace
