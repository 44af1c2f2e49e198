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

/// Runs both programs and compares what the ONNX nodes' operations give, by location: shards are
/// gathered by their `dist.shardings`. Returns a sentence that names the first node, in the unsplit
/// program's order, of whose results the other program has none that agrees; or that says no node
/// differs. Values the split program does not show whole (partial sums, values inside kernels) are
/// passed over. Errors of the split program's run are reported as diagnostics and end its trace.
llvm::FailureOr<std::string> bisect(ProgramRun unsplit, ProgramRun split, WeightProvider &weights,
                                    const NamedTensors &inputs, InterpreterOptions options,
                                    Tolerance tolerance);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_BISECT_H
