//===- CheckInputs.h - values for a program's inputs ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_CHECKINPUTS_H
#define GRIDLOOM_COMPILER_INTERPRETER_CHECKINPUTS_H

#include "compiler/interpreter/Interpreter.h"

namespace gridloom {

/// Inputs of an unsplit function. `given` are NAME=VALUE as on the command line; other inputs are
/// random: floats in [-1, 1), indices of a gather within its bounds, other integers 0 or 1; the
/// learning rate is the plan's. Equal seeds give equal values. Fails with a diagnostic that names
/// the input.
llvm::FailureOr<NamedTensors> makeInputs(mlir::func::FuncOp function,
                                         llvm::ArrayRef<std::string> given, uint64_t seed);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_CHECKINPUTS_H
