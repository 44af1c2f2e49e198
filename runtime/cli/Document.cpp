//===- Document.cpp - what a verb tells, as text or JSON ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Document.h"

#include "runtime/core/MemoryNeeds.h"

#include <algorithm>
#include <cstdio>

using namespace gridloom::rt;
using nlohmann::ordered_json;

Cell gridloom::rt::bytesCell(uint64_t bytes) { return {bytes, formatBytes(bytes, "B")}; }

Cell gridloom::rt::numberCell(double value, int digits, const std::string &unit) {
  char text[64];
  snprintf(text, sizeof text, "%.*f%s%s", digits, value, unit.empty() ? "" : " ", unit.c_str());
  return {value, text};
}

static std::string toText(const Cell &cell) {
  if (!cell.text.empty())
    return cell.text;
  if (cell.value.is_string())
    return cell.value.get<std::string>();
  if (!cell.value.is_array())
    return cell.value.is_null() ? "" : cell.value.dump();
  std::string text;
  for (const ordered_json &element : cell.value)
    text += (text.empty() ? "" : ", ") + toText(Cell(element));
  return text;
}

void Document::addField(const std::string &name, Cell value) {
  fields.emplace_back(name, std::move(value));
}

void Document::addTable(const std::string &name, std::vector<std::string> columns) {
  tables.push_back({name, std::move(columns), {}});
}

void Document::addRow(std::vector<Cell> cells) { tables.back().rows.push_back(std::move(cells)); }

static std::string toHeading(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

void Document::writeTable(std::ostream &out, const Table &table) const {
  size_t numColumns = table.columns.size();
  std::vector<size_t> widths(numColumns);
  std::vector<bool> isRight(numColumns, true); // columns of numbers
  std::vector<std::vector<std::string>> lines{{}};
  for (size_t c = 0; c < numColumns; ++c)
    lines[0].push_back(toHeading(table.columns[c]));
  for (const std::vector<Cell> &row : table.rows) {
    lines.emplace_back();
    for (size_t c = 0; c < numColumns; ++c) {
      lines.back().push_back(toText(row[c]));
      isRight[c] = isRight[c] && (row[c].value.is_number() || row[c].value.is_null());
    }
  }
  for (const std::vector<std::string> &line : lines)
    for (size_t c = 0; c < numColumns; ++c)
      widths[c] = std::max(widths[c], line[c].size());
  for (const std::vector<std::string> &line : lines) {
    std::string text = " ";
    for (size_t c = 0; c < numColumns; ++c) {
      std::string pad(widths[c] - line[c].size(), ' ');
      text += " " + (isRight[c] ? pad + line[c] : line[c] + pad) + " ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << "\n";
  }
}

void Document::write(std::ostream &out, bool asJson) const {
  if (asJson) {
    ordered_json object = ordered_json::object();
    for (const auto &[name, cell] : fields)
      object[name] = cell.value;
    for (const Table &table : tables) {
      ordered_json list = ordered_json::array();
      for (const std::vector<Cell> &row : table.rows) {
        ordered_json entry = ordered_json::object();
        for (size_t c = 0; c < table.columns.size(); ++c)
          entry[table.columns[c]] = row[c].value;
        list.push_back(std::move(entry));
      }
      object[table.name] = std::move(list);
    }
    out << object.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return;
  }
  size_t width = 0;
  for (const auto &[name, cell] : fields)
    width = std::max(width, name.size());
  for (const auto &[name, cell] : fields)
    out << toHeading(name) << std::string(width + 2 - name.size(), ' ') << toText(cell) << "\n";
  for (size_t t = 0; t < tables.size(); ++t) {
    bool isAlone = fields.empty() && tables.size() == 1;
    if (!isAlone)
      out << (t || !fields.empty() ? "\n" : "") << toHeading(tables[t].name)
          << (tables[t].rows.empty() ? ": none" : "") << "\n";
    else if (tables[t].rows.empty())
      out << "no " << toHeading(tables[t].name) << "\n";
    if (!tables[t].rows.empty())
      writeTable(out, tables[t]);
  }
}
