//===- OptionText.cpp - compile options in report.json --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/OptionText.h"

#include "cluster/Presets.h"
#include "support/Text.h"

#include "llvm/Support/FormatVariadic.h"

#include <filesystem>

using namespace gridloom;
using llvm::json::Array;
using llvm::json::Object;
using llvm::json::Value;

/// Calls `visit` with the name of each flag and the field it sets.
template <typename Options, typename Visit> static void forEachFlag(Options &options, Visit visit) {
  visit("start-from", options.startFrom);
  visit("dim", options.dims);
  visit("state", options.states);
  visit("unroll", options.unroll);
  visit("gradients-of", options.gradientsOf);
  visit("with-respect-to", options.withRespectTo);
  visit("train", options.train.isOn);
  visit("loss", options.train.losses);
  visit("metric", options.train.metrics);
  visit("optimizer", options.train.optimizer);
  visit("clip", options.train.clip);
  visit("loss-scale", options.train.lossScale);
  visit("param", options.train.parameters);
  visit("tie", options.train.ties);
  visit("init", options.train.inits);
  visit("seed", options.train.seed);
  visit("mesh", options.mesh);
  visit("devices", options.devices);
  visit("cluster", options.cluster);
  visit("strategy", options.strategy);
  bool withoutSeeds = !options.seeds;
  visit("no-seeds", withoutSeeds);
  visit("shard", options.shard);
  visit("microbatches", options.microbatches);
  visit("zero", options.zero);
  visit("chunk-matmul", options.chunkMatmul);
  visit("bucket-size", options.bucketSize);
  visit("memory-limit", options.memoryLimit);
  visit("measure-best", options.measureBest);
  visit("plan-time", options.planTime);
  visit("plan-work", options.planWork);
  visit("precision", options.precision);
  visit("target", options.target.name);
  visit("cpu-arch", options.target.cpuArch);
  visit("cuda-toolkit", options.target.toolkit);
  bool withoutCudnn = !options.target.cudnn;
  visit("no-cudnn", withoutCudnn);
  if constexpr (!std::is_const_v<Options>) {
    options.seeds = !withoutSeeds;
    options.target.cudnn = !withoutCudnn;
  }
}

namespace {

struct Describer {
  Object object;
  void operator()(const char *name, const std::vector<std::string> &list) {
    if (!list.empty())
      object[name] = Array(list);
  }
  void operator()(const char *name, const std::optional<uint64_t> &number) {
    if (number)
      object[name] = *number;
  }
  template <typename T> void operator()(const char *name, const T &value) { object[name] = value; }
};

struct Reader {
  const Object &object;
  void operator()(const char *name, std::string &text) {
    if (std::optional<llvm::StringRef> found = object.getString(name))
      text = found->str();
  }
  void operator()(const char *name, std::vector<std::string> &list) {
    if (const Array *found = object.getArray(name))
      for (const Value &element : *found)
        if (std::optional<llvm::StringRef> text = element.getAsString())
          list.push_back(text->str());
  }
  void operator()(const char *name, int64_t &number) {
    if (std::optional<int64_t> found = object.getInteger(name))
      number = *found;
  }
  void operator()(const char *name, std::optional<uint64_t> &number) {
    const Value *found = object.get(name);
    if (std::optional<uint64_t> whole = found ? found->getAsUINT64() : std::nullopt)
      number = whole;
  }
  void operator()(const char *name, double &number) {
    if (std::optional<double> found = object.getNumber(name))
      number = *found;
  }
  void operator()(const char *name, bool &flag) {
    if (std::optional<bool> found = object.getBoolean(name))
      flag = *found;
  }
};

} // namespace

Object gridloom::describeOptions(const CompileOptions &options) {
  Describer given, usual;
  const CompileOptions defaults;
  forEachFlag(options, std::ref(given));
  forEachFlag(defaults, std::ref(usual));
  for (const auto &[name, value] : usual.object)
    if (const Value *same = given.object.get(name); same && *same == value)
      given.object.erase(name);
  std::error_code error;
  if (!options.cluster.empty() && !cluster::parsePreset(options.cluster))
    given.object["cluster"] = std::filesystem::absolute(options.cluster, error).string();
  if (llvm::StringRef(options.strategy).ends_with(".strategy"))
    given.object["strategy"] = std::filesystem::absolute(options.strategy, error).string();
  return std::move(given.object);
}

void gridloom::readOptions(const Object &object, CompileOptions &options) {
  forEachFlag(options, Reader{object});
}

std::string gridloom::printFlags(const CompileOptions &options) {
  Object given = describeOptions(options);
  std::string text;
  auto add = [&](const char *name, const std::string &value) {
    text += std::string(" --") + name + (value.empty() ? "" : " " + quoteForShell(value));
  };
  // In the order of forEachFlag, which an object does not keep.
  forEachFlag(options, [&](const char *name, const auto &) {
    const Value *value = given.get(name);
    if (!value)
      return;
    if (std::optional<llvm::StringRef> string = value->getAsString())
      add(name, string->str());
    else if (std::optional<int64_t> number = value->getAsInteger())
      add(name, std::to_string(*number));
    else if (value->getAsNumber())
      add(name, llvm::formatv("{0}", *value).str());
    else if (const Array *list = value->getAsArray())
      for (const Value &element : *list)
        add(name, element.getAsString().value_or("").str());
    else
      add(name, "");
  });
  return text;
}
