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

/// `text` in `room` columns: of several parts the first and how many more there are ("a +1"), of
/// one its two ends ("/enc…/MatMul").
std::string shorten(const std::string &text, const std::string &separator, size_t room);

/// Makes a table that is too wide fit `width` columns, if it can: columns that say the same in all
/// rows leave it, then texts are shortened, the widest column first and the first of the table,
/// which names its rows, last. Returns what the columns that left said, e.g. "stage 0" and "entry
/// main"; those that said nothing are not mentioned.
std::vector<std::string> fitTable(TextTable &table, size_t width);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_FITTABLE_H
