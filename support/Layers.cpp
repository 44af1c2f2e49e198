//===- Layers.cpp - names that differ in a layer's number -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Layers.h"

#include <algorithm>
#include <map>
#include <set>

using namespace gridloom;

std::vector<LayerNumber> gridloom::findLayers(std::string_view name, std::string_view separators) {
  auto isBorder = [&](size_t at) {
    return at >= name.size() || separators.find(name[at]) != std::string_view::npos;
  };
  std::vector<LayerNumber> found;
  for (size_t begin = 0; (begin = name.find_first_of("0123456789", begin)) < name.size();) {
    size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
    bool isWhole = begin == 0 && end == name.size();
    if (!isWhole && (begin == 0 || isBorder(begin - 1)) && isBorder(end) && end - begin < 10)
      found.push_back({begin, end, std::stoll(std::string(name.substr(begin, end - begin)))});
    begin = end;
  }
  return found;
}

std::string gridloom::foldLayers(const std::string &node) {
  std::string folded = node.substr(0, node.find(" + "));
  std::vector<LayerNumber> layers = findLayers(folded, "/."); // "MatMul_1" is another MatMul
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
    folded.replace(layer->begin, layer->end - layer->begin, "*");
  return folded;
}

/// With layers folded in what is between single quotes.
static std::string foldQuoted(const std::string &line) {
  std::string folded;
  size_t begin = 0;
  while (true) {
    size_t open = line.find('\'', begin), close = line.find('\'', open + 1);
    if (open == std::string::npos || close == std::string::npos)
      return folded + line.substr(begin);
    folded += line.substr(begin, open + 1 - begin);
    folded += foldLayers(line.substr(open + 1, close - open - 1)) + "'";
    begin = close + 1;
  }
}

std::vector<std::string> gridloom::foldLines(const std::vector<std::string> &lines) {
  std::map<std::string, std::set<std::string>> alike;
  for (const std::string &line : lines)
    alike[foldQuoted(line)].insert(line);
  std::vector<std::string> all;
  for (const std::string &line : lines) {
    auto found = alike.find(foldQuoted(line));
    if (found == alike.end()) // already there
      continue;
    size_t count = found->second.size();
    all.push_back(count == 1 ? line : found->first + " (" + std::to_string(count) + " times)");
    alike.erase(found);
  }
  return all;
}

std::string gridloom::getScope(const std::string &node) {
  std::string folded = foldLayers(node);
  size_t slash = folded.rfind('/');
  return slash != std::string::npos && slash > 0 ? folded.substr(0, slash) : folded;
}
