//===- ReportViews.cpp - report.json as documents -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ReportViews.h"

#include "runtime/cli/ShardingText.h"
#include "runtime/core/Error.h"
#include "support/CostSheet.h"
#include "support/Layers.h"
#include "support/Text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

using namespace gridloom;
using namespace gridloom::rt;

/// Rows of long tables for people.
static constexpr size_t kMostCandidates = 12, kMostCosts = 10, kMostCollectives = 5;

static constexpr const char *kMemoryTerms[] = {"total_bytes",      "weights_bytes",
                                               "states_bytes",     "arena_bytes",
                                               "registered_bytes", "inputs_and_outputs_bytes",
                                               "limit_bytes"};

static bool has(const Json &object, const char *key) { return !getField(object, key).is_null(); }

/// Missing or 0 counts as 1.
static uint64_t getTimes(const Json &object) {
  return std::max<uint64_t>(1, getSize(object, "times"));
}

/// A copy of a list, for sorting.
static std::vector<Json> copyList(const Json &report, const char *key) {
  const Json &list = getList(report, key);
  return std::vector<Json>(list.begin(), list.end());
}

/// Adds a text field unless it is empty.
static void addText(Document &document, const char *name, const std::string &text) {
  if (!text.empty())
    document.addField(name, text);
}

static void addMemory(Document &document, const Json &memory) {
  for (const char *name : kMemoryTerms)
    if (has(memory, name))
      document.addField(name, bytesCell(getSize(memory, name)));
}

/// More digits below 1 ms.
static Cell timeCell(double ms) { return numberCell(ms, ms < 1 ? 4 : 2); }
static std::string formatTime(double ms) { return timeCell(ms).text + " ms"; }

static Cell usCell(const Json &object, const char *key) {
  return numberCell(getNumber(object, key), 1);
}

static int percent(double part, double whole) {
  constexpr double most = 1e9; // for damaged reports
  return whole > 0 ? int(std::lround(std::clamp(100 * part / whole, -most, most))) : 0;
}

static std::string getProgram(const Json &object) {
  return nameProgram(getText(object, "entry"), getText(object, "dims"));
}

/// The number of pipeline stages; 0 if the report lists none.
static size_t countStages(const Json &report) {
  std::set<int64_t> stages;
  for (const Json &stage : getList(report, "stages"))
    stages.insert(getInteger(stage, "stage"));
  return stages.size();
}

namespace {
/// Columns for the program and the stage, if a plan has several, to tell their rows apart.
class PlaceColumns {
public:
  explicit PlaceColumns(const Json &report, bool ofOneStage = false)
      : hasPrograms(getList(report, "estimates").size() > 1),
        hasStages(!ofOneStage && countStages(report) > 1) {}
  /// `columns`, then these, then `last`.
  std::vector<std::string> addColumns(std::vector<std::string> columns, const char *last) const {
    if (hasPrograms)
      columns.emplace_back("program");
    if (hasStages)
      columns.emplace_back("stage");
    columns.emplace_back(last);
    return columns;
  }
  std::vector<Cell> addCells(std::vector<Cell> row, const std::string &program, int64_t stage,
                             const std::string &last) const {
    if (hasPrograms)
      row.emplace_back(program);
    if (hasStages)
      row.emplace_back(stage);
    row.emplace_back(last);
    return row;
  }
  std::vector<Cell> addCells(std::vector<Cell> row, const Json &place,
                             const std::string &last) const {
    return addCells(std::move(row), getProgram(place), getInteger(place, "stage"), last);
  }

private:
  bool hasPrograms, hasStages;
};
} // namespace

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

static void addEstimate(Document &document, const Json &report) {
  document.addTable("estimate", {"entry", "dims", "compute_ms", "comm_ms", "exposed_ms", "step_ms",
                                 "exposed_percent", "bubble_percent"});
  const Json &estimates = getList(report, "estimates");
  double all = 0;
  for (const Json &estimate : estimates) {
    all += getNumber(estimate, "step_ms");
    document.addRow(
        {getText(estimate, "entry"), getText(estimate, "dims"),
         timeCell(getNumber(estimate, "compute_ms")), timeCell(getNumber(estimate, "comm_ms")),
         timeCell(getNumber(estimate, "exposed_ms")), timeCell(getNumber(estimate, "step_ms")),
         percent(getNumber(estimate, "exposed_ms"), getNumber(estimate, "step_ms")),
         numberCell(100 * getNumber(estimate, "bubble"), 0)});
  }
  if (estimates.size() > 1) // candidates are compared by this
    document.addField("step_ms_of_all", timeCell(all));
}

