//===- Compilation.h - one run of the phases --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_COMPILATION_H
#define GRIDLOOM_COMPILER_DRIVER_COMPILATION_H

#include "compiler/driver/Options.h"
#include "compiler/driver/Phases.h"
#include "compiler/emit/PlanWriter.h"
#include "compiler/onnx/AnnotationWriter.h"
#include "compiler/planner/Strategy.h"

#include "mlir/IR/MLIRContext.h"

#include <map>

namespace gridloom {

/// Runs the phases of one compilation and keeps what the summary and the report tell.
class Compilation {
public:
  explicit Compilation(CompileOptions options);
  /// Returns the exit code.
  int run();

private:
  mlir::LogicalResult checkOptions();
  std::optional<unsigned> getCudaArchitecture() const;
  mlir::LogicalResult checkTarget();
  mlir::LogicalResult checkPrecision();
  /// The precision the program was compiled with, which a dump knows better than the options.
  std::string getPrecision() const;
  mlir::LogicalResult load();
  mlir::LogicalResult choose();
  mlir::LogicalResult checkChoice();
  mlir::LogicalResult runPhase(size_t index);
  mlir::LogicalResult emit();
  mlir::LogicalResult finishEarly();
  /// The model file the program comes from.
  std::string getModelPath() const;
  mlir::LogicalResult collectAnnotations();
  mlir::LogicalResult emitAnnotated();
  void handle(mlir::Diagnostic &diagnostic);
  void fail(const llvm::Twine &message);
  std::string describeResumption(size_t phase) const;
  std::string print(size_t phase);
  /// Keeps the shardings for the report; later phases drop them.
  void recordValues();
  std::string makeReport() const;
  void printSummary() const;

  CompileOptions options;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  size_t first = 0, last = 0; ///< phases to run
  Choice choice;
  ModelShardings shardings; ///< for --emit-onnx
  std::vector<Estimate> estimates;
  EmitSummary emitted;
  PlanFiles files;
  std::map<std::string, std::string> dumps; ///< file name to text
  std::string values;                       ///< JSON: shardings and origins
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, double>> times; ///< milliseconds per phase
  bool hadError = false;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_COMPILATION_H
