//===- Doctor.cpp - report what would stop a compilation ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"
#include "compiler/driver/Compilation.h"
#include "compiler/driver/DoctorTraining.h"
#include "compiler/driver/TrialSizes.h"
#include "compiler/onnx/ModelBrief.h"
#include "support/OutputFormat.h"
#include "support/TemporaryFolder.h"
#include "support/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <iostream>
#include <sstream>

using namespace gridloom;

/// Compiles up to simplify, after which sizes do not matter. Returns the errors, one a line.
static std::string tryCompile(CompileOptions options, const Sizes &sizes) {
  options.dims.clear();
  for (const auto &[name, size] : sizes)
    options.dims.push_back(name + "=" + std::to_string(size));
  options.mesh = options.devices = options.cluster = "";
  options.stopAfter = "simplify";
  options.quiet = true;
  std::ostringstream errors;
  std::ostream nowhere(nullptr);
  if (runCompile(options, nowhere, errors) == 0)
    return "";
  return errors.str().empty() ? "error: the compilation failed" : errors.str();
}

/// Compiles to the end, into a temporary folder, so that the printed command is known to work.
/// Returns the exit code.
static int compileWhole(CompileOptions options) {
  TemporaryFolder folder("gridloom-doctor");
  if (!folder.getError().empty()) {
    std::cerr << "error: " << folder.getError() << "\n";
    return 1;
  }
  options.output = folder.file("trial.plan");
  options.quiet = true;
  return runCompile(options);
}

/// The number of devices in the options; 1 without a mesh.
static int64_t countDevices(const CompileOptions &options) {
  int64_t count = 1, size = 0;
  llvm::SmallVector<llvm::StringRef> axes;
  llvm::StringRef(options.mesh).split(axes, ',');
  for (llvm::StringRef axis : axes)
    if (!axis.rsplit('=').second.getAsInteger(10, size) && size > 0 && size <= 4096)
      count *= size;
  llvm::StringRef devices = options.devices;
  if (options.mesh.empty() && !devices.consumeInteger(10, size) && size > 0 && size <= 4096)
    count = size;
  std::string error;
  if (!options.cluster.empty() && options.mesh.empty())
    if (std::optional<cluster::Cluster> cluster = cluster::findCluster(options.cluster, error))
      count = cluster->getNumDevices();
  return std::min<int64_t>(count, 4096);
}

/// The sizes that --dim gives; the first of several, 0 for what cannot be read.
static Sizes getGivenSizes(const std::vector<std::string> &dims) {
  Sizes sizes;
  for (llvm::StringRef dim : dims) {
    auto [name, list] = dim.rsplit('=');
    int64_t size = 0;
    sizes[name.str()] = list.split(',').first.getAsInteger(10, size) ? 0 : size;
  }
  return sizes;
}

/// Returns "past_*" for the name "past_key_0" and the word "past", and sets `output` to the same
/// with the other word; empty if the name does not have the word.
static std::string findPattern(llvm::StringRef name, llvm::StringRef word, llvm::StringRef other,
                               std::string &output) {
  size_t at = name.find(word);
  if (at == llvm::StringRef::npos)
    return "";
  std::string before = name.take_front(at).str(), after;
  if (llvm::StringRef rest = name.drop_front(at + word.size()); !rest.empty())
    if (!llvm::isAlnum(rest.front()))
      after = rest.front();
  output = before + other.str() + after + "*";
  return before + word.str() + after + "*";
}

/// Suggests states, unless some are declared: inputs that are outputs of the previous call, as a
/// cache of keys and values.
static void suggestStates(const ModelBrief &brief, const CompileOptions &options) {
  if (!options.states.empty())
    return;
  std::map<std::string, const BriefValue *> outputs;
  for (const BriefValue &output : brief.outputs)
    outputs[output.name] = &output;
  std::map<std::string, std::pair<int, bool>> patterns; // how many inputs, and all keep their shape
  for (const BriefValue &input : brief.inputs)
    for (auto [word, other] : {std::pair("past_key_values", "present"), {"past", "present"}}) {
      std::string given, made;
      given = findPattern(input.name, word, other, made);
      if (given.empty())
        continue;
      llvm::StringRef prefix = llvm::StringRef(made).drop_back();
      auto output =
          outputs.find((prefix + llvm::StringRef(input.name).drop_front(given.size() - 1)).str());
      if (output == outputs.end())
        continue;
      auto [entry, isNew] = patterns.try_emplace(given + "=" + made, 0, true);
      ++entry->second.first;
      entry->second.second &= output->second->dims == input.dims;
      break;
    }
  for (const auto &[pattern, found] : patterns)
    std::cout << "  state  " << makePrintable(pattern) << ": " << found.first << " inputs are "
              << (found.second
                      ? "outputs of the previous call; to keep them in the session: --state " +
                            quoteForShell(pattern)
                      : "outputs of the previous call that grow; to keep them in the session "
                        "with --state, export the model with a cache of fixed size")
              << "\n";
}

