//===- CallText.h - calls on the command line -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_CALLTEXT_H
#define GRIDLOOM_SUPPORT_CALLTEXT_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gridloom {

/// A call as options write it: "mse(output, target)", "adamw(lr=3e-4, weight_decay=0.1)", or a name
/// alone. A word with a space or one of "(),='" is in single quotes; one that begins with [ ends
/// with the next ], whatever is between: "f(weights=[1, 2])".
struct CallText {
  std::string name;
  std::vector<std::string> arguments;
  /// Behind the arguments, in the order of the text; no key comes twice.
  std::vector<std::pair<std::string, std::string>> settings;

  /// Reads a call. Returns what is wrong as the end of a sentence that begins with the text, e.g.
  /// "lacks ')' or ',' before 'x'"; empty if nothing is.
  std::string parse(const std::string &text);
};

/// The whole word as a number; nothing if it is not one, or is "nan" or "inf".
std::optional<double> parseNumber(const std::string &word);
std::optional<int64_t> parseInteger(const std::string &word);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_CALLTEXT_H
