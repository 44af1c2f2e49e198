//===- Layers.cpp - names that differ in a layer's number -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Layers.h"

#include <algorithm>

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

std::string gridloom::getScope(const std::string &node) {
  std::string folded = foldLayers(node);
  size_t slash = folded.rfind('/');
  return slash != std::string::npos && slash > 0 ? folded.substr(0, slash) : folded;
}