std::vector<PlanCandidate> gridloom::rt::readCandidates(const Json &report) {
  std::vector<PlanCandidate> candidates;
  for (const Json &each : getList(report, "candidates")) {
    uint64_t allocated = getSize(each, "memory_bytes");
    candidates.push_back({getText(each, "strategy"), getText(each, "reason"),
                          getNumber(each, "simulated_ms"), getNumber(each, "sum_ms"),
                          allocated ? allocated : getSize(each, "estimated_memory_bytes"),
                          getNumber(each, "measured_ms")});
  }
  sortCandidates(candidates);
  return candidates;
}

/// " for --mesh model=2": the user's options that left one candidate.
static std::string describeGiven(const Json &report) {
  const Json &options = getField(report, "options");
  std::string given;
  for (const char *name : {"cluster", "devices", "mesh", "strategy"})
    if (std::string text = getText(options, name); !text.empty())
      given += " --" + std::string(name) + " " + quoteForShell(text);
  if (!given.empty())
    return " for" + given;
  if (!options.is_object())
    return ""; // by an older compiler
  return getText(report, "mesh").empty() ? " for one device" : " for the model's own mesh";
}

/// "; the next, X, takes 13.1 ms simulated (+6 %)"
static std::string describeNext(const PlanCandidate &next, double ms, double nextMs,
                                const char *kind) {
  std::string more = numberCell(100 * (nextMs / ms - 1), 0).text;
  std::string text = "; the next, " + next.strategy + ", takes " + formatTime(nextMs) + " " + kind;
  if (more == "0" || more == "-0")
    return text;
  return text + " (" + (nextMs >= ms ? "+" : "") + more + " %)";
}

/// ": 12.3 ms simulated; the next, X, takes 13.1 ms simulated (+6 %)". Compares times of the same
/// kind: the sum without overlap if the next one was not simulated.
static std::string compareTimes(const PlanCandidate &chosen, const PlanCandidate *next) {
  if (chosen.measuredMs > 0 && next && next->measuredMs > 0)
    return ": " + formatTime(chosen.measuredMs) + " measured" +
           describeNext(*next, chosen.measuredMs, next->measuredMs, "measured");
  bool simulated = chosen.simulatedMs > 0;
  std::string text = simulated          ? ": " + formatTime(chosen.simulatedMs) + " simulated"
                     : chosen.sumMs > 0 ? ": " + formatTime(chosen.sumMs) + " in sum"
                                        : "";
  bool bySum = !simulated || !next || next->simulatedMs <= 0;
  double ms = bySum ? chosen.sumMs : chosen.simulatedMs;
  double nextMs = !next ? 0 : bySum ? next->sumMs : next->simulatedMs;
  if (!next || ms <= 0 || nextMs <= 0)
    return text;
  if (simulated && bySum)
    text += ", " + formatTime(ms) + " in sum";
  return text + describeNext(*next, ms, nextMs, bySum ? "in sum" : "simulated");
}

std::string gridloom::rt::explainChoice(const Json &report,
                                        const std::vector<PlanCandidate> &candidates) {
  if (candidates.size() == 1)
    return "there was no other candidate" + describeGiven(report);
  if (candidates.empty() || !candidates.front().isChosen())
    return "";
  std::string text = getText(report, "chosen_as");
  if (text.empty())
    text = "fastest of " + std::to_string(candidates.size()) + " candidates";
  bool hasNext = !candidates[1].isRefused();
  text += compareTimes(candidates.front(), hasNext ? &candidates[1] : nullptr);
  auto refused = std::count_if(candidates.begin(), candidates.end(),
                               [](const PlanCandidate &each) { return each.isRefused(); });
  return refused ? text + "; " + std::to_string(refused) + " of them refused" : text;
}

static std::string describeBound(const Json &report) {
  const Json &search = getField(report, "search");
  double cost = getNumber(search, "cost_ms"), bound = getNumber(search, "bound_ms");
  if (cost <= 0)
    return "";
  size_t stages = countStages(report);
  std::string text = "the splits take " + numberCell(cost, 3).text + " ms" +
                     (stages > 1 ? " in " + std::to_string(stages) + " stages; "
                                 : ", one operation after another; ");
  if (bound <= 0)
    return text + "the search was ended before it had a bound";
  text += std::string(stages > 1 ? "with these stages" : "on this mesh") + " none take less than " +
          numberCell(bound, 3).text + " ms";
  std::string gain = numberCell(std::max(0.0, 100 * (1 - bound / cost)), 1).text;
  return gain == "0.0" ? text : text + " (at most " + gain + " % faster)";
}

