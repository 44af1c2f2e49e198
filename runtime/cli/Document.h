//===- Document.h - what a verb tells, as text or JSON ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_DOCUMENT_H
#define GRIDLOOM_RUNTIME_CLI_DOCUMENT_H

#include <nlohmann/json.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace gridloom::rt {

/// A value for tools, and how people read it where that differs.
struct Cell {
  nlohmann::ordered_json value;
  std::string text; // empty: the value's own
  template <typename T> Cell(T value) : value(std::move(value)) {}
  Cell(nlohmann::ordered_json value, std::string text)
      : value(std::move(value)), text(std::move(text)) {}
};

/// 34225920 as "32.6 MiB".
Cell bytesCell(uint64_t bytes);
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
  void write(std::ostream &out, bool asJson) const;

private:
  struct Table {
    std::string name;
    std::vector<std::string> columns;
    std::vector<std::vector<Cell>> rows;
  };
  void writeTable(std::ostream &out, const Table &table) const;

  std::vector<std::pair<std::string, Cell>> fields;
  std::vector<Table> tables;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_DOCUMENT_H
