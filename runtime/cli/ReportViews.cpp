//===- ReportViews.cpp - report.json as documents -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ReportViews.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;
using nlohmann::json;

/// Rows of tables that may be long, for people.
static constexpr size_t kMostCandidates = 12, kMostCosts = 10, kMostCollectives = 5;

static constexpr const char *kMemoryTerms[] = {"total_bytes",      "weights_bytes",
                                               "states_bytes",     "arena_bytes",
                                               "registered_bytes", "inputs_and_outputs_bytes",
                                               "limit_bytes"};

/// An optional text field; nothing is shown of an empty one.
static void addText(Document &document, const char *name, const std::string &text) {
  if (!text.empty())
    document.addField(name, text);
}

static void addMemory(Document &document, const LenientJson &memory) {
  for (const char *name : kMemoryTerms)
    if (memory.has(name))
      document.addField(name, bytesCell(uint64_t(memory.number(name))));
}

/// Of programs that take fractions of a millisecond three digits say too little.
static Cell timeCell(double ms) { return numberCell(ms, ms < 1 ? 4 : 2); }

static int percent(double part, double whole) {
  return whole > 0 ? int(std::lround(100 * part / whole)) : 0;
}

/// "+12 %" of a time that is slower than another.
static std::string formatExcess(double ms, double thanMs) {
  return numberCell(ms, ms < 1 ? 4 : 2).text + " ms" +
         (thanMs > 0 ? " (" + std::string(ms >= thanMs ? "+" : "") +
                           numberCell(100 * (ms / thanMs - 1), 0).text + " %)"
                     : "");
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

static void addEstimate(Document &document, const LenientJson &report) {
  document.addTable("estimate", {"entry", "dims", "compute_ms", "comm_ms", "exposed_ms", "step_ms",
                                 "exposed_percent", "bubble_percent"});
  std::vector<json> estimates = report.list("estimates");
  double all = 0;
  for (const json &element : estimates) {
    LenientJson estimate(element);
    all += estimate.number("step_ms");
    document.addRow({estimate.text("entry"), estimate.text("dims"),
                     timeCell(estimate.number("compute_ms")), timeCell(estimate.number("comm_ms")),
                     timeCell(estimate.number("exposed_ms")), timeCell(estimate.number("step_ms")),
                     percent(estimate.number("exposed_ms"), estimate.number("step_ms")),
                     numberCell(100 * estimate.number("bubble"), 0)});
  }
  if (estimates.size() > 1) // what candidates are compared by
    document.addField("step_ms_of_all", timeCell(all));
}

/// Of a step: simulated where that was done, else all that it computes and sends, summed.
static double getMs(const LenientJson &candidate) {
  for (const char *name : {"simulated_ms", "sum_ms", "step_ms"})
    if (candidate.number(name) > 0)
      return candidate.number(name);
  return 0;
}

/// Whether it lost against another: "slower", or "slower, extrapolated".
static bool isSlower(const LenientJson &candidate) {
  return candidate.text("reason").starts_with("slower");
}

/// Candidates by what they cost, the chosen one first, then those without a time.
static std::vector<json> sortCandidates(const LenientJson &report) {
  std::vector<json> candidates = report.list("candidates");
  auto rank = [](const json &element) {
    LenientJson candidate(element);
    double ms = getMs(candidate);
    int group = candidate.text("reason") == "chosen" ? 0 : isSlower(candidate) ? 1 : 2;
    return std::tuple(group, candidate.number("simulated_ms") <= 0, ms <= 0, ms);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const json &a, const json &b) { return rank(a) < rank(b); });
  return candidates;
}

