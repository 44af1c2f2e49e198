//===- StateRoles.cpp - roles of a training run's states ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/StateRoles.h"

#include "runtime/core/Plan.h"
#include "runtime/core/plan.pb.h"

using namespace gridloom;
using namespace gridloom::rt;

std::string_view gridloom::rt::nameOf(StateRole role) {
  switch (role) {
  case StateRole::Parameter:
    return "parameter";
  case StateRole::Slot:
    return "slot";
  case StateRole::Run:
    return "run";
  }
  return "";
}

StateRole gridloom::rt::getRole(const schema::State &state) {
  switch (state.role()) {
  case schema::PARAMETER:
  case schema::STATISTIC:
    return StateRole::Parameter;
  case schema::MOMENT:
    return StateRole::Slot;
  default:
    return StateRole::Run;
  }
}

StateRoles gridloom::rt::getRoles(const Plan &plan) {
  StateRoles roles;
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    for (const schema::State &state : plan.getStage(stage).states())
      roles[state.name()] = getRole(state);
  return roles;
}

static bool hasSlots(const std::map<std::string, HostArray> &states, const std::string &name) {
  auto next = states.lower_bound(name + "/");
  for (; next != states.end() && next->first.starts_with(name + "/"); ++next)
    if (next->first.find('/', name.size() + 1) == std::string::npos)
      return true;
  return false;
}

static StateRole guessRole(const std::map<std::string, HostArray> &states,
                           const std::string &name) {
  if (name.starts_with("train/"))
    return StateRole::Run;
  size_t slash = name.rfind('/');
  bool isSlot = slash != std::string::npos && states.contains(name.substr(0, slash)) &&
                !hasSlots(states, name);
  return isSlot ? StateRole::Slot : StateRole::Parameter;
}

StateRoles gridloom::rt::guessRoles(const std::map<std::string, HostArray> &states) {
  StateRoles roles;
  for (const auto &[name, array] : states)
    roles[name] = guessRole(states, name);
  return roles;
}

std::string gridloom::rt::getSlot(const StateRoles &roles, const std::string &name) {
  auto found = roles.find(name);
  bool isSlot = found != roles.end() && found->second == StateRole::Slot;
  return isSlot ? name.substr(name.rfind('/') + 1) : "";
}
