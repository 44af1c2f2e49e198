//===- TiedWeights.h - weights with a shared parameter ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_TIEDWEIGHTS_H
#define GRIDLOOM_RUNTIME_TRAIN_TIEDWEIGHTS_H

#include "runtime/core/HostArray.h"

#include <map>
#include <string>
#include <vector>

namespace gridloom::rt {

class Plan;

/// A weight of the model that shares the state of another parameter.
struct TiedWeight {
  std::string name;
  std::string state;         ///< the parameter with its value
  bool isTransposed = false; ///< it is the parameter's transpose
  bool operator==(const TiedWeight &) const = default;
};

/// The tied weights of a plan, in the order of its states.
std::vector<TiedWeight> getTiedWeights(const Plan &plan);

/// Adds each tied weight whose parameter is in `arrays`; a transposed one is a copy.
void addTiedWeights(const std::vector<TiedWeight> &ties, std::map<std::string, HostArray> &arrays);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TIEDWEIGHTS_H
