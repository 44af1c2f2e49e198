//===- CheckOptions.h - options of gridloom check ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR: filled by the command line, read by the check.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_CHECKOPTIONS_H
#define GRIDLOOM_COMPILER_INTERPRETER_CHECKOPTIONS_H

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace gridloom {

struct CheckOptions {
  /// A plan's folder; or dumps of one program, which are then compared with the first.
  std::vector<std::string> paths;
  std::string oracle = "interpreter"; ///< interpreter, 1rank or ort
  std::vector<std::string> inputs;    ///< NAME=VALUE, see runtime/arrays/Generator.h
  /// Files of public keys, one of which must have signed the plan that is run; empty: any is run.
  std::vector<std::string> requireSignature;
  std::string model;      ///< the model with the weights; empty: the plan's
  bool exact = false;     ///< also bit by bit in exact mode
  bool allPhases = false; ///< interpret every phase's dump, not only the last
  bool noRun = false;     ///< interpret only, do not run the compiled plan
  bool bisect = false;    ///< name the first ONNX node that differs
  double rtol = 1e-4, atol = 1e-5;
  uint64_t seed = 0;
  /// Compiles a dump of the simplify phase for one device; returns whether it did. For 1rank.
  std::function<bool(const std::string &dump, const std::string &plan)> compileUnsplit;
};

/// Declares the options of the `check` verb.
void addCheckOptions(CLI::App &verb, CheckOptions &options);

/// Shows that the split program and the compiled plan compute what the unsplit program does. Prints
/// a line per comparison and one line that starts with PASS or FAIL. Returns 0 when all agree, 1
/// when something differs or could not be checked.
int runCheck(const CheckOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_CHECKOPTIONS_H
