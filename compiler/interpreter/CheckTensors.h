//===- CheckTensors.h - values and states that a check passes on -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_CHECKTENSORS_H
#define GRIDLOOM_COMPILER_INTERPRETER_CHECKTENSORS_H

#include "compiler/interpreter/Interpreter.h"
#include "compiler/interpreter/PlanRun.h"

namespace gridloom {

/// A tensor as plain data.
PlanTensor toPlanTensor(const loom::HostTensor &tensor);
/// A plan's outputs as tensors. Fails with a diagnostic that names an output of an unknown type.
llvm::FailureOr<NamedTensors> toTensors(const std::map<std::string, PlanTensor> &outputs,
                                        mlir::MLIRContext *context);
/// A run of the specialisation on these inputs, as plain data.
PlanCall makeCall(const Specialisation &specialisation, const NamedTensors &inputs);

/// Whether any specialisation has a state.
bool haveStates(llvm::ArrayRef<Specialisation> specialisations);
/// Converts states to the types that the model declares, in which they are compared; a program may
/// keep them in 16 bits.
void widenStates(const Specialisation &specialisation, NamedTensors &outputs);
/// Removes states from `outputs`: a plan's run does not return them.
void dropStates(const Specialisation &specialisation, NamedTensors &outputs);
/// Adds the states that are not in `feeds`, zeros as in a new session: other runners than the plan
/// take them as inputs.
void addStates(const Specialisation &specialisation, std::map<std::string, PlanTensor> &feeds);
/// Gives a model the states of the previous call, by the names it has for them.
void passStates(const Specialisation &specialisation, const PlanRunResult &result,
                std::map<std::string, PlanTensor> &states);
/// Makes a plan's run return the states that the specialisation updates.
void readStates(const Specialisation &specialisation, PlanCall &call);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_CHECKTENSORS_H
