//===- Bisect.h - the first node where a split program differs --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_BISECT_H
#define GRIDLOOM_COMPILER_INTERPRETER_BISECT_H

#include "compiler/interpreter/Compare.h"
#include "compiler/interpreter/Interpreter.h"

namespace gridloom {

/// One program with the specialisation to run.
struct ProgramRun {
  mlir::ModuleOp module;
  const Specialisation *specialisation;
};

/// Runs both programs and compares the results of the ONNX nodes' operations, by location: shards
/// are gathered by their `dist.shardings`. Returns a sentence that names the first node, in the
/// unsplit program's order, with a result that no value of the split program matches, or that says
/// no node differs. Skips values that the split program never has whole (partial sums, values
/// inside kernels). Errors of the split program's run are reported as diagnostics and end its
/// trace.
llvm::FailureOr<std::string> bisect(ProgramRun unsplit, ProgramRun split, WeightProvider &weights,
                                    const NamedTensors &inputs, InterpreterOptions options,
                                    Tolerance tolerance);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_BISECT_H