/// The search rounds to whole picoseconds: tolerate this relative excess over the sum.
static constexpr double kRounding = 1e-5;

/// "in sum 2.805 ms; no plan takes less than 2.790 ms (at most 0.5 % less): all meshes ..."
static std::string describeLeast(const Json &report) {
  const Json &least = getField(report, "bound");
  double sum = getNumber(least, "sum_ms"), bound = getNumber(least, "bound_ms");
  if (sum <= 0 || bound <= 0)
    return "";
  std::string text = "in sum " + numberCell(sum, 3).text + " ms; ", scope = getText(least, "scope");
  if (bound > sum * (1 + kRounding))
    return text + "a bound of " + numberCell(bound, 3).text + " ms does not hold: " + scope;
  bound = std::min(bound, sum);
  return text + "no plan takes less than " + numberCell(bound, 3).text + " ms (at most " +
         numberCell(100 * (1 - bound / sum), 1).text + " % less): " + scope;
}

/// Collectives summed by kind; `inspect collectives` lists single ones.
static void addCommunication(Document &document, const Json &report) {
  struct Sum {
    uint64_t count = 0, bytes = 0; // may wrap
    double estimate = 0, time = 0, exposed = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const Json &collective : getList(report, "collectives")) {
    Sum &sum = sums[{getText(collective, "kind"), getText(collective, "axes")}];
    uint64_t times = getTimes(collective);
    sum.count += times;
    sum.bytes += getSize(collective, "bytes") * times;
    sum.estimate += getNumber(collective, "estimate_us") * double(times);
    sum.time += getNumber(collective, "time_us");
    sum.exposed += getNumber(collective, "exposed_us");
  }
  document.addTable("communication",
                    {"kind", "over", "count", "bytes", "estimate_us", "time_us", "exposed_us"});
  for (const auto &[key, sum] : sums)
    document.addRow({key.first, key.second, sum.count, bytesCell(sum.bytes),
                     numberCell(sum.estimate, 0), numberCell(sum.time, 0),
                     numberCell(sum.exposed, 0)});
}

/// The first columns of tables of collectives: id, kind, over, bytes, times and time_us.
static std::vector<Cell> makeRow(const Json &collective, std::initializer_list<Cell> more) {
  std::vector<Cell> row = {getInteger(collective, "id"), getText(collective, "kind"),
                           getText(collective, "axes"),  bytesCell(getSize(collective, "bytes")),
                           getTimes(collective),         usCell(collective, "time_us")};
  row.insert(row.end(), more);
  return row;
}

/// The step that hides most of a collective: "matmul 128x384x384 (/layer.2/MatMul)".
static std::string describeCover(const Json &collective) {
  const Json &beside = getList(collective, "hidden_behind");
  if (beside.empty())
    return "";
  std::string node = getText(beside.front(), "node");
  return getText(beside.front(), "op") + (node.empty() ? "" : " (" + node + ")");
}

/// Single collectives, the most exposed first.
static void addHeaviest(Document &document, const Json &report, bool forTools) {
  std::vector<Json> collectives = copyList(report, "collectives");
  std::erase_if(collectives, [](const Json &each) { return !has(each, "time_us"); });
  auto key = [](const Json &each) {
    return std::pair(getNumber(each, "exposed_us"), getNumber(each, "time_us"));
  };
  std::stable_sort(collectives.begin(), collectives.end(),
                   [&](const Json &a, const Json &b) { return key(a) > key(b); });
  if (!forTools)
    collectives.resize(std::min(collectives.size(), kMostCollectives));
  if (collectives.empty())
    return;
  PlaceColumns places(report);
  document.addTable("heaviest_collectives",
                    places.addColumns({"id", "kind", "over", "bytes", "times", "time_us",
                                       "exposed_us", "mostly_behind"},
                                      "onnx_node"));
  for (const Json &each : collectives)
    document.addRow(
        places.addCells(makeRow(each, {usCell(each, "exposed_us"), describeCover(each)}), each,
                        getText(each, "origin")));
}

