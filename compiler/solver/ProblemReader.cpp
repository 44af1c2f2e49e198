//===- ProblemReader.cpp - problem.json and problem.json.gz ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/ProblemReader.h"

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>

using namespace gridloom::solver;

namespace {

/// Fills the tables from the parser's events. A tree of the document would need gigabytes for a
/// problem of 10^6 edges.
class ProblemBuilder : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit ProblemBuilder(Problem &problem) : problem(problem) {}

  bool null() override { return refuse("is null, not a number"); }
  bool boolean(bool) override { return refuse("is true or false, not a number"); }
  bool number_integer(int64_t value) override { return addNumber(value); }
  bool number_unsigned(uint64_t value) override {
    return addNumber(int64_t(std::min<uint64_t>(value, INT64_MAX)));
  }
  bool number_float(double value, const std::string &text) override {
    if (!std::isfinite(value) || value != std::floor(value) || value < 0)
      return refuse("is " + text + ", not a whole number");
    return addNumber(value < 9e18 ? int64_t(value) : INT64_MAX);
  }
  bool string(std::string &) override { return refuse("is a string, not a number"); }
  bool binary(nlohmann::json::binary_t &) override { return true; } // not in JSON

  bool start_object(size_t) override {
    if (isKnown())
      return refuse("is an object, not a number or a list");
    keys.emplace_back();
    return keys.size() <= 16 || fail("objects are nested more than 16 deep");
  }
  bool key(std::string &name) override {
    keys.back() = name;
    table = findTable();
    if (table != Table::None && wasSeen[size_t(table)])
      return fail(getName() + " is given twice");
    wasSeen[size_t(table)] = true;
    row = column = 0;
    return true;
  }
  bool end_object() override {
    keys.pop_back();
    table = keys.empty() ? Table::None : findTable();
    return true;
  }

  bool start_array(size_t) override {
    if (isKnown() && (table == Table::Limit || depthOfArrays >= 2))
      return refuse("holds an array too many");
    ++depthOfArrays;
    column = 0;
    return depthOfArrays <= 64 || fail("arrays are nested more than 64 deep");
  }
  bool end_array() override {
    --depthOfArrays;
    if (depthOfArrays != 1 || !isKnown())
      return true;
    if ((table == Table::Intervals || table == Table::EdgeNodes) && column != 2)
      return fail(getName() + "[" + std::to_string(row) + "] has " + std::to_string(column) +
                  " numbers; it must have 2");
    endRow();
    ++row;
    return true;
  }

  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &error) override {
    std::string what = error.what();
    size_t begin = what.find("] ");
    return fail("not valid JSON at byte " + std::to_string(position) + ": " +
                (begin == std::string::npos ? what : what.substr(begin + 2)));
  }

  std::string getFault() const {
    if (!fault.empty())
      return fault;
    for (size_t i = 1; i < std::size(names); ++i)
      if (!wasSeen[i])
        return std::string("problem.") + names[i] + " is missing";
    return "";
  }

private:
  enum class Table { None, Intervals, Costs, Usages, EdgeNodes, EdgeCosts, Limit };
  static constexpr const char *names[] = {
      "",           "nodes.intervals", "nodes.costs", "nodes.usages", "edges.nodes", "edges.costs",
      "usage_limit"};

  Table findTable() const {
    if (keys.size() < 2 || keys.size() > 3 || keys[0] != "problem")
      return Table::None;
    std::string path = keys[1] + (keys.size() == 3 ? "." + keys[2] : "");
    for (size_t i = 1; i < std::size(names); ++i)
      if (path == names[i])
        return Table(i);
    return Table::None;
  }
  bool isKnown() const { return table != Table::None; }
  std::string getName() const { return names[size_t(table)]; }

  bool addNumber(int64_t value) {
    if (!isKnown())
      return true;
    if (table == Table::Limit) {
      problem.usageLimit = value;
      return true;
    }
    if (depthOfArrays != 2)
      return refuse("is a number where a list is expected");
    switch (table) {
    case Table::Costs:
      problem.costs.append(value);
      break;
    case Table::Usages:
      problem.usages.append(value);
      break;
    case Table::EdgeCosts:
      problem.edgeCosts.append(value);
      break;
    case Table::EdgeNodes:
      if (value < 0 || value > UINT32_MAX)
        return refuse("is " + std::to_string(value) + ", not the index of a node");
      [[fallthrough]];
    default:
      if (column < 2)
        pair[column] = value;
    }
    ++column;
    return true;
  }

  void endRow() {
    switch (table) {
    case Table::Intervals:
      problem.intervals.push_back({pair[0], pair[1]});
      break;
    case Table::EdgeNodes:
      problem.edges.push_back({uint32_t(pair[0]), uint32_t(pair[1])});
      break;
    case Table::Costs:
      problem.costs.endRow();
      break;
    case Table::Usages:
      problem.usages.endRow();
      break;
    case Table::EdgeCosts:
      problem.edgeCosts.endRow();
      break;
    default:
      break;
    }
  }

  bool fail(std::string text) {
    fault = std::move(text);
    return false;
  }
  /// Fails for a value in a table; values elsewhere are ignored.
  bool refuse(const std::string &what) {
    if (!isKnown())
      return true;
    std::string place = getName();
    if (depthOfArrays >= 1)
      place += "[" + std::to_string(row) + "]";
    if (depthOfArrays >= 2)
      place += "[" + std::to_string(column) + "]";
    return fail(place + " " + what);
  }

  Problem &problem;
  std::vector<std::string> keys;
  Table table = Table::None;
  bool wasSeen[std::size(names)] = {};
  size_t depthOfArrays = 0, row = 0, column = 0;
  int64_t pair[2] = {};
  std::string fault;
};

} // namespace

std::string gridloom::solver::parseProblem(std::string_view text, Problem &problem) {
  problem = {};
  ProblemBuilder builder(problem);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  std::string fault = builder.getFault();
  return fault.empty() ? findFault(problem) : fault;
}

/// The file's bytes, decompressed; on failure sets `fault`.
static std::string readBytes(const std::string &path, std::string &fault) {
  // A few kilobytes of gzip may expand to terabytes.
  constexpr size_t mostBytes = size_t(8) << 30;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    fault = "is a folder";
    return "";
  }
  errno = 0;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) {
    fault = std::string("cannot be opened: ") + strerror(errno ? errno : ENOMEM);
    return "";
  }
  gzbuffer(file.get(), 1 << 20);
  std::string bytes;
  std::vector<char> buffer(1 << 20);
  int count = 0;
  while ((count = gzread(file.get(), buffer.data(), unsigned(buffer.size()))) > 0) {
    bytes.append(buffer.data(), size_t(count));
    if (bytes.size() > mostBytes) {
      fault = "holds more than 8 GiB";
      return "";
    }
  }
  int status = Z_OK;
  const char *text = gzerror(file.get(), &status);
  if (status == Z_BUF_ERROR)
    fault = "is a gzip file that was cut off";
  else if (status == Z_ERRNO)
    fault = std::string("cannot be read: ") + strerror(errno);
  else if (status != Z_OK)
    fault = std::string("is a damaged gzip file: ") + text;
  return bytes;
}

std::string gridloom::solver::readProblem(const std::string &path, Problem &problem) {
  std::string fault;
  std::string bytes = readBytes(path, fault);
  if (fault.empty())
    fault = bytes.empty() ? "is empty" : parseProblem(bytes, problem);
  return fault.empty() ? "" : path + ": " + fault;
}
