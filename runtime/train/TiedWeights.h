//===- TiedWeights.h - weights that are one parameter -----------*- C++ -*-===//
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

/// A weight of the model that has no state of its own.
struct TiedWeight {
  std::string name;
  std::string state;         ///< the parameter whose value it has
  bool isTransposed = false; ///< or whose transpose's
  bool operator==(const TiedWeight &) const = default;
};

/// Those of a plan, in the order of its states.
std::vector<TiedWeight> getTiedWeights(const Plan &plan);

/// Adds the value of each tied weight whose parameter is there, a copy where it is transposed.
void addTiedWeights(const std::vector<TiedWeight> &ties, std::map<std::string, HostArray> &arrays);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TIEDWEIGHTS_H
