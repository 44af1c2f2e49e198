//===- Document.cpp - output of a verb as text or JSON --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Document.h"

#include "support/FitTable.h"
#include "support/Text.h"

#include <algorithm>
#include <cstdio>

using namespace gridloom;
using nlohmann::ordered_json;

Cell gridloom::bytesCell(uint64_t bytes) { return {bytes, formatBytes(bytes, "B")}; }

Cell gridloom::countCell(int64_t count) {
  const char *units[] = {"", " k", " M", " G", " T", " P"};
  double size = double(count);
  size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(units); ++unit)
    size /= 1000;
  char text[32];
  snprintf(text, sizeof text, "%.*f%s", unit ? 1 : 0, size, units[unit]);
  return {count, text};
}

Cell gridloom::listCell(const std::vector<std::string> &names) {
  std::string value, text;
  for (const std::string &name : names) {
    value += (value.empty() ? "" : " ") + name;
    text += (text.empty() ? "" : ", ") + makePrintable(name);
  }
  Cell cell(value, text);
  cell.isList = true;
  return cell;
}

Cell gridloom::numberCell(double value, int digits, const std::string &unit) {
  char text[64];
  snprintf(text, sizeof text, "%.*f%s%s", digits, value, unit.empty() ? "" : " ", unit.c_str());
  return {value, text};
}

static std::string toText(const Cell &cell) {
  if (!cell.text.empty())
    return cell.text;
  if (cell.value.is_string())
    return makePrintable(cell.value.get<std::string>());
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

/// "  in every row: stage 0, entry main", in lines of at most `width` columns.
static void writeAlike(std::ostream &out, const std::vector<std::string> &alike, size_t width) {
  std::string line = "  in every row:";
  size_t room = std::max<size_t>(width, 8) - 5;
  for (size_t i = 0; i < alike.size(); ++i) {
    std::string item = shorten(alike[i], ", ", room) + (i + 1 < alike.size() ? "," : "");
    if (getTextWidth(line) + 1 + getTextWidth(item) > width) {
      out << line << "\n";
      line = "   ";
    }
    line += " " + item;
  }
  if (!alike.empty())
    out << line << "\n";
}

bool Document::writeTable(std::ostream &out, const Table &table, size_t width) const {
  size_t numColumns = table.columns.size();
  TextTable text{{{}}, std::vector<bool>(numColumns, true), std::vector<bool>(numColumns)};
  for (const std::string &column : table.columns)
    text.lines[0].push_back(toHeading(column));
  for (const std::vector<Cell> &row : table.rows) {
    text.lines.emplace_back();
    for (size_t c = 0; c < numColumns; ++c) {
      text.lines.back().push_back(toText(row[c]));
      text.isRight[c] = text.isRight[c] && (row[c].value.is_number() || row[c].value.is_null());
      text.isList[c] = text.isList[c] || row[c].isList || row[c].value.is_array();
    }
  }
  bool isTooWide = width != 0 && getTableWidth(text) > width;
  if (isTooWide)
    writeAlike(out, fitTable(text, width), width);

  std::vector<size_t> widths(text.isRight.size());
  for (const std::vector<std::string> &line : text.lines)
    for (size_t c = 0; c < widths.size(); ++c)
      widths[c] = std::max(widths[c], getTextWidth(line[c]));
  for (const std::vector<std::string> &line : text.lines) {
    std::string padded;
    for (size_t c = 0; c < widths.size(); ++c) {
      std::string pad(widths[c] - getTextWidth(line[c]), ' ');
      padded += "  " + (text.isRight[c] ? pad + line[c] : line[c] + pad);
    }
    padded.erase(padded.find_last_not_of(' ') + 1);
    out << padded << "\n";
  }
  return isTooWide;
}

void Document::write(std::ostream &out, bool asJson, size_t columns) const {
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
  writeText(out, columns);
}

void Document::writeText(std::ostream &out, size_t columns) const {
  size_t width = 0;
  for (const auto &[name, cell] : fields)
    width = std::max(width, name.size());
  for (const auto &[name, cell] : fields)
    out << toHeading(name) << std::string(width + 2 - name.size(), ' ') << toText(cell) << "\n";
  bool wasTooWide = false;
  for (size_t t = 0; t < tables.size(); ++t) {
    bool isAlone = fields.empty() && tables.size() == 1;
    if (!isAlone)
      out << (t || !fields.empty() ? "\n" : "") << toHeading(tables[t].name)
          << (tables[t].rows.empty() ? ": none" : "") << "\n";
    else if (tables[t].rows.empty())
      out << "no " << toHeading(tables[t].name) << "\n";
    if (!tables[t].rows.empty())
      wasTooWide |= writeTable(out, tables[t], columns);
  }
  if (wasTooWide)
    out << "\nmade to fit " << columns << " columns; all of it: --wide or --json\n";
}