/// Why this candidate: how many there were, and the next one.
static std::string explainChoice(const LenientJson &report, const std::vector<json> &candidates) {
  if (candidates.empty())
    return "";
  if (candidates.size() == 1)
    return "the mesh and the strategy were given, there was no other candidate";
  size_t refused = 0;
  const json *next = nullptr;
  for (const json &element : candidates) {
    LenientJson candidate(element);
    refused += candidate.text("reason") != "chosen" && !isSlower(candidate);
    if (isSlower(candidate) && !next)
      next = &element;
  }
  double chosenMs = getMs(LenientJson(candidates.front()));
  std::string text = report.text("chosen_as");
  if (text.empty())
    text = "fastest of " + std::to_string(candidates.size() - refused) + " candidates";
  text += ": " + formatExcess(chosenMs, 0);
  if (LenientJson(candidates.front()).number("simulated_ms") <= 0)
    text += " in sum, without overlap";
  if (next)
    text += "; the next, " + LenientJson(*next).text("strategy") + ", takes " +
            formatExcess(getMs(LenientJson(*next)), chosenMs);
  if (refused)
    text += "; " + std::to_string(refused) + " more refused";
  return text;
}

static std::string describeBound(const LenientJson &report) {
  LenientJson search(report.get("search"));
  double cost = search.number("cost_ms"), bound = search.number("bound_ms");
  if (cost <= 0)
    return "";
  std::string text = "the splits take " + numberCell(cost, 3).text +
                     " ms, one operation after another; on this mesh none take less than " +
                     numberCell(bound, 3).text + " ms";
  return text + (cost <= bound * (1 + 1e-9)
                     ? ""
                     : ", " + numberCell(100 * (cost / bound - 1), 1).text + " % below");
}

static void addCandidates(Document &document, std::vector<json> candidates, bool forTools) {
  size_t all = candidates.size();
  if (!forTools)
    candidates.resize(std::min(all, kMostCandidates));
  document.addTable("candidates", {"strategy", "simulated_ms", "sum_ms", "memory", "verdict"});
  for (const json &element : candidates) {
    LenientJson candidate(element);
    auto timeOf = [&](const char *name) { // a given mesh is not estimated
      return candidate.number(name) > 0 ? timeCell(candidate.number(name)) : Cell(nullptr);
    };
    double memory = candidate.has("memory_bytes") && candidate.number("memory_bytes") > 0
                        ? candidate.number("memory_bytes")
                        : candidate.number("estimated_memory_bytes");
    document.addRow({candidate.text("strategy"), timeOf("simulated_ms"),
                     timeOf(candidate.has("sum_ms") ? "sum_ms" : "step_ms"),
                     memory > 0 ? bytesCell(uint64_t(memory)) : Cell(nullptr),
                     candidate.text("reason")});
  }
  if (candidates.size() < all)
    document.addRow(
        {std::to_string(all - candidates.size()) + " more: --json", nullptr, nullptr, nullptr, ""});
}

/// Kinds of collectives, summed: single ones are `inspect collectives`.
static void addCommunication(Document &document, const LenientJson &report) {
  struct Sum {
    int64_t count = 0;
    uint64_t bytes = 0;
    double estimate = 0, time = 0, exposed = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const json &element : report.list("collectives")) {
    LenientJson collective(element);
    Sum &sum = sums[{collective.text("kind"), collective.text("axes")}];
    int64_t times = std::max<int64_t>(1, int64_t(collective.number("times")));
    sum.count += times;
    sum.bytes += uint64_t(collective.number("bytes")) * uint64_t(times);
    sum.estimate += collective.number("estimate_us") * double(times);
    sum.time += collective.number("time_us");
    sum.exposed += collective.number("exposed_us");
  }
  document.addTable("communication",
                    {"kind", "over", "count", "bytes", "estimate_us", "time_us", "exposed_us"});
  for (const auto &[key, sum] : sums)
    document.addRow({key.first, key.second, sum.count, bytesCell(sum.bytes),
                     numberCell(sum.estimate, 0), numberCell(sum.time, 0),
                     numberCell(sum.exposed, 0)});
}

/// "matmul 128x384x384 (/layer.2/MatMul)", of what hides most of a collective.
static std::string describeCover(const LenientJson &collective) {
  std::vector<json> beside = collective.list("hidden_behind");
  if (beside.empty())
    return "";
  LenientJson first(beside.front());
  std::string node = first.text("node");
  return first.text("op") + (node.empty() ? "" : " (" + node + ")");
}

