//===- Document.h - output of a verb as text or JSON ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_DOCUMENT_H
#define GRIDLOOM_SUPPORT_DOCUMENT_H

#include <nlohmann/json.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace gridloom {

/// A value for tools, and its text for people if that differs.
struct Cell {
  nlohmann::ordered_json value;
  std::string text;    // empty: the value's own
  bool isList = false; // its text may be shortened to the first elements
  template <typename T> Cell(const T &value) : value(value) {}
  Cell(nlohmann::ordered_json value, std::string text)
      : value(std::move(value)), text(std::move(text)) {}
};

/// 34225920 as "32.6 MiB".
Cell bytesCell(uint64_t bytes);
/// 23440896 as "23.4 M".
Cell countCell(int64_t count);
/// Names: for tools as "a b", for people as "a, b".
Cell listCell(const std::vector<std::string> &names);
/// A number with `digits` after the point, and a unit.
Cell numberCell(double value, int digits, const std::string &unit = "");

/// Named values and tables, written once for both readers.
class Document {
public:
  /// `name` is the key for tools; people read it with spaces for underscores.
  void addField(const std::string &name, Cell value);
  /// Starts a table; rows have as many cells as `columns`.
  void addTable(const std::string &name, std::vector<std::string> columns);
  void addRow(std::vector<Cell> cells);
  /// Tables of text are made to fit `columns` of a terminal; 0 leaves them as they are.
  void write(std::ostream &out, bool asJson, size_t columns = 0) const;

private:
  struct Table {
    std::string name;
    std::vector<std::string> columns;
    std::vector<std::vector<Cell>> rows;
  };
  void writeText(std::ostream &out, size_t width) const;
  /// Returns whether the table had to be made narrower.
  bool writeTable(std::ostream &out, const Table &table, size_t width) const;

  std::vector<std::pair<std::string, Cell>> fields;
  std::vector<Table> tables;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_DOCUMENT_H
