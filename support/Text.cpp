//===- Text.cpp - names, sizes and commands as text -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

using namespace gridloom;

static constexpr char digits[] = "0123456789abcdef";

std::string gridloom::makePrintable(const std::string &text) {
  std::string line;
  for (unsigned char c : text)
    if (c < 0x20 || c == 0x7f) {
      line += "\\x";
      line += digits[c >> 4];
      line += digits[c & 15];
    } else {
      line += static_cast<char>(c);
    }
  return line;
}

std::string gridloom::quoteForShell(const std::string &text) {
  static const char *const plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos)
    return text;
  std::string quoted = "'";
  for (char c : text)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string gridloom::joinWithOr(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

std::string gridloom::formatCount(int64_t count, const char *thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string gridloom::formatBytes(uint64_t bytes, const char *unit) {
  const char *units[] = {unit, "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  size_t power = 0;
  for (; value >= 1024 && power + 1 < std::size(units); ++power)
    value /= 1024;
  if (bytes == 1 && std::string_view(unit) == "bytes")
    return "1 byte";
  char text[32];
  snprintf(text, sizeof text, power ? "%.1f %s" : "%.0f %s", value, units[power]);
  return text;
}

int gridloom::getDigits(double number, int least) {
  int digits = least;
  double shown = std::abs(number) * std::pow(10, least - 1);
  while (shown > 0 && shown < 1 && digits < 6) {
    shown *= 10;
    ++digits;
  }
  return digits;
}

std::string gridloom::toHex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::optional<std::string> gridloom::fromHex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned byte = 0;
    const char *begin = text.data() + i, *end = begin + std::min<size_t>(2, text.size() - i);
    if (auto [at, problem] = std::from_chars(begin, end, byte, 16);
        problem != std::errc() || at != begin + 2)
      return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}
