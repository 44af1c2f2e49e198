//===- Doctor.cpp - what would stop a model from compiling ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Options.h"
#include "compiler/onnx/ModelBrief.h"
#include "runtime/cli/OutputFormat.h"
#include "runtime/cli/Usage.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <functional>
#include <iostream>
#include <optional>

using namespace gridloom;

/// A size that most models take where the user has given none.
static int64_t getTrialSize(llvm::StringRef dim) {
  return dim.contains_insensitive("batch") ? 1 : 16;
}

/// The size of a dimension `past + sequence`, as exporters name one of several parts, or `past + 1`
/// where the sizes of its parts are known.
static std::optional<int64_t> addParts(const std::string &dim,
                                       const llvm::StringMap<int64_t> &sizes) {
  int64_t sum = 0;
  for (llvm::StringRef part : llvm::split(dim, " + ")) {
    int64_t size = 0;
    if (auto known = sizes.find(part); known != sizes.end())
      size = known->second;
    else if (part.getAsInteger(10, size))
      return std::nullopt;
    sum += size;
  }
  return sum;
}

/// The sizes to try: those given, and one for each dimension that has none.
static std::vector<std::string> completeDims(const ModelBrief &brief,
                                             const std::vector<std::string> &given) {
  std::vector<std::string> dims = given, open;
  llvm::StringMap<int64_t> sizes;
  auto isGiven = [&](const std::string &name) {
    return llvm::any_of(given, [&](llvm::StringRef dim) { return dim.rsplit('=').first == name; });
  };
  for (llvm::StringRef dim : given)
    if (int64_t size = 0; !dim.rsplit('=').second.getAsInteger(10, size))
      sizes[dim.rsplit('=').first] = size;
  llvm::copy_if(brief.dims, std::back_inserter(open), std::not_fn(isGiven));
  for (const std::string &name : open)
    if (!llvm::StringRef(name).contains(" + "))
      sizes[name] = getTrialSize(name);
  for (const std::string &name : open)
    dims.push_back(name + "=" + std::to_string(addParts(name, sizes).value_or(getTrialSize(name))));
  return dims;
}

int gridloom::runDoctor(const CompileOptions &options) {
  CompileOptions trial = options;
  ModelBrief brief;
  std::string call = "gridloom compile " + rt::quoteForShell(options.input);
  // What cannot be read the compilation refuses, in its own words.
  if (readBrief(options.input, brief).empty()) {
    trial.dims = completeDims(brief, options.dims);
    std::cout << rt::makePrintable(options.input) << ": " << brief.size << "\n";
    for (const std::string &input : brief.inputs)
      std::cout << "  input  " << rt::makePrintable(input) << "\n";
    for (size_t i = options.dims.size(); i < trial.dims.size(); ++i)
      std::cout << "  size   " << rt::makePrintable(trial.dims[i])
                << " is tried; the model leaves it open, --dim chooses another\n";
    if (std::string error = rt::tryFlushOutput(); !error.empty()) {
      std::cerr << "error: " << error << "\n";
      return 1;
    }
  }
  for (const std::string &dim : trial.dims)
    call += " --dim " + rt::quoteForShell(dim);
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
