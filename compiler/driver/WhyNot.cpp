//===- WhyNot.cpp - what a plan would cost otherwise ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/WhyNot.h"

#include "compiler/driver/OptionText.h"
#include "compiler/driver/SimulatedCosts.h"
#include "compiler/onnx/NodeReaders.h"
#include "dialects/dist/Sharding.h"
#include "support/JsonDepth.h"
#include "support/Text.h"
#include "support/Usage.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

using namespace gridloom;
using llvm::StringRef;
using llvm::json::Array;
using llvm::json::Object;
using llvm::json::Value;

namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Files of a plan
//===----------------------------------------------------------------------===//

/// The file's text; empty if it cannot be read.
static std::string readText(const fs::path &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path.string());
  return buffer ? (*buffer)->getBuffer().str() : "";
}

/// nullopt if the file holds no JSON object; `error` is set if that nests too deeply to be read.
static std::optional<Object> readObject(const fs::path &path, std::string &error) {
  std::string text = readText(path);
  if (isDeepJson(text)) {
    error = "'" + path.string() + "' has " + describeDeepJson() + "; compile the plan again";
    return std::nullopt;
  }
  llvm::Expected<Value> value = llvm::json::parse(text);
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  if (Object *object = value->getAsObject())
    return std::move(*object);
  return std::nullopt;
}

static std::string getText(const Object &object, StringRef key) {
  return object.getString(key).value_or("").str();
}

