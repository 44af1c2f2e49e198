//===- Main.cpp - the gridloom command ------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/Job.h"
#include "runtime/core/Error.h"
#include "support/OutputFormat.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

using namespace gridloom;
using namespace gridloom::rt;

static const char *const overview = R"(
Start here:
  gridloom compile model.onnx -o model.plan --mesh data=2,model=2 --dim batch=8
  gridloom run model.plan --input x=x.npy --output results
  gridloom explain model.plan

Verbs that need the compiler (gridloom-compile, found beside this program):
  compile                     Compile an ONNX model into a plan
  plan                        Decide how to split a model, and simulate it
  simulate                    Simulate a compiled plan
  check                       Show that the split program computes what the unsplit one does
  doctor                      Say what would stop a model from compiling
  explain --why-not PIN       Plan again with something else given, and say what that costs
  explain --alternatives      The same for every other split of a collective's value
  inspect model.onnx          Show a model's inputs, outputs, operators and weights

Every verb has --help. Exit codes: 0 done, 1 failed or refused, 2 the command line cannot be parsed.
Values that are only checked later, such as those of --mesh and --dim, are refused with 1.)";

/// Prints any error as one line.
static int report(const std::string &text, int code) {
  std::cerr << "error: " << makePrintable(text) << "\n";
  return code;
}

static int runVerb(int argc, char **argv) {
  CLI::App app("Runs models that are split over many devices.", "gridloom");
  app.require_subcommand(1);
  app.footer(overview);
  app.set_version_flag("--version", "gridloom " GRIDLOOM_VERSION);
  std::vector<Verb> verbs{addRun(app),        addGenerate(app), addBench(app),   addInspect(app),
                          addCheckpoint(app), addDiff(app),     addExplain(app), addDevices(app),
                          addTrain(app),      addSign(app)};
  auto isVerb = [&](const Verb &verb) { return verb.app->check_name(argv[1]); };
  if (argc < 2 || (argv[1][0] != '-' && std::none_of(verbs.begin(), verbs.end(), isVerb))) {
    if (argc < 2)
      return report("no verb; see gridloom --help", 2);
    std::vector<std::string> names{"compile", "plan", "simulate", "check", "doctor"};
    for (const Verb &verb : verbs)
      names.push_back(verb.app->get_name());
    std::string nearest = suggest(argv[1], names);
    return report("there is no verb '" + std::string(argv[1]) + "'" +
                      (nearest.empty() ? ";" : nearest) + " see gridloom --help",
                  2);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &done) { // help, or the version
    int code = app.exit(done);
    flushOutput();
    return code;
  } catch (const CLI::ParseError &error) {
    return report(describeUsageError(app, error), 2);
  }
  for (const Verb &verb : verbs)
    if (verb.app->parsed()) {
      int code = verb.run();
      flushOutput();
      return code;
    }
  return 2;
}

int main(int argc, char **argv) {
  prepareFiles();
  try {
    if (argc > 1 &&
        (isCompilerVerb(argv[1]) || inspectsModel(argc, argv) || plansAgain(argc, argv)))
      execCompiler(argv);
    return runVerb(argc, argv);
  } catch (const JoinFailure &error) {
    int code = report(error.what(), 1);
    error.notifyOthers();
    return code;
  } catch (const std::exception &error) {
    return report(error.what(), 1);
  }
}
