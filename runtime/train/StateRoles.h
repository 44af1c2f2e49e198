//===- StateRoles.h - roles of a training run's states ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H
#define GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H

#include "runtime/core/HostArray.h"

#include <map>
#include <string>
#include <string_view>

namespace gridloom::schema {
class State;
} // namespace gridloom::schema

namespace gridloom::rt {

class Plan;

/// The role of a state: a weight of the model, under the model's name; an optimizer's value for a
/// weight, as PARAMETER/SLOT ("fc.weight/m"); or a value of the whole run.
enum class StateRole { Parameter, Slot, Run };

/// Roles by state name.
using StateRoles = std::map<std::string, StateRole>;

/// "parameter", "slot" or "run".
std::string_view nameOf(StateRole role);

StateRole getRole(const schema::State &state);
/// The roles of a plan's states, from the compiler: names are not reliable, since the model chooses
/// them. Running statistics are weights of the model, too.
StateRoles getRoles(const Plan &plan);

/// Guesses roles from names, for checkpoints without them. If there are a and a/b, a/b is a
/// parameter if there is an a/b/SLOT, else a slot of a; train/NAME is a value of the run.
StateRoles guessRoles(const std::map<std::string, HostArray> &states);

/// The SLOT of PARAMETER/SLOT; "" for other states.
std::string getSlot(const StateRoles &roles, const std::string &name);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H