/// The model file, whose path may be relative to the plan's folder. Returns the path that compile
/// was given if that still names the same file.
static std::string findModel(const fs::path &folder, const Object &report) {
  std::string ignored; // without a manifest there is no path
  std::optional<Object> manifest = readObject(folder / "manifest.json", ignored);
  const Object *model = manifest ? manifest->getObject("model") : nullptr;
  fs::path path = model ? fs::path(getText(*model, "path")) : fs::path();
  path = (path.is_absolute() ? path : folder / path).lexically_normal();
  std::error_code error;
  std::string given = getText(report, "model");
  return fs::equivalent(given, path, error) ? given : path.string();
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

/// The costs as `diff` reads them from a report.
static CostSheet makeSheet(const PlanOutcome &outcome) {
  Object report{{"estimates", describePrograms(outcome.runs)},
                {"costs", describeSteps(outcome.runs)}};
  auto largest = std::max_element(outcome.memory.begin(), outcome.memory.end(),
                                  [](const PlannedMemory &a, const PlannedMemory &b) {
                                    return a.needs.getAllocated() < b.needs.getAllocated();
                                  });
  if (largest != outcome.memory.end())
    report["memory"] = describeNeeds(largest->stage, largest->needs);
  std::string text;
  llvm::raw_string_ostream(text) << Value(std::move(report));
  return parseCosts(text).value_or(CostSheet());
}

static bool costAlike(const CostSheet &a, const CostSheet &b) {
  auto sums = [](const CostSheet &sheet) {
    std::map<std::tuple<std::string, std::string, std::string, std::string>, double> parts;
    for (const CostSheet::Part &part : sheet.parts)
      parts[{part.program, part.kind, part.over, part.node}] += part.ms;
    return parts;
  };
  return a.memory == b.memory && sums(a) == sums(b);
}

//===----------------------------------------------------------------------===//
// Planning again
//===----------------------------------------------------------------------===//

std::optional<PlannedAgain> PlannedAgain::open(const std::string &folder, std::string &error) {
  PlannedAgain plan;
  plan.folder = folder;
  std::optional<Object> report = readObject(fs::path(folder) / "report.json", error);
  if (!error.empty())
    return std::nullopt;
  const Object *options = report ? report->getObject("options") : nullptr;
  if (!options) {
    error = "'" + folder +
            "' has no report.json with the options it was compiled with; it takes "
            "a folder that this version of 'gridloom compile' wrote";
    return std::nullopt;
  }
  readOptions(*options, plan.options);
  plan.model = findModel(folder, *report);
  std::error_code missing;
  if (!plan.options.startFrom.empty())
    error = "'" + folder + "' was compiled from a dump, with --start-from " +
            plan.options.startFrom + "; only what was compiled from a model can be planned again";
  else if (!fs::exists(plan.model, missing))
    error = "the model '" + plan.model + "' of '" + folder +
            "' is not there, and it takes that to plan again";
  if (!error.empty())
    return std::nullopt;
  plan.options.input = plan.model;
  plan.options.quiet = true;
  plan.mesh = getText(*report, "mesh");
  plan.strategy = getText(*report, "strategy");
  plan.strategyText = readText(fs::path(folder) / "plan.strategy");
  plan.report = std::move(*report);
  PlanOutcome outcome;
  if (runSimulate({folder, "", ""}, outcome) != 0)
    return std::nullopt; // it has printed why
  plan.costs = makeSheet(outcome);
  return plan;
}

/// The first error, with its notes: "error: A", "note: B" as "A: B".
static std::string getRefusal(const std::string &messages) {
  std::string refusal;
  for (StringRef line : llvm::split(StringRef(messages), '\n'))
    if (line.consume_front("error: ") && refusal.empty())
      refusal = line.str();
    else if (line.consume_front("note: ") && !refusal.empty())
      refusal += ": " + line.str();
  return refusal.empty() ? "it cannot be planned" : refusal;
}

/// The devices of "data=2,model=2"; what cannot be read counts as 1: planning refuses it.
static int64_t countDevices(StringRef mesh) {
  int64_t devices = 1, size;
  for (StringRef axis : llvm::split(mesh, ','))
    if (!axis.split('=').second.trim().getAsInteger(10, size))
      devices *= size;
  return devices;
}

/// Raises --devices, of the same kind, to as many as the mesh needs.
static void growDevices(CompileOptions &options) {
  auto [count, kind] = StringRef(options.devices).split('x');
  int64_t given = 0, needed = countDevices(options.mesh);
  if (!count.getAsInteger(10, given) && given < needed)
    options.devices = std::to_string(needed) + (kind.empty() ? "" : "x" + kind.str());
}

int64_t PlannedAgain::getDevices() const { return countDevices(mesh); }

std::string PlannedAgain::refuseMesh(const std::string &other) const {
  if (StringRef(other).trim(" ,").empty())
    return "it names no axis; write mesh=axis=size,..., e.g. mesh=data=2,model=2";
  if (StringRef(options.strategy).ends_with(".strategy") && other != mesh)
    return "the plan's strategy file '" + options.strategy +
           "' fixes its mesh; compile without --strategy to compare meshes";
  return "";
}

Trial PlannedAgain::plan(const std::string &pin) const {
  Trial trial;
  trial.pin = pin;
  CompileOptions changed = options;
  // Without a time limit the answer does not depend on the machine.
  changed.planTime = CompileOptions().planTime;
  std::string name; // of the pinned value
  StringRef text = pin;
  bool pinsValue = text.contains("=[") || text.contains("=stored[");
  if (!pinsValue && text.consume_front("mesh=")) {
    changed.mesh = text.str();
    trial.refusal = refuseMesh(changed.mesh);
    if (!trial.refusal.empty())
      return trial;
  } else if (!pinsValue) {
    trial.refusal = "write NAME=[{axis,...},...] or mesh=axis=size,...";
    return trial;
  } else {
    name = text.take_front(text.rfind("=")).str();
    trial.refusal = mesh.empty() ? "the plan is for one device, on which nothing is split; give "
                                   "a mesh, as in --why-not mesh=data=2"
                                 : explainGone(name);
    if (!trial.refusal.empty())
      return trial;
    changed.mesh = mesh;
    changed.shard.push_back(pin);
  }
  growDevices(changed);
  PlanOutcome outcome;
  std::ostringstream messages;
  if (runPlan(changed, "", outcome, messages) != 0) {
    trial.refusal = getRefusal(messages.str()) + suggestValue(name);
    return trial;
  }
  trial.strategy = outcome.strategy;
  trial.stopped = outcome.stopped;
  trial.costs = makeSheet(outcome);
  trial.devices = countDevices(changed.mesh);
  trial.isSame = outcome.files["plan.strategy"] == strategyText && costAlike(costs, trial.costs);
  trial.command = "gridloom compile " + quoteForShell(model) + printFlags(changed) + " -o " +
                  quoteForShell(fs::path(model).stem().string() + "-otherwise.plan");
  return trial;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// The nodes of a value: "A + B" comes from two.
static llvm::SmallVector<StringRef> splitNodes(StringRef name) {
  llvm::SmallVector<StringRef> nodes;
  name.split(nodes, " + ");
  return nodes;
}

std::string PlannedAgain::explainGone(const std::string &name) const {
  llvm::StringSet<> values;
  llvm::StringMap<std::string> wholes; // values, by the nodes that they come from
  const Array *list = report.getArray("values");
  for (size_t i = 0; list && i < list->size(); ++i)
    if (const Object *value = (*list)[i].getAsObject()) {
      std::string known = getText(*value, "name");
      values.insert(known);
      for (StringRef node : splitNodes(known))
        wholes.try_emplace(node, known);
    }
  auto whole = wholes.find(name);
  if (values.contains(name) || StringRef(name).contains('*'))
    return "";
  if (whole != wholes.end())
    return "node '" + name + "' is computed as part of '" + whole->second +
           "', which is one operation; pin that name";
  std::optional<NodeReaders> found = findReaders(model, name);
  if (!found)
    return "";
  if (found->node != name && values.contains(found->node))
    return "'" + name + "' is the tensor that node '" + found->node +
           "' makes; pin the node's name";
  for (const std::string &reader : found->readers)
    if (auto into = wholes.find(reader); into != wholes.end())
      return "node '" + found->node +
             "' is no operation of its own: it was folded away, and what it gave is in '" +
             into->second + "'; pin that name";
  return "node '" + found->node + "' was folded away, and no operation is left that reads it";
}

std::string PlannedAgain::suggestValue(const std::string &name) const {
  std::vector<std::string> values;
  const Array *list = report.getArray("values");
  for (size_t i = 0; list && i < list->size(); ++i)
    if (const Object *value = (*list)[i].getAsObject())
      values.push_back(getText(*value, "name"));
  bool isPattern = StringRef(name).contains('*');
  return name.empty() || isPattern || llvm::is_contained(values, name) ? "" : suggest(name, values);
}

namespace {
/// A dimension of a pinned value, without the axis of micro-batches.
struct PinnedDim {
  std::vector<std::string> axes;
  bool hasGranule = false;
};
} // namespace

/// Parses a sharding's text, '[{"micro", "data"}, {"model"} * 64]'.
static std::optional<std::vector<PinnedDim>> parseDims(StringRef sharding) {
  size_t begin = sharding.find('['), end = sharding.find(']');
  if (begin == StringRef::npos || end == StringRef::npos || end < begin)
    return std::nullopt;
  std::vector<PinnedDim> dims;
  StringRef body = sharding.slice(begin + 1, end);
  while (true) {
    size_t open = body.find('{'), close = body.find('}');
    if (open == StringRef::npos || close == StringRef::npos || close < open)
      return dims;
    PinnedDim &dim = dims.emplace_back();
    for (StringRef axis : llvm::split(body.slice(open + 1, close), ','))
      if (StringRef name = axis.trim();
          name.consume_front("\"") && name.consume_back("\"") && name != dist::MeshOp::kMicroAxis)
        dim.axes.push_back(name.str());
    body = body.drop_front(close + 1);
    dim.hasGranule = body.starts_with(" * ");
  }
}

static std::string printPin(const std::string &name, const std::vector<PinnedDim> &dims) {
  std::string text;
  for (const PinnedDim &dim : dims)
    text += (text.empty() ? "{" : ",{") + llvm::join(dim.axes, ",") + "}";
  return name + "=[" + text + "]";
}

/// The axes of a collective, each once, in the order of the mesh "data=2,model=2": if several axes
/// split a dimension, the first of them cuts it first.
static std::vector<std::string> sortByMesh(const Object *collective, StringRef mesh) {
  std::vector<std::string> axes;
  if (const Array *list = collective ? collective->getArray("axes") : nullptr)
    for (const Value &axis : *list)
      if (std::string name = axis.getAsString().value_or("").str(); !llvm::is_contained(axes, name))
        axes.push_back(name);
  llvm::SmallVector<StringRef> order;
  for (StringRef axis : llvm::split(mesh, ','))
    order.push_back(axis.split('=').first.trim());
  llvm::stable_sort(axes, [&](const std::string &a, const std::string &b) {
    return llvm::find(order, a) < llvm::find(order, b);
  });
  return axes;
}

std::vector<std::string> PlannedAgain::listAlternatives(int64_t id, std::string &error) const {
  const Array *collectives = report.getArray("collectives"), *values = report.getArray("values");
  if (!collectives || id < 0 || static_cast<size_t>(id) >= collectives->size()) {
    error =
        "there is no collective " + std::to_string(id) + "; see gridloom inspect PLAN collectives";
    return {};
  }
  const Object *collective = (*collectives)[static_cast<size_t>(id)].getAsObject();
  std::string origin = collective ? getText(*collective, "origin") : "";
  std::string kind = collective ? getText(*collective, "kind") : "";
  if (kind == "send" || kind == "recv") {
    error = "collective " + std::to_string(id) +
            " is a transfer to or from another stage; it is there because of the stages, not of a "
            "split; change these with --strategy FILE, or try --why-not mesh=...";
    return {};
  }
  std::vector<std::string> moved = sortByMesh(collective, mesh);
  std::vector<std::string> pins;
  bool keepsGranule = false;
  for (size_t i = 0; values && i < values->size(); ++i) {
    const Object *value = (*values)[i].getAsObject();
    if (!value || getText(*value, "name") != origin)
      continue;
    auto dims = parseDims(getText(*value, "sharding"));
    if (!dims)
      continue;
    std::string now = printPin(origin, *dims);
    std::vector<PinnedDim> rest = *dims;
    for (PinnedDim &dim : rest) {
      std::erase_if(dim.axes,
                    [&](const std::string &axis) { return llvm::is_contained(moved, axis); });
      keepsGranule |= dim.hasGranule && !dim.axes.empty();
    }
    if (keepsGranule)
      break; // pins cannot express granules, and would move what is to stay
    auto add = [&](const std::vector<PinnedDim> &other) {
      if (std::string pin = printPin(origin, other); pin != now && !llvm::is_contained(pins, pin))
        pins.push_back(pin);
    };
    add(rest);
    for (size_t dim = 0; dim < rest.size(); ++dim) {
      std::vector<PinnedDim> other = rest;
      llvm::append_range(other[dim].axes, moved);
      add(other);
    }
    break; // a node that became several operations is named by its last; pins name all of them
  }
  if (pins.empty())
    error = "collective " + std::to_string(id) + " is for '" + origin +
            (keepsGranule ? "', which other axes split by granules, and --shard cannot write these"
                          : "', which is no value that could be split otherwise");
  return pins;
}
