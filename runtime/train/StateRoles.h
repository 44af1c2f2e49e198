//===- StateRoles.h - what the states of a training run are -----*- C++ -*-===//
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

/// What a state is: a weight of the model under the model's name for it, what an optimizer keeps of
/// one as PARAMETER/SLOT ("fc.weight/m"), or what concerns the whole run.
enum class StateRole { Parameter, Slot, Run };

/// By the states' names.
using StateRoles = std::map<std::string, StateRole>;

/// "parameter", "slot" or "run".
std::string_view nameOf(StateRole role);

StateRole getRole(const schema::State &state);
/// The roles of a plan's states, as the compiler says them: names tell nothing, since the model
/// chooses them. Running statistics are weights of the model, too.
StateRoles getRoles(const Plan &plan);

/// The roles that the names suggest, for checkpoints that do not have them. Of a/b and a, a/b is a
/// parameter where there is an a/b/SLOT, else a slot of a; train/NAME concerns the run.
StateRoles guessRoles(const std::map<std::string, HostArray> &states);

/// The SLOT of PARAMETER/SLOT; "" for what is no slot.
std::string getSlot(const StateRoles &roles, const std::string &name);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_STATEROLES_H
