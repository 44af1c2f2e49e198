//===- Doctor.cpp - what would stop a model from compiling ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Options.h"
#include "compiler/onnx/ModelBrief.h"
#include "runtime/cli/Usage.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <iostream>

using namespace gridloom;

/// A size that most models take where the user has given none.
static std::string getTrialSize(llvm::StringRef dim) {
  return dim.contains_insensitive("batch") ? "1" : "16";
}

/// The sizes to try: those given, and one for each dimension that has none.
static std::vector<std::string> completeDims(const ModelBrief &brief,
                                             const std::vector<std::string> &given) {
  std::vector<std::string> dims = given;
  for (const std::string &name : brief.dims)
    if (llvm::none_of(given, [&](const std::string &dim) {
          return llvm::StringRef(dim).rsplit('=').first == name;
        }))
      dims.push_back(name + "=" + getTrialSize(name));
  return dims;
}

/// In quotes where a shell needs them.
static std::string quote(const std::string &text) {
  const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
  return !text.empty() && text.find_first_not_of(plain) == std::string::npos ? text
                                                                             : "'" + text + "'";
}

int gridloom::runDoctor(const CompileOptions &options) {
  CompileOptions trial = options;
  ModelBrief brief;
  std::string call = "gridloom compile " + quote(options.input);
  // What cannot be read the compilation refuses, in its own words.
  if (readBrief(options.input, brief).empty()) {
    trial.dims = completeDims(brief, options.dims);
    std::cout << rt::makePrintable(options.input) << ": " << brief.size << "\n";
    for (const std::string &input : brief.inputs)
      std::cout << "  input  " << rt::makePrintable(input) << "\n";
    for (size_t i = options.dims.size(); i < trial.dims.size(); ++i)
      std::cout << "  size   " << rt::makePrintable(trial.dims[i])
                << " is tried; the model leaves it open\n";
    std::cout.flush();
  }
  for (const std::string &dim : trial.dims)
    call += " --dim " + quote(dim);
  trial.stopAfter = "simplify";
  trial.dumpIr = "";
  trial.quiet = true;
  // The program itself is not to be printed.
  std::ostream silent(nullptr);
  std::streambuf *old = std::cout.rdbuf(silent.rdbuf());
  int code = runCompile(trial);
  std::cout.rdbuf(old);
  if (code == 0)
    std::cout << "'" << rt::makePrintable(options.input)
              << "' can be compiled: " << rt::makePrintable(call) << "\n";
  return code;
}