/// Merges the same step of all layers into one row.
static void addCosts(Document &document, const Json &report, const std::vector<Json> &costs,
                     const PlaceColumns &places) {
  std::map<std::string, double> steps; // step time by program, in ms
  for (const Json &estimate : getList(report, "estimates"))
    steps[getProgram(estimate)] = getNumber(estimate, "step_ms");
  struct Row {
    std::string op, node, program;
    int64_t stage = 0;
    uint64_t times = 0;
    double ms = 0;
  };
  std::map<std::tuple<std::string, int64_t, std::string, std::string>, Row> sums;
  for (const Json &cost : costs) {
    std::string op = getText(cost, "op"), node = foldLayers(getText(cost, "node"));
    op.resize(std::min(op.size(), op.find(" #"))); // drops a collective's number
    std::string program = getProgram(cost);
    int64_t stage = getInteger(cost, "stage");
    Row &row = sums[{program, stage, op, node}];
    row.op = op;
    row.node = node;
    row.program = program;
    row.stage = stage;
    row.times += getTimes(cost);
    row.ms += getNumber(cost, "ms");
  }
  std::vector<Row> rows;
  for (auto &[key, row] : sums)
    rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row &a, const Row &b) { return a.ms > b.ms; });
  rows.resize(std::min(rows.size(), kMostCosts));
  document.addTable("largest_costs",
                    places.addColumns({"op", "times", "ms", "percent"}, "onnx_node"));
  for (const Row &row : rows)
    document.addRow(places.addCells(
        {row.op, row.times, numberCell(row.ms, 3), percent(row.ms, steps[row.program])},
        row.program, row.stage, row.node));
}

/// Adds lines of the compiler without duplicates, which specialisations may repeat; for people,
/// also one for all layers.
static void addLines(Document &document, const Json &report, const char *list, const char *line,
                     bool forTools) {
  if (getList(report, list).empty())
    return;
  document.addTable(list, {line});
  std::set<std::string> listed;
  std::vector<std::string> lines;
  for (const Json &each : getList(report, list))
    if (std::string text = each.is_string() ? each.get<std::string>() : each.dump();
        listed.insert(text).second)
      lines.push_back(std::move(text));
  for (const std::string &text : forTools ? lines : foldLines(lines))
    document.addRow({text});
}

Document gridloom::rt::explainPlan(const Json &report, bool forTools) {
  Document document;
  for (const char *name : {"model", "mesh", "target", "strategy"})
    addText(document, name, getText(report, name));
  std::vector<PlanCandidate> candidates = readCandidates(report);
  addText(document, "why", explainChoice(report, candidates));
  addText(document, "bound", describeBound(report));
  addText(document, "bound_of_all", describeLeast(report));
  addMemory(document, getField(report, "memory"));
  addEstimate(document, report);
  addCandidates(document, candidates, forTools ? candidates.size() : kMostCandidates);
  addCommunication(document, report);
  addHeaviest(document, report, forTools);
  addCosts(document, report, copyList(report, "costs"), PlaceColumns(report));
  addLines(document, report, "warnings", "warning", forTools);
  addLines(document, report, "remarks", "remark", forTools);
  return document;
}

//===----------------------------------------------------------------------===//
// A value
//===----------------------------------------------------------------------===//

/// Throws that there is no such value, with similar names.
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

Document gridloom::rt::explainValue(const Json &report, const std::string &name) {
  Document document;
  document.addTable("values", {"name", "made_by", "type", "sharding", "decided_by"});
  std::set<std::string> rows, similar;
  for (const Json &value : getList(report, "values")) {
    std::string known = getText(value, "name");
    if (known.find(name) != std::string::npos)
      similar.insert(known);
    std::string op = getText(value, "op"), type = getText(value, "type");
    std::string sharding = shortenSharding(getText(value, "sharding"));
    std::string origin = getText(value, "origin");
    // One node may become several operations; list equal ones once.
    if (known == name && rows.insert(op + type + sharding + origin).second)
      document.addRow({known, op, type, sharding, origin});
  }
  if (rows.empty())
    refuseValue(name, similar);
  PlaceColumns places(report);
  document.addTable("its_collectives", places.addColumns({"id", "kind", "over", "bytes", "times",
                                                          "time_us", "exposed_us"},
                                                         "because"));
  for (const Json &each : getList(report, "collectives"))
    if (getText(each, "origin") == name)
      document.addRow(places.addCells(makeRow(each, {usCell(each, "exposed_us")}), each,
                                      getText(each, "because")));
  return document;
}

//===----------------------------------------------------------------------===//
// A collective
//===----------------------------------------------------------------------===//