/// Single collectives, those that nothing hides first.
static void addHeaviest(Document &document, std::vector<json> collectives, bool forTools) {
  std::erase_if(collectives, [](const json &c) { return !LenientJson(c).has("time_us"); });
  std::stable_sort(collectives.begin(), collectives.end(), [](const json &a, const json &b) {
    auto key = [](const json &c) {
      LenientJson collective(c);
      return std::pair(collective.number("exposed_us"), collective.number("time_us"));
    };
    return key(a) > key(b);
  });
  if (!forTools)
    collectives.resize(std::min(collectives.size(), kMostCollectives));
  if (collectives.empty())
    return;
  document.addTable("heaviest_collectives", {"id", "kind", "over", "bytes", "times", "time_us",
                                             "exposed_us", "mostly_behind", "onnx_node"});
  for (const json &element : collectives) {
    LenientJson collective(element);
    document.addRow({int64_t(collective.number("id")), collective.text("kind"),
                     collective.text("axes"), bytesCell(uint64_t(collective.number("bytes"))),
                     int64_t(collective.number("times")),
                     numberCell(collective.number("time_us"), 1),
                     numberCell(collective.number("exposed_us"), 1), describeCover(collective),
                     collective.text("origin")});
  }
}

/// Steps that do the same in all layers are one row.
static void addCosts(Document &document, const LenientJson &report,
                     const std::vector<json> &costs) {
  std::map<std::string, double> steps; // milliseconds of a program's step
  auto getProgram = [](const LenientJson &object) {
    return object.text("entry") + "\n" + object.text("dims");
  };
  for (const json &element : report.list("estimates"))
    steps[getProgram(LenientJson(element))] = LenientJson(element).number("step_ms");
  struct Row {
    std::string op, node;
    int64_t times = 0;
    double ms = 0, stepMs = 0;
  };
  std::map<std::string, Row> sums;
  for (const json &element : costs) {
    LenientJson cost(element);
    std::string op = cost.text("op"), node = foldLayers(cost.text("node"));
    op.resize(std::min(op.size(), op.find(" #"))); // a program's collectives are numbered
    std::string program = getProgram(cost);
    Row &row = sums[program + "\n" + cost.text("stage") + "\n" + op + "\n" + node];
    row.op = op;
    row.node = node;
    row.times += std::max<int64_t>(1, int64_t(cost.number("times")));
    row.ms += cost.number("ms");
    row.stepMs = steps[program];
  }
  std::vector<Row> rows;
  for (auto &[key, row] : sums)
    rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row &a, const Row &b) { return a.ms > b.ms; });
  rows.resize(std::min(rows.size(), kMostCosts));
  document.addTable("largest_costs", {"op", "times", "ms", "percent", "onnx_node"});
  for (const Row &row : rows)
    document.addRow(
        {row.op, row.times, numberCell(row.ms, 3), percent(row.ms, row.stepMs), row.node});
}

static void addWarnings(Document &document, const LenientJson &report) {
  if (report.list("warnings").empty())
    return;
  document.addTable("warnings", {"warning"});
  std::set<std::string> listed; // each specialisation may have its own
  for (const json &warning : report.list("warnings"))
    if (std::string text = warning.is_string() ? warning.get<std::string>() : warning.dump();
        listed.insert(text).second)
      document.addRow({text});
}

Document gridloom::rt::explainPlan(const LenientJson &report, bool forTools) {
  Document document;
  for (const char *name : {"model", "mesh", "target", "strategy"})
    addText(document, name, report.text(name));
  std::vector<json> candidates = sortCandidates(report);
  addText(document, "why", explainChoice(report, candidates));
  addText(document, "bound", describeBound(report));
  addMemory(document, LenientJson(report.get("memory")));
  addEstimate(document, report);
  addCandidates(document, std::move(candidates), forTools);
  addCommunication(document, report);
  addHeaviest(document, report.list("collectives"), forTools);
  addCosts(document, report, report.list("costs"));
  addWarnings(document, report);
  return document;
}

