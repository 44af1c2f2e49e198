//===- CostSheet.cpp - compare what plans cost ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/CostSheet.h"

#include "support/Layers.h"
#include "support/LenientJson.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

using namespace gridloom;

namespace {

struct Sum {
  uint64_t times = 0; // which may wrap
  double ms = 0;
};

/// Sums of both plans, by a key.
using Sums = std::map<std::string, std::pair<Sum, Sum>>;

} // namespace

double CostSheet::getStepMs() const {
  double sum = 0;
  for (const Program &program : programs)
    sum += program.stepMs;
  return sum;
}

//===----------------------------------------------------------------------===//
// Of a report
//===----------------------------------------------------------------------===//

std::optional<CostSheet> gridloom::readCosts(const Json &report) {
  CostSheet sheet;
  for (const Json &each : getList(report, "estimates"))
    sheet.programs.push_back({nameProgram(getText(each, "entry"), getText(each, "dims")),
                              getNumber(each, "step_ms"), getNumber(each, "compute_ms"),
                              getNumber(each, "comm_ms"), getNumber(each, "exposed_ms"),
                              getNumber(each, "bubble")});
  const Json &costs = getField(report, "costs");
  if (sheet.programs.empty() || !costs.is_array())
    return std::nullopt;
  for (const Json &each : costs) {
    if (!getField(each, "kind").is_string())
      return std::nullopt;
    sheet.parts.push_back({nameProgram(getText(each, "entry"), getText(each, "dims")),
                           getText(each, "kind"), getText(each, "over"), getText(each, "node"),
                           getInteger(each, "times"), getNumber(each, "ms")});
  }
  const Json &memory = getField(report, "memory");
  for (auto [key, name] : {std::pair("total_bytes", "total"),
                           {"weights_bytes", "weights"},
                           {"states_bytes", "states"},
                           {"arena_bytes", "arena"},
                           {"registered_bytes", "registered"},
                           {"inputs_and_outputs_bytes", "inputs and outputs"}})
    if (getField(memory, key).is_number())
      sheet.memory[name] = getSize(memory, key);
  return sheet;
}

std::optional<CostSheet> gridloom::parseCosts(const std::string &report) {
  return readCosts(Json::parse(report, nullptr, /*allow_exceptions=*/false));
}

std::string gridloom::nameProgram(const std::string &entry, const std::string &dims) {
  return dims.empty() ? entry : entry + " " + dims;
}

std::string gridloom::nameKind(const std::string &kind, const std::string &over) {
  bool hasWord = over.starts_with("to ") || over.starts_with("from ");
  const char *joint = hasWord          ? " "
                      : kind == "send" ? " to "
                      : kind == "recv" ? " from "
                                       : " over ";
  return over.empty() ? kind : kind + joint + over;
}

//===----------------------------------------------------------------------===//
// Two plans
//===----------------------------------------------------------------------===//

/// To a tenth of a microsecond, as the simulator's times are printed.
static Cell timeCell(double ms) { return numberCell(ms, 4); }

/// "+0.0120", "-1.5000"
static Cell changeCell(double ms) {
  Cell cell = timeCell(ms);
  if (ms > 0)
    cell.text = "+" + cell.text;
  return cell;
}

static Sums sumUp(const CostSheet &first, const CostSheet &second,
                  const std::function<std::string(const CostSheet::Part &)> &key) {
  Sums sums;
  auto add = [&](const CostSheet &sheet, Sum std::pair<Sum, Sum>::*side) {
    for (const CostSheet::Part &part : sheet.parts)
      if (std::string text = key(part); !text.empty()) {
        Sum &sum = sums[text].*side;
        sum.times += uint64_t(part.times);
        sum.ms += part.ms;
      }
  };
  add(first, &std::pair<Sum, Sum>::first);
  add(second, &std::pair<Sum, Sum>::second);
  return sums;
}

/// Differences below a ten-thousandth of a step are rounding.
static bool isChange(double ms, double stepMs) { return std::abs(ms) > 1e-4 * stepMs; }

static bool addSums(Document &document, const std::string &table, const std::string &column,
                    const Sums &sums, const CostNames &names, double stepMs, size_t most) {
  std::vector<std::pair<double, Sums::const_iterator>> rows;
  for (auto sum = sums.begin(); sum != sums.end(); ++sum) {
    const auto &[before, after] = sum->second;
    if (isChange(after.ms - before.ms, stepMs) || before.times != after.times)
      rows.emplace_back(std::abs(after.ms - before.ms), sum);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto &a, const auto &b) { return a.first > b.first; });
  rows.resize(std::min(rows.size(), most));
  if (rows.empty())
    return false;
  document.addTable(table, {column, names.first + "_times", names.first + "_ms",
                            names.second + "_times", names.second + "_ms", "change_ms"});
  for (const auto &[size, sum] : rows) {
    const auto &[before, after] = sum->second;
    document.addRow({sum->first, before.times, timeCell(before.ms), after.times, timeCell(after.ms),
                     changeCell(after.ms - before.ms)});
  }
  return true;
}

