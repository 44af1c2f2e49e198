//===- CheckCommand.cpp - the options of `gridloom check` -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/CheckOptions.h"

#include "runtime/arrays/Generator.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <limits>

void gridloom::addCheckOptions(CLI::App &verb, CheckOptions &options) {
  verb.footer(R"(
Examples:
  gridloom check model.plan
      interpret the unsplit and the split program, run the plan, compare
  gridloom check model.plan --exact --bisect
      also bit by bit, in exact arithmetic; name the first ONNX node that differs
  gridloom check model.plan --oracle ort
      compare the plan's outputs with ONNX Runtime's
  gridloom check model.plan --input 'ids=randint(0,50257)' --input mask=1 --input x=x.npy
      say what the inputs are; default: random
  gridloom check dumps/02-simplify.mlir dumps/04-partition.mlir --exact
      compare phases of a compilation)");
  verb.add_option("paths", options.paths,
                  "a plan's folder, or dumps of one program to compare with the first of them")
      ->required()
      ->type_name("PLAN|DUMP...");
  verb.add_option(
          "--oracle", options.oracle,
          "what is right: interpreter, 1rank (the program compiled for one device), or ort (ONNX "
          "Runtime, by the Python of GRIDLOOM_PYTHON, of the build, or python3)")
      ->check(CLI::IsMember({"interpreter", "1rank", "ort"}))
      ->capture_default_str();
  verb.add_option("--input", options.inputs,
                  std::string("value of an input: ") + rt::kInputGrammar + "; default: random")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  verb.add_option("--model", options.model, "model file with the weights; default: the plan's")
      ->check(notEmpty());
  verb.add_flag(
      "--exact", options.exact,
      "also compare the programs bit by bit, in arithmetic that no order of sums changes");
  verb.add_flag("--all-phases", options.allPhases,
                "interpret every phase's program, not only the last");
  auto *noRun =
      verb.add_flag("--no-run", options.noRun, "only interpret; do not run the compiled plan");
  verb.add_option("--require-signature", options.requireSignature,
                  "a public key: do not run a plan that 'gridloom sign' has not signed with its "
                  "private key, or that was changed since. May be repeated: one of the keys is "
                  "enough")
      ->type_name("PUBLIC.pem")
      ->check(notEmpty())
      ->excludes(noRun)
      ->allow_extra_args(false);
  verb.add_flag("--bisect", options.bisect,
                "where the split program differs, name the first ONNX node that does; say so if "
                "only the compiled plan differs");
  verb.add_option("--rtol", options.rtol, "relative tolerance")
      ->check(numberWithin(0, 1e6))
      ->capture_default_str();
  verb.add_option("--atol", options.atol, "absolute tolerance")
      ->check(numberWithin(0, 1e6))
      ->capture_default_str();
  // Without a check, CLI11 reads -1 as 2^64 - 1.
  verb.add_option("--seed", options.seed, "seed of random inputs")
      ->check(CLI::Range(int64_t(0), std::numeric_limits<int64_t>::max()).description(""))
      ->capture_default_str();
}
