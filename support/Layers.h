//===- Layers.h - names that differ in a layer's number ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_LAYERS_H
#define GRIDLOOM_SUPPORT_LAYERS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gridloom {

/// A number in a name that may count layers.
struct LayerNumber {
  size_t begin, end; ///< where its digits are in the name
  int64_t value;
};

/// The numbers between separators or at an end of the name, in order. A number that is the whole
/// name counts no layers, nor does one of ten digits or more.
std::vector<LayerNumber> findLayers(std::string_view name, std::string_view separators);

/// The node's name with a star for each number that counts layers, so that layers are alike:
/// "/encoder/layer.*/attention/MatMul". Of nodes joined by " + " the first counts.
std::string foldLayers(const std::string &node);

/// The different lines, in their order. Those that are alike but for the layers in the names that
/// they quote are one, with their number: "node '/layer.*/Where': ... (12 times)". A line that is
/// alone stays as it is.
std::vector<std::string> foldLines(const std::vector<std::string> &lines);

/// The part of a model that a node is in, layers alike: "/encoder/layer.*/attention" of
/// "/encoder/layer.3/attention/MatMul". A name without '/' is its own scope.
std::string getScope(const std::string &node);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_LAYERS_H
