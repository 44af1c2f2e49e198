//===- ExplainVerb.cpp - gridloom explain ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads report.json, which the compiler writes for people and tools; fields that are not there are
// passed over.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/core/Error.h"
#include "support/OutputFormat.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

using namespace gridloom;
using namespace gridloom::rt;
using nlohmann::json;
using nlohmann::ordered_json;

static const char *const examples = R"(
Examples:
  gridloom explain model.plan                         what was chosen, what it costs, what else was tried
  gridloom explain model.plan --value encoder.q       how a value is cut, and what decided it
  gridloom explain model.plan --collective 3          where a collective comes from, why, and what it costs)";

namespace {

struct Settings {
  std::string plan, value;
  int64_t collective = -1;
  OutputFormat format;
};

/// A JSON object whose fields may be absent or of another type.
class Lenient {
public:
  explicit Lenient(const json &object) : object(object) {}
  bool has(const char *key) const { return object.is_object() && object.contains(key); }
  std::string text(const char *key) const {
    if (!has(key))
      return "";
    const json &value = object[key];
    if (value.is_string())
      return value;
    if (!value.is_array())
      return value.is_null() ? "" : value.dump();
    std::string joined;
    for (const json &element : value)
      joined += (joined.empty() ? "" : ".") +
                (element.is_string() ? element.get<std::string>() : element.dump());
    return joined;
  }
  double number(const char *key) const {
    return has(key) && object[key].is_number() ? object[key].get<double>() : 0;
  }
  std::vector<json> list(const char *key) const {
    if (!has(key) || !object[key].is_array())
      return {};
    return {object[key].begin(), object[key].end()};
  }
  const json &get(const char *key) const {
    static const json none;
    return has(key) ? object[key] : none;
  }

private:
  const json &object;
};

} // namespace

static json readReport(const std::string &plan) {
  std::string path = (std::filesystem::path(plan) / "report.json").string();
  std::ifstream file(path);
  if (!file)
    throw Error(ErrorCode::InvalidArgument,
                path + " cannot be read; explain needs a folder that 'gridloom compile' wrote");
  json report = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object())
    throw Error(ErrorCode::InvalidPlan, path + " is not a JSON object; compile the plan again");
  return report;
}

/// An optional text field; nothing is shown of an empty one.
static void addText(Document &document, const char *name, const std::string &text) {
  if (!text.empty())
    document.addField(name, text);
}

static void addEstimate(Document &document, const Lenient &report) {
  document.addTable("estimate", {"entry", "dims", "compute_ms", "comm_ms", "exposed_ms", "step_ms",
                                 "bubble_percent"});
  std::vector<json> estimates = report.list("estimates");
  double all = 0;
  for (const json &element : estimates) {
    Lenient estimate(element);
    all += estimate.number("step_ms");
    document.addRow(
        {estimate.text("entry"), estimate.text("dims"),
         numberCell(estimate.number("compute_ms"), 2), numberCell(estimate.number("comm_ms"), 2),
         numberCell(estimate.number("exposed_ms"), 2), numberCell(estimate.number("step_ms"), 2),
         numberCell(100 * estimate.number("bubble"), 0)});
  }
  if (estimates.size() > 1) // what candidates are compared by
    document.addField("step_ms_of_all", numberCell(all, 2));
}

/// The slowest kinds of collectives, summed: single ones are `inspect collectives`.
static void addCommunication(Document &document, const Lenient &report) {
  struct Sum {
    int64_t count = 0;
    uint64_t bytes = 0;
    double time = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const json &element : report.list("collectives")) {
    Lenient collective(element);
    Sum &sum = sums[{collective.text("kind"), collective.text("axes")}];
    int64_t times = std::max<int64_t>(1, int64_t(collective.number("times")));
    sum.count += times;
    sum.bytes += uint64_t(collective.number("bytes")) * uint64_t(times);
    sum.time += collective.number("estimate_us") * double(times);
  }
  document.addTable("communication", {"kind", "over", "count", "bytes", "estimate_us"});
  for (const auto &[key, sum] : sums)
    document.addRow(
        {key.first, key.second, sum.count, bytesCell(sum.bytes), numberCell(sum.time, 0)});
}

