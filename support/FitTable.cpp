//===- FitTable.cpp - tables no wider than a terminal ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/FitTable.h"

#include <algorithm>
#include <cstddef>

using namespace gridloom;

/// Columns of text are not made narrower than this.
static constexpr size_t kNarrowest = 10;

static bool beginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

size_t gridloom::getTextWidth(const std::string &text) {
  return size_t(std::count_if(text.begin(), text.end(), beginsCharacter));
}

/// The byte at which character `index` of `text` begins.
static size_t findCharacter(const std::string &text, size_t index) {
  for (size_t at = 0; at < text.size(); ++at)
    if (beginsCharacter(text[at]) && index-- == 0)
      return at;
  return text.size();
}

static std::string shortenName(const std::string &text, size_t room) {
  size_t length = getTextWidth(text);
  if (length <= room || room < 3)
    return text;
  // The end of a node's path says more than its beginning.
  size_t tail = (room - 1) * 2 / 3, head = room - 1 - tail;
  return text.substr(0, findCharacter(text, head)) + "…" +
         text.substr(findCharacter(text, length - tail));
}

std::string gridloom::shorten(const std::string &text, const std::string &separator, size_t room) {
  if (getTextWidth(text) <= room)
    return text;
  std::vector<size_t> ends; // of the first part, of the first two, ...
  for (size_t at = text.find(separator); at != std::string::npos; at = text.find(separator, at + 1))
    ends.push_back(at);
  auto mark = [&](size_t parts) { return " +" + std::to_string(ends.size() + 1 - parts); };
  for (size_t parts = ends.size(); parts > 0; --parts) {
    std::string first = text.substr(0, ends[parts - 1]);
    if (getTextWidth(first) + mark(parts).size() <= room)
      return first + mark(parts);
  }
  if (ends.empty() || room < mark(1).size() + 3)
    return shortenName(text, room);
  return shortenName(text.substr(0, ends[0]), room - mark(1).size()) + mark(1);
}

static size_t getColumnWidth(const TextTable &table, size_t column) {
  size_t width = 0;
  for (const std::vector<std::string> &line : table.lines)
    width = std::max(width, getTextWidth(line[column]));
  return width;
}

size_t gridloom::getTableWidth(const TextTable &table) {
  size_t width = 0;
  for (size_t c = 0; c < table.isRight.size(); ++c)
    width += getColumnWidth(table, c) + 2;
  return width;
}

/// Removes the columns that are equal in every row, but never all. Returns their contents.
static std::vector<std::string> removeConstants(TextTable &table) {
  std::vector<std::string> said;
  if (table.lines.size() < 3)
    return said;
  for (size_t c = table.isRight.size(); c-- > 0 && table.isRight.size() > 1;) {
    const std::string value = table.lines[1][c];
    if (!std::all_of(table.lines.begin() + 1, table.lines.end(),
                     [&](const auto &line) { return line[c] == value; }))
      continue;
    if (!value.empty())
      said.insert(said.begin(), table.lines[0][c] + " " + value);
    for (std::vector<std::string> &line : table.lines)
      line.erase(line.begin() + static_cast<std::ptrdiff_t>(c));
    table.isRight.erase(table.isRight.begin() + static_cast<std::ptrdiff_t>(c));
    table.isList.erase(table.isList.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return said;
}

std::vector<std::string> gridloom::fitTable(TextTable &table, size_t width) {
  std::vector<std::string> said = removeConstants(table);
  std::vector<size_t> widths;
  for (size_t c = 0; c < table.isRight.size(); ++c)
    widths.push_back(getColumnWidth(table, c));
  // The first text names the row: it is shortened when nothing else can be.
  size_t name =
      size_t(std::find(table.isRight.begin(), table.isRight.end(), false) - table.isRight.begin());
  for (size_t total = getTableWidth(table); total > width; --total) {
    size_t widest = name;
    for (size_t c = name + 1; c < widths.size(); ++c)
      if (!table.isRight[c] && widths[c] > kNarrowest &&
          (widest == name || widths[c] > widths[widest]))
        widest = c;
    if (widest == widths.size() || widths[widest] <= kNarrowest)
      break;
    --widths[widest];
  }
  for (std::vector<std::string> &line : table.lines)
    for (size_t c = 0; c < widths.size(); ++c)
      line[c] = shorten(line[c], table.isList[c] ? ", " : " + ", widths[c]);
  return said;
}
