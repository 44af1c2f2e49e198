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
/// What a plan gave. Fails with a diagnostic that names an output of an unknown type.
llvm::FailureOr<NamedTensors> toTensors(const std::map<std::string, PlanTensor> &outputs,
                                        mlir::MLIRContext *context);
/// A run of the specialisation on these inputs, as plain data.
PlanCall makeCall(const Specialisation &specialisation, const NamedTensors &inputs);

/// Whether several specialisations have a state of the same name.
bool shareStates(llvm::ArrayRef<Specialisation> specialisations);
/// States are compared as the model declares them; a program may keep them in 16 bits.
void widenStates(const Specialisation &specialisation, NamedTensors &outputs);
/// A plan keeps its states to itself: they are not among the outputs of a run.
void dropStates(const Specialisation &specialisation, NamedTensors &outputs);
/// Adds the states that are not in `feeds`, zeros as in a new session: to others than the plan they
/// are inputs.
void addStates(const Specialisation &specialisation, std::map<std::string, PlanTensor> &feeds);
/// Gives a model the states of the previous call, by the names it has for them.
void passStates(const Specialisation &specialisation, const PlanRunResult &result,
                std::map<std::string, PlanTensor> &states);
/// Has a run of a plan read the states that the specialisation updates.
void readStates(const Specialisation &specialisation, PlanCall &call);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_CHECKTENSORS_H
