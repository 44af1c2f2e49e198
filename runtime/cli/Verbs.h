//===- Verbs.h - the command line's verbs -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_VERBS_H
#define GRIDLOOM_RUNTIME_CLI_VERBS_H

#include <functional>
#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace gridloom::rt {

/// A verb: its options, and `run`, which is called after parsing, returns the exit code and throws
/// Error.
struct Verb {
  CLI::App *app;
  std::function<int()> run;
};

Verb addRun(CLI::App &app);
Verb addGenerate(CLI::App &app);
Verb addBench(CLI::App &app);
Verb addCheckpoint(CLI::App &app);
Verb addInspect(CLI::App &app);
Verb addDiff(CLI::App &app);
Verb addExplain(CLI::App &app);
Verb addDevices(CLI::App &app);
Verb addTrain(CLI::App &app);
Verb addSign(CLI::App &app);

/// Whether the compiler implements `verb`: compile, check, doctor, plan, simulate.
bool isCompilerVerb(const std::string &verb);
/// Whether the arguments are an `inspect` of an ONNX file, which needs the compiler.
bool inspectsModel(int argc, char **argv);
/// Whether the arguments are an `explain` that plans the model again, which needs the compiler.
bool plansAgain(int argc, char **argv);
/// Executes gridloom-compile, which is beside this program or on PATH. Throws Unavailable if it is
/// not installed.
[[noreturn]] void execCompiler(char **argv);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_VERBS_H