static Document describeCollective(const Json &collective) {
  Document document;
  document.addField("collective", getInteger(collective, "id"));
  document.addField("kind", getText(collective, "kind"));
  addText(document, "over", getText(collective, "axes"));
  document.addField("ranks", getInteger(collective, "group"));
  document.addField("bytes", bytesCell(getSize(collective, "bytes")));
  if (has(collective, "times"))
    document.addField("times", getInteger(collective, "times"));
  for (const char *name : {"entry", "dims", "stage"})
    addText(document, name, getText(collective, name));
  addText(document, "onnx_node", getText(collective, "origin"));
  addText(document, "because", getText(collective, "because"));
  document.addField("estimate", numberCell(getNumber(collective, "estimate_us"), 1, "us"));
  if (!has(collective, "time_us"))
    return document;
  double time = getNumber(collective, "time_us"), exposed = getNumber(collective, "exposed_us");
  document.addField("time_us", numberCell(time, 1));
  document.addField("exposed_us", numberCell(exposed, 1));
  document.addField("hidden_percent", percent(time - exposed, time));
  if (getNumber(collective, "waiting_us") > 0)
    document.addField("waiting_us", usCell(collective, "waiting_us"));
  document.addTable("hidden_behind", {"op", "us", "onnx_node"});
  for (const Json &beside : getList(collective, "hidden_behind"))
    document.addRow({getText(beside, "op"), usCell(beside, "us"), getText(beside, "node")});
  return document;
}

Document gridloom::rt::explainCollective(const Json &report, int64_t id) {
  const Json &collectives = getList(report, "collectives");
  for (const Json &collective : collectives)
    if (has(collective, "id") && getInteger(collective, "id") == id)
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

static void addTransfers(Document &document, const Json &report, int64_t number) {
  std::vector<Json> transfers = copyList(report, "collectives");
  std::erase_if(transfers, [&](const Json &each) {
    std::string kind = getText(each, "kind");
    return getInteger(each, "stage") != number || (kind != "send" && kind != "recv");
  });
  std::stable_sort(transfers.begin(), transfers.end(), [](const Json &a, const Json &b) {
    return getNumber(a, "waiting_us") > getNumber(b, "waiting_us");
  });
  PlaceColumns places(report, /*ofOneStage=*/true);
  document.addTable("transfers", places.addColumns({"id", "kind", "peer", "bytes", "times",
                                                    "time_us", "waiting_us"},
                                                   "onnx_node"));
  for (const Json &each : transfers)
    document.addRow(places.addCells(makeRow(each, {usCell(each, "waiting_us")}), each,
                                    getText(each, "origin")));
}

/// The stage's rows in the report, one per program. Throws InvalidArgument if there are none. Adds
/// to `loads` each stage's computation over all programs, in milliseconds.
static std::vector<Json> findStage(const Json &report, int64_t number,
                                   std::map<int64_t, double> &loads) {
  std::vector<Json> own;
  for (const Json &stage : getList(report, "stages")) {
    int64_t n = getInteger(stage, "stage");
    loads[n] += getNumber(stage, "compute_ms");
    if (n == number)
      own.push_back(stage);
  }
  if (loads.empty())
    throw Error(ErrorCode::InvalidArgument,
                "the report has no stages; compile the plan again with this version");
  if (own.empty())
    throw Error(ErrorCode::InvalidArgument, "there is no stage " + std::to_string(number) +
                                                ": stages are numbered 0 to " +
                                                std::to_string(loads.rbegin()->first));
  return own;
}

Document gridloom::rt::explainStage(const Json &report, int64_t number) {
  std::map<int64_t, double> loads;
  std::vector<Json> own = findStage(report, number, loads);
  Document document;
  document.addField("stage", number);
  auto busiest = std::max_element(loads.begin(), loads.end(),
                                  [](const auto &a, const auto &b) { return a.second < b.second; });
  document.addField("busiest_stage", busiest->first);
  document.addField("percent_of_its_load", percent(loads[number], busiest->second));
  addMemory(document, own.front());
  document.addTable("load", {"entry", "dims", "compute_ms", "comm_ms", "exposed_ms", "step_ms",
                             "bubble_percent"});
  for (const Json &stage : own)
    document.addRow(
        {getText(stage, "entry"), getText(stage, "dims"), timeCell(getNumber(stage, "compute_ms")),
         timeCell(getNumber(stage, "comm_ms")), timeCell(getNumber(stage, "exposed_ms")),
         timeCell(getNumber(stage, "step_ms")), numberCell(100 * getNumber(stage, "bubble"), 0)});
  if (loads.size() > 1)
    addTransfers(document, report, number);
  std::vector<Json> costs = copyList(report, "costs");
  std::erase_if(costs, [&](const Json &cost) { return getInteger(cost, "stage") != number; });
  addCosts(document, report, costs, PlaceColumns(report, /*ofOneStage=*/true));
  return document;
}
