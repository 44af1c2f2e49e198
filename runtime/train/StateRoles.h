//===- StateRoles.h - what the states of a training run are -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The names of states say what they are: a parameter is called as in the model, what an optimizer
// keeps of it PARAMETER/SLOT ("fc.weight/m"), and what concerns the whole run train/NAME.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H
#define GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H

#include "runtime/core/HostArray.h"

#include <map>
#include <string>

namespace gridloom::rt {

struct StateRole {
  enum Kind { Parameter, Slot, Run } kind = Parameter;
  std::string parameter, slot; // of a Slot
};

/// What the state `name` of `states` is. Names of parameters may have slashes too: of a/b and a,
/// a/b is a parameter where there is an a/b/SLOT, else a slot of a.
StateRole getRole(const std::map<std::string, HostArray> &states, const std::string &name);

/// The parameters among `states`.
std::map<std::string, HostArray> getParameters(const std::map<std::string, HostArray> &states);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H