static bool addPrograms(Document &document, const CostSheet &first, const CostSheet &second,
                        const CostNames &names, size_t most) {
  struct Row {
    std::string program, time;
    double before, after;
  };
  std::vector<Row> rows;
  double stepMs = std::max(first.getStepMs(), second.getStepMs());
  for (const CostSheet::Program &before : first.programs)
    for (const CostSheet::Program &after : second.programs)
      if (before.name == after.name) {
        rows.push_back({before.name, "step", before.stepMs, after.stepMs});
        rows.push_back({before.name, "compute", before.computeMs, after.computeMs});
        rows.push_back({before.name, "communication", before.commMs, after.commMs});
        rows.push_back({before.name, "communication exposed", before.exposedMs, after.exposedMs});
        rows.push_back(
            {before.name, "bubble", before.bubble * before.stepMs, after.bubble * after.stepMs});
      }
  std::erase_if(rows, [&](const Row &row) { return !isChange(row.after - row.before, stepMs); });
  rows.resize(std::min(rows.size(), most));
  if (rows.empty())
    return false;
  document.addTable("times",
                    {"program", "time", names.first + "_ms", names.second + "_ms", "change_ms"});
  for (const Row &row : rows)
    document.addRow({row.program, row.time, timeCell(row.before), timeCell(row.after),
                     changeCell(row.after - row.before)});
  return true;
}

static bool addMemory(Document &document, const CostSheet &first, const CostSheet &second,
                      const CostNames &names) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> terms;
  for (const auto &[term, bytes] : first.memory)
    terms[term].first = bytes;
  for (const auto &[term, bytes] : second.memory)
    terms[term].second = bytes;
  std::erase_if(terms, [](const auto &term) { return term.second.first == term.second.second; });
  if (terms.empty())
    return false;
  document.addTable("memory",
                    {"bytes", names.first + "_bytes", names.second + "_bytes", "change_bytes"});
  for (const auto &[term, bytes] : terms) {
    auto [before, after] = bytes;
    bool grows = after > before;
    Cell change(int64_t(after) - int64_t(before),
                (grows ? "+" : "-") + bytesCell(grows ? after - before : before - after).text);
    document.addRow({term, bytesCell(before), bytesCell(after), change});
  }
  return true;
}

/// The names of the programs that both plans have.
static std::set<std::string> findShared(const CostSheet &first, const CostSheet &second) {
  std::set<std::string> shared;
  for (const CostSheet::Program &before : first.programs)
    for (const CostSheet::Program &after : second.programs)
      if (before.name == after.name)
        shared.insert(before.name);
  return shared;
}

static CostSheet takePrograms(CostSheet sheet, const std::set<std::string> &names) {
  std::erase_if(sheet.programs,
                [&](const CostSheet::Program &program) { return !names.contains(program.name); });
  std::erase_if(sheet.parts,
                [&](const CostSheet::Part &part) { return !names.contains(part.program); });
  return sheet;
}

/// Lists the programs that only one plan has, whose times have no counterpart.
static bool addLonePrograms(Document &document, const CostSheet &first, const CostSheet &second,
                            const std::set<std::string> &shared, const CostNames &names) {
  if (shared.size() == first.programs.size() && shared.size() == second.programs.size())
    return false;
  document.addTable("programs_of_one_plan", {"program", "plan", "step_ms"});
  for (const auto &[sheet, plan] : {std::pair(&first, names.first), {&second, names.second}})
    for (const CostSheet::Program &program : sheet->programs)
      if (!shared.contains(program.name))
        document.addRow({program.name, plan, timeCell(program.stepMs)});
  return true;
}

bool gridloom::addCostChanges(Document &document, const CostSheet &first, const CostSheet &second,
                              const CostNames &names, size_t most) {
  std::set<std::string> shared = findShared(first, second);
  CostSheet before = takePrograms(first, shared), after = takePrograms(second, shared);
  double stepMs = std::max(before.getStepMs(), after.getStepMs());
  auto getKind = [](const CostSheet::Part &part) { return nameKind(part.kind, part.over); };
  auto getPlace = [](const CostSheet::Part &part) { return getScope(part.node); };
  auto getCollective = [&](const CostSheet::Part &part) {
    return part.over.empty() ? "" : getKind(part) + " for " + foldLayers(part.node);
  };
  bool differs = addLonePrograms(document, first, second, shared, names);
  differs |= addPrograms(document, before, after, names, most);
  differs |= addSums(document, "kinds_of_steps", "kind", sumUp(before, after, getKind), names,
                     stepMs, most);
  differs |=
      addSums(document, "scopes", "scope", sumUp(before, after, getPlace), names, stepMs, most);
  differs |= addSums(document, "collectives", "collective", sumUp(before, after, getCollective),
                     names, stepMs, most);
  return addMemory(document, first, second, names) || differs;
}