/// The command line of the compilation, quoted for a shell.
static std::string describeCall(const CompileOptions &options) {
  std::string call = "gridloom compile " + quoteForShell(options.input);
  auto add = [&](const std::string &flag, const std::string &value) {
    if (!value.empty())
      call += " " + flag + " " + quoteForShell(value);
  };
  add("--mesh", options.mesh);
  add("--devices", options.devices);
  add("--cluster", options.cluster);
  for (const std::string &state : options.states)
    add("--state", state);
  if (options.target.name != TargetOptions().name)
    add("--target", options.target.name);
  if (options.precision != CompileOptions().precision)
    add("--precision", options.precision);
  for (const std::string &dim : options.dims)
    add("--dim", dim);
  call += getTieFlags(options.train) + getTrainFlags(options.train);
  if (options.train.accumulate)
    add("--accumulate", std::to_string(options.train.accumulate));
  if (options.zero)
    add("--zero", std::to_string(options.zero));
  if (options.bucketSize != CompileOptions().bucketSize)
    add("--bucket-size", std::to_string(options.bucketSize));
  return call;
}

/// Prints the model's inputs, and finds sizes for `options`. Returns the exit code.
static int chooseSizes(const ModelBrief &brief, CompileOptions &options, bool isTraining) {
  std::cout << makePrintable(options.input) << ": " << brief.size << "\n";
  for (const BriefValue &input : brief.inputs)
    std::cout << "  input  " << makePrintable(describe(input)) << "\n";
  if (!isTraining)
    suggestStates(brief, options);
  if (std::string error = tryFlushOutput(); !error.empty()) {
    std::cerr << "error: " << error << "\n";
    return 1;
  }
  TrialResult found = findSizes(brief, getGivenSizes(options.dims), countDevices(options),
                                [&](const Sizes &sizes) { return tryCompile(options, sizes); });
  for (const std::string &remark : found.remarks)
    std::cout << "  size   " << makePrintable(remark) << "\n";
  std::string tried;
  for (const std::string &name : brief.dims)
    if (auto size = found.sizes.find(name); size != found.sizes.end()) {
      options.dims.push_back(name + "=" + std::to_string(size->second));
      tried += (tried.empty() ? "" : ", ") + options.dims.back();
    }
  if (found.errors.empty())
    return 0;
  std::cerr << found.errors;
  if (!tried.empty() && found.isOfSizes)
    std::cout << "  size   " << makePrintable(tried) << " and "
              << "others were tried, " << found.trials << " in all; --dim chooses others\n";
  return 1;
}

int gridloom::runDoctor(const CompileOptions &given) {
  CompileOptions options = given;
  bool isTraining = given.train.isOn;
  if (isTraining) { // sizes do not depend on training
    options.train = TrainOptions();
    options.zero = 0;
    options.bucketSize = CompileOptions().bucketSize;
  }
  // Of the options, before sizes are tried without them.
  CompileOptions alone = options;
  alone.stopAfter = "shard";
  if (int code = Compilation(alone, std::cout, std::cerr).check())
    return code;
  ModelBrief brief;
  // The compilation itself reports unreadable models.
  if (readBrief(options.input, brief).empty() && chooseSizes(brief, options, isTraining))
    return 1;
  options.train = given.train;
  options.zero = given.zero;
  options.bucketSize = given.bucketSize;
  TrainSurvey survey;
  if (isTraining)
    if (int code = examineTraining(options, survey))
      return code;
  CompileOptions trial = options;
  bool lacksLoss = isTraining && options.train.losses.empty();
  if (lacksLoss)
    trial.train.losses = survey.anyLosses;
  if (int code = compileWhole(trial))
    return code;
  if (lacksLoss)
    options.train.losses = {"LOSS"};
  std::cout << "'" << makePrintable(options.input) << "' can be "
            << (isTraining ? "trained" : "compiled") << (lacksLoss ? " with a loss" : "") << ": "
            << makePrintable(describeCall(options)) << "\n";
  return 0;
}
