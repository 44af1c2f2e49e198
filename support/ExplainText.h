//===- ExplainText.h - the help of explain ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// `explain` reads a plan's report without the compiler, and calls the compiler where it must plan
// again. Both have the same help.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_EXPLAINTEXT_H
#define GRIDLOOM_SUPPORT_EXPLAINTEXT_H

namespace gridloom {

inline constexpr const char *kValueHelp = "an ONNX node, weight or input";
inline constexpr const char *kStageHelp = "the number of a pipeline stage";
inline constexpr const char *kWhyNotHelp =
    "plan the model again with one value split as given (as --shard has it), or on another mesh, "
    "and show what changes (needs the compiler)";
inline constexpr const char *kAlternativesHelp =
    "with --collective: plan again with its value split in every other way over the same axes, and "
    "show what each costs (needs the compiler; plans once for each row)";

inline constexpr const char *kExplainExamples = R"(
Examples:
  gridloom explain model.plan
      what was chosen and why, where a step's time goes, the heaviest collectives, what else
      was tried and what it would cost
  gridloom explain model.plan --value encoder.q
      how a value is split, what decided it, and what its communication takes
  gridloom explain model.plan --collective 3
      where a collective comes from, why, what it takes, and what hides it
  gridloom explain model.plan --collective 3 --alternatives
      what it would cost to split its value in each other way
  gridloom explain model.plan --stage 1
      a pipeline stage's load and memory, and what it waits for
  gridloom explain model.plan --why-not 'encoder.q=[{model},{}]'
  gridloom explain model.plan --why-not mesh=data=4
      plan again with that, and say what it would cost and which command compiles it

Times are the simulator's. exposed: nothing computes meanwhile.)";

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_EXPLAINTEXT_H