//===----------------------------------------------------------------------===//
// A value
//===----------------------------------------------------------------------===//

/// That there is none, with names that hold the text.
[[noreturn]] static void refuseValue(const std::string &name,
                                     const std::set<std::string> &similar) {
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

Document gridloom::rt::explainValue(const LenientJson &report, const std::string &name) {
  Document document;
  document.addTable("values", {"name", "made_by", "type", "sharding", "decided_by"});
  std::set<std::string> rows, similar;
  for (const json &element : report.list("values")) {
    LenientJson value(element);
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
  if (rows.empty())
    refuseValue(name, similar);
  document.addTable("its_collectives",
                    {"id", "kind", "over", "bytes", "times", "time_us", "exposed_us", "because"});
  for (const json &element : report.list("collectives"))
    if (LenientJson collective(element); collective.text("origin") == name)
      document.addRow({int64_t(collective.number("id")), collective.text("kind"),
                       collective.text("axes"), bytesCell(uint64_t(collective.number("bytes"))),
                       std::max<int64_t>(1, int64_t(collective.number("times"))),
                       numberCell(collective.number("time_us"), 1),
                       numberCell(collective.number("exposed_us"), 1), collective.text("because")});
  return document;
}

//===----------------------------------------------------------------------===//
// A collective
//===----------------------------------------------------------------------===//

static Document describeCollective(const LenientJson &collective) {
  Document document;
  document.addField("collective", int64_t(collective.number("id")));
  document.addField("kind", collective.text("kind"));
  addText(document, "over", collective.text("axes"));
  document.addField("ranks", int64_t(collective.number("group")));
  document.addField("bytes", bytesCell(uint64_t(collective.number("bytes"))));
  if (collective.has("times"))
    document.addField("times", int64_t(collective.number("times")));
  for (const char *name : {"entry", "dims", "stage"})
    addText(document, name, collective.text(name));
  addText(document, "onnx_node", collective.text("origin"));
  addText(document, "because", collective.text("because"));
  document.addField("estimate", numberCell(collective.number("estimate_us"), 1, "us"));
  if (!collective.has("time_us"))
    return document;
  double time = collective.number("time_us"), exposed = collective.number("exposed_us");
  document.addField("time_us", numberCell(time, 1));
  document.addField("exposed_us", numberCell(exposed, 1));
  document.addField("hidden_percent", percent(time - exposed, time));
  if (collective.number("waiting_us") > 0)
    document.addField("waiting_us", numberCell(collective.number("waiting_us"), 1));
  document.addTable("hidden_behind", {"op", "us", "onnx_node"});
  for (const json &element : collective.list("hidden_behind")) {
    LenientJson beside(element);
    document.addRow({beside.text("op"), numberCell(beside.number("us"), 1), beside.text("node")});
  }
  return document;
}

Document gridloom::rt::explainCollective(const LenientJson &report, int64_t id) {
  std::vector<json> collectives = report.list("collectives");
  for (const json &element : collectives)
    if (LenientJson collective(element);
        collective.has("id") && int64_t(collective.number("id")) == id)
      return describeCollective(collective);
  if (collectives.empty())
    throw Error(ErrorCode::InvalidArgument, "the plan has no collectives");
  throw Error(ErrorCode::InvalidArgument, "there is no collective " + std::to_string(id) +
                                              ": collectives are numbered 0 to " +
                                              std::to_string(collectives.size() - 1) +
                                              "; see gridloom inspect PLAN collectives");
}

//===----------------------------------------------------------------------===//
// A stage
//===----------------------------------------------------------------------===//

static void addTransfers(Document &document, const LenientJson &report, int64_t number) {
  std::vector<json> transfers = report.list("collectives");
  std::erase_if(transfers, [&](const json &element) {
    LenientJson c(element);
    return int64_t(c.number("stage")) != number ||
           (c.text("kind") != "send" && c.text("kind") != "recv");
  });
  std::stable_sort(transfers.begin(), transfers.end(), [](const json &a, const json &b) {
    return LenientJson(a).number("waiting_us") > LenientJson(b).number("waiting_us");
  });
  document.addTable("transfers",
                    {"id", "kind", "peer", "bytes", "times", "time_us", "waiting_us", "onnx_node"});
  for (const json &element : transfers) {
    LenientJson c(element);
    document.addRow({int64_t(c.number("id")), c.text("kind"), c.text("axes"),
                     bytesCell(uint64_t(c.number("bytes"))), int64_t(c.number("times")),
                     numberCell(c.number("time_us"), 1), numberCell(c.number("waiting_us"), 1),
                     c.text("origin")});
  }
}

Document gridloom::rt::explainStage(const LenientJson &report, int64_t number) {
  std::vector<json> own;
  std::map<int64_t, double> loads; // milliseconds of computation, all programs together
  for (const json &element : report.list("stages")) {
    LenientJson stage(element);
    auto n = int64_t(stage.number("stage"));
    loads[n] += stage.number("compute_ms");
    if (n == number)
      own.push_back(element);
  }
  if (loads.empty())
    throw Error(ErrorCode::InvalidArgument,
                "the report has no stages; compile the plan again with this version");
  if (own.empty())
    throw Error(ErrorCode::InvalidArgument, "there is no stage " + std::to_string(number) +
                                                ": stages are numbered 0 to " +
                                                std::to_string(loads.rbegin()->first));
  Document document;
  document.addField("stage", number);
  auto busiest = std::max_element(loads.begin(), loads.end(),
                                  [](const auto &a, const auto &b) { return a.second < b.second; });
  document.addField("busiest_stage", busiest->first);
  document.addField("percent_of_its_load", percent(loads[number], busiest->second));
  addMemory(document, LenientJson(own.front()));
  document.addTable("load", {"entry", "dims", "compute_ms", "comm_ms", "exposed_ms", "step_ms",
                             "bubble_percent"});
  for (const json &element : own) {
    LenientJson stage(element);
    document.addRow({stage.text("entry"), stage.text("dims"), timeCell(stage.number("compute_ms")),
                     timeCell(stage.number("comm_ms")), timeCell(stage.number("exposed_ms")),
                     timeCell(stage.number("step_ms")),
                     numberCell(100 * stage.number("bubble"), 0)});
  }
  if (loads.size() > 1)
    addTransfers(document, report, number);
  std::vector<json> costs = report.list("costs");
  std::erase_if(costs, [&](const json &element) {
    return int64_t(LenientJson(element).number("stage")) != number;
  });
  addCosts(document, report, costs);
  return document;
}

//===----------------------------------------------------------------------===//
// To compare
//===----------------------------------------------------------------------===//

CostSheet gridloom::rt::readCosts(const LenientJson &report) {
  CostSheet sheet;
  for (const json &element : report.list("estimates")) {
    LenientJson estimate(element);
    std::string dims = estimate.text("dims");
    sheet.programs.push_back({estimate.text("entry") + (dims.empty() ? "" : " " + dims),
                              estimate.number("step_ms"), estimate.number("compute_ms"),
                              estimate.number("comm_ms"), estimate.number("exposed_ms"),
                              estimate.number("bubble")});
  }
  for (const json &element : report.list("costs"))
    if (LenientJson cost(element); cost.has("kind"))
      sheet.parts.push_back({cost.text("kind"), cost.text("over"), cost.text("node"),
                             int64_t(cost.number("times")), cost.number("ms")});
  LenientJson memory(report.get("memory"));
  for (auto [key, name] : {std::pair("total_bytes", "total"),
                           {"weights_bytes", "weights"},
                           {"states_bytes", "states"},
                           {"arena_bytes", "arena"},
                           {"registered_bytes", "registered"},
                           {"inputs_and_outputs_bytes", "inputs and outputs"}})
    if (memory.has(key))
      sheet.memory[name] = uint64_t(memory.number(key));
  return sheet;
}
