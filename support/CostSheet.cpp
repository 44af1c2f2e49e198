//===- CostSheet.cpp - compare what plans cost ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/CostSheet.h"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace gridloom;

namespace {

struct Sum {
  int64_t times = 0;
  double ms = 0;
};

/// Sums of both plans by some text.
using Sums = std::map<std::string, std::pair<Sum, Sum>>;

} // namespace

double CostSheet::getStepMs() const {
  double sum = 0;
  for (const Program &program : programs)
    sum += program.stepMs;
  return sum;
}

std::string gridloom::foldLayers(const std::string &node) {
  std::string first = node.substr(0, node.find(" + ")), folded;
  // A number between separators counts layers.
  for (size_t i = 0; i < first.size();) {
    size_t end = first.find_first_not_of("0123456789", i);
    end = end == std::string::npos ? first.size() : end;
    auto isBorder = [&](size_t at) {
      return at >= first.size() || first[at] == '/' || first[at] == '.';
    };
    if (end > i && i > 0 && isBorder(i - 1) && isBorder(end)) {
      folded += '*';
      i = end;
      continue;
    }
    end = std::max(end, i + 1);
    folded += first.substr(i, end - i);
    i = end;
  }
  return folded;
}

std::string gridloom::getScope(const std::string &node) {
  std::string folded = foldLayers(node);
  size_t slash = folded.rfind('/');
  return slash != std::string::npos && slash > 0 ? folded.substr(0, slash) : folded;
}

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
        sum.times += part.times;
        sum.ms += part.ms;
      }
  };
  add(first, &std::pair<Sum, Sum>::first);
  add(second, &std::pair<Sum, Sum>::second);
  return sums;
}

/// Differences below a ten-thousandth of a step come from rounding, and nobody looks for them.
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

/// "all_reduce over model", "send to stage 1", "matmul"
static std::string getKind(const CostSheet::Part &part) {
  const char *joint = part.kind == "send" ? " to " : part.kind == "recv" ? " from " : " over ";
  return part.over.empty() ? part.kind : part.kind + joint + part.over;
}

bool gridloom::addCostChanges(Document &document, const CostSheet &first, const CostSheet &second,
                              const CostNames &names, size_t most) {
  double stepMs = std::max(first.getStepMs(), second.getStepMs());
  auto getPlace = [](const CostSheet::Part &part) { return getScope(part.node); };
  auto getCollective = [](const CostSheet::Part &part) {
    return part.over.empty() ? "" : getKind(part) + " for " + foldLayers(part.node);
  };
  bool differs = addPrograms(document, first, second, names, most);
  differs |= addSums(document, "kinds_of_steps", "kind", sumUp(first, second, getKind), names,
                     stepMs, most);
  differs |=
      addSums(document, "scopes", "scope", sumUp(first, second, getPlace), names, stepMs, most);
  differs |= addSums(document, "collectives", "collective", sumUp(first, second, getCollective),
                     names, stepMs, most);
  return addMemory(document, first, second, names) || differs;
}