static Document explainPlan(const Lenient &report) {
  Document document;
  for (const char *name : {"model", "mesh", "target", "strategy", "chosen_as"})
    addText(document, name, report.text(name));
  for (const char *name : {"total_bytes", "weights_bytes", "states_bytes", "arena_bytes",
                           "registered_bytes", "inputs_and_outputs_bytes", "limit_bytes"})
    if (Lenient memory(report.get("memory")); memory.has(name))
      document.addField(name, bytesCell(uint64_t(memory.number(name))));

  addEstimate(document, report);
  document.addTable("candidates", {"strategy", "simulated_ms", "sum_ms", "memory", "verdict"});
  for (const json &element : report.list("candidates")) {
    Lenient candidate(element);
    auto timeOf = [&](const char *name) { // absent where there was no other candidate
      double ms = candidate.number(name);
      return ms > 0 ? numberCell(ms, 2) : Cell(nullptr);
    };
    double memory = candidate.number("memory_bytes");
    document.addRow({candidate.text("strategy"), timeOf("simulated_ms"), timeOf("sum_ms"),
                     memory > 0 ? bytesCell(uint64_t(memory)) : Cell(nullptr),
                     candidate.text("reason")});
  }
  addCommunication(document, report);

  std::vector<json> costs = report.list("costs");
  costs.resize(std::min<size_t>(costs.size(), 10));
  document.addTable("largest_costs", {"op", "ms", "onnx_node"});
  for (const json &element : costs) {
    Lenient cost(element);
    document.addRow({cost.text("op"), numberCell(cost.number("ms"), 3), cost.text("node")});
  }
  if (!report.list("warnings").empty()) {
    document.addTable("warnings", {"warning"});
    std::set<std::string> listed; // each specialisation may have its own
    for (const json &warning : report.list("warnings"))
      if (std::string text = warning.is_string() ? warning.get<std::string>() : warning.dump();
          listed.insert(text).second)
        document.addRow({text});
  }
  return document;
}

static Document explainValue(const Lenient &report, const std::string &name) {
  Document document;
  document.addTable("values", {"name", "made_by", "type", "sharding", "decided_by"});
  std::set<std::string> rows, similar;
  for (const json &element : report.list("values")) {
    Lenient value(element);
    std::string known = value.text("name");
    if (known.find(name) != std::string::npos)
      similar.insert(known);
    std::string type = value.text("type");
    // One node may become several operations; equal ones are listed once.
    if (known == name &&
        rows.insert(value.text("op") + type + value.text("sharding") + value.text("origin")).second)
      document.addRow(
          {known, value.text("op"), type, value.text("sharding"), value.text("origin")});
  }
  if (!rows.empty()) {
    document.addTable("its_collectives", {"id", "kind", "over", "bytes", "because"});
    for (const json &element : report.list("collectives"))
      if (Lenient collective(element); collective.text("origin") == name)
        document.addRow({int64_t(collective.number("id")), collective.text("kind"),
                         collective.text("axes"), bytesCell(uint64_t(collective.number("bytes"))),
                         collective.text("because")});
    return document;
  }
  std::string hint;
  for (const std::string &candidate : similar) {
    if (hint.size() > 300) {
      hint += ", ...";
      break;
    }
    hint += (hint.empty() ? "; there are " : ", ") + candidate;
  }
  throw Error(
      ErrorCode::InvalidArgument,
      "the report has no value named " + name +
          (hint.empty() ? "; values are named like the model's nodes, weights and inputs" : hint));
}

static Document explainCollective(const Lenient &report, int64_t id) {
  std::vector<json> collectives = report.list("collectives");
  for (const json &element : collectives) {
    Lenient collective(element);
    if (!collective.has("id") || int64_t(collective.number("id")) != id)
      continue;
    Document document;
    document.addField("collective", id);
    document.addField("kind", collective.text("kind"));
    addText(document, "over", collective.text("axes"));
    document.addField("ranks", int64_t(collective.number("group")));
    document.addField("bytes", bytesCell(uint64_t(collective.number("bytes"))));
    if (collective.has("times"))
      document.addField("times", int64_t(collective.number("times")));
    addText(document, "entry", collective.text("entry"));
    addText(document, "dims", collective.text("dims"));
    addText(document, "stage", collective.text("stage"));
    addText(document, "onnx_node", collective.text("origin"));
    addText(document, "because", collective.text("because"));
    document.addField("estimate", numberCell(collective.number("estimate_us"), 1, "us"));
    return document;
  }
  if (collectives.empty())
    throw Error(ErrorCode::InvalidArgument, "the plan has no collectives");
  throw Error(ErrorCode::InvalidArgument, "there is no collective " + std::to_string(id) +
                                              ": collectives are numbered 0 to " +
                                              std::to_string(collectives.size() - 1) +
                                              "; see gridloom inspect PLAN collectives");
}

static int explain(const Settings &settings) {
  json data = readReport(settings.plan);
  Lenient report(data);
  Document document = !settings.value.empty()    ? explainValue(report, settings.value)
                      : settings.collective >= 0 ? explainCollective(report, settings.collective)
                                                 : explainPlan(report);
  settings.format.write(document);
  return 0;
}

Verb gridloom::rt::addExplain(CLI::App &app) {
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand("explain", "Explain a plan's decisions and their costs");
  verb->footer(examples);
  verb->add_option("plan", settings->plan, "folder that 'gridloom compile' wrote")->required();
  auto *value = verb->add_option("--value", settings->value, "an ONNX node, weight or input");
  verb->add_option("--collective", settings->collective, "the id of a collective")
      ->check(CLI::Range(0, 1 << 30))
      ->excludes(value);
  settings->format.addOptions(*verb);
  return {verb, [settings] { return explain(*settings); }};
}
