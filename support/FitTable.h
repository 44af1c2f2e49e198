//===- FitTable.h - tables no wider than a terminal -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_FITTABLE_H
#define GRIDLOOM_SUPPORT_FITTABLE_H

#include <string>
#include <vector>

namespace gridloom {

/// A table as text: the first line holds the headings.
struct TextTable {
  std::vector<std::vector<std::string>> lines;
  std::vector<bool> isRight; ///< columns of numbers
  std::vector<bool> isList;  ///< columns of lists, "a, b"; others hold names, "a" or "a + b"
};

/// The width of `text` in a terminal: one column for each character of UTF-8.
size_t getTextWidth(const std::string &text);

/// The width of the table, with two spaces between columns.
size_t getTableWidth(const TextTable &table);

/// Shortens `text` to `room` columns: several parts to the first ones and the number of the others
/// ("a +1"), a single one to its two ends ("/enc…/MatMul").
std::string shorten(const std::string &text, const std::string &separator, size_t room);

/// Makes a table that is too wide fit `width` columns, if it can: removes columns that are equal in
/// all rows, then shortens texts, the widest column first and the first one, which names the rows,
/// last. Returns the contents of removed columns, e.g. "stage 0" and "entry main", except empty
/// ones.
std::vector<std::string> fitTable(TextTable &table, size_t width);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_FITTABLE_H
