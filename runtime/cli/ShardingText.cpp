//===- ShardingText.cpp - shardings of the report, as people read them ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ShardingText.h"

#include <set>

using namespace gridloom;

/// The quoted axis names, joined.
static std::string joinQuoted(const std::string &text, const char *separator) {
  std::string joined;
  for (size_t from = text.find('"'); from != std::string::npos;) {
    size_t to = text.find('"', from + 1);
    if (to == std::string::npos)
      break;
    joined += (joined.empty() ? "" : separator) + text.substr(from + 1, to - from - 1);
    from = text.find('"', to + 1);
  }
  return joined;
}

std::string gridloom::rt::shortenSharding(const std::string &text) {
  size_t at = text.find('['), end = text.rfind(']');
  if (!text.starts_with("#dist.sharding") || at == std::string::npos || end == std::string::npos)
    return text;
  std::string result = "[";
  while (true) {
    size_t open = text.find('{', at), close = text.find('}', at);
    if (open >= end || close >= end)
      break;
    std::string axes = joinQuoted(text.substr(open, close - open), ".");
    result += (result.size() > 1 ? ", " : "") + (axes.empty() ? "-" : axes);
    at = close + 1;
    if (text.compare(at, 3, " * ") == 0)
      result += "*" + text.substr(at + 3, text.find_first_of(",]", at) - at - 3);
  }
  result += "]";
  std::string unreduced = joinQuoted(text.substr(end), ".");
  return unreduced.empty() ? result : result + " + " + unreduced;
}

std::string gridloom::rt::listAxes(const std::string &sharding) {
  std::set<std::string> axes;
  std::string name, dims = sharding.substr(0, sharding.find(']'));
  bool isGranule = false;
  for (char c : dims + ",") {
    if (c != '[' && c != ',' && c != '.' && c != ' ' && c != '*') {
      if (!isGranule)
        name += c;
      continue;
    }
    isGranule = c == '*' || (isGranule && c != ',');
    if (!name.empty() && name != "-" && name != "micro")
      axes.insert(name);
    name.clear();
  }
  std::string joined;
  for (const std::string &axis : axes)
    joined += (joined.empty() ? "" : "+") + axis;
  return joined;
}
