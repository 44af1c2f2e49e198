//===- Text.h - names, sizes and commands as text ------------- -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_TEXT_H
#define GRIDLOOM_SUPPORT_TEXT_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gridloom {

/// The text as one line that is safe to print on a terminal: names of a model may hold anything.
/// Control characters become "\x1b"; bytes of UTF-8 stay.
std::string makePrintable(const std::string &text);

/// The text as a shell reads it back as one word: in quotes where it needs them.
std::string quoteForShell(const std::string &text);

/// "cpu", "cpu or cuda", "cpu, cuda or rocm".
std::string joinWithOr(std::span<const std::string> names);

/// "1 node", "2 nodes".
std::string formatCount(int64_t count, const char *thing);

/// "1.5 GiB"; below 1 KiB the number with `unit` behind it.
std::string formatBytes(uint64_t bytes, const char *unit = "bytes");

/// How many digits after the point show `number` with two that are not leading zeros: `least`, or
/// up to six for small ones.
int getDigits(double number, int least);

/// Two lower-case hexadecimal digits for each byte.
std::string toHex(std::span<const std::byte> bytes);
/// Inverts toHex; nothing for other text.
std::optional<std::string> fromHex(std::string_view text);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_TEXT_H
