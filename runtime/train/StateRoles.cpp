//===- StateRoles.cpp - what the states of a training run are -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/StateRoles.h"

using namespace gridloom::rt;

static bool hasSlots(const std::map<std::string, HostArray> &states, const std::string &name) {
  auto next = states.lower_bound(name + "/");
  for (; next != states.end() && next->first.starts_with(name + "/"); ++next)
    if (next->first.find('/', name.size() + 1) == std::string::npos)
      return true;
  return false;
}

StateRole gridloom::rt::getRole(const std::map<std::string, HostArray> &states,
                                const std::string &name) {
  if (name.starts_with("train/"))
    return {.kind = StateRole::Run, .parameter = "", .slot = ""};
  size_t slash = name.rfind('/');
  if (slash == std::string::npos || !states.contains(name.substr(0, slash)) ||
      hasSlots(states, name))
    return {};
  return {
      .kind = StateRole::Slot, .parameter = name.substr(0, slash), .slot = name.substr(slash + 1)};
}

std::map<std::string, HostArray>
gridloom::rt::getParameters(const std::map<std::string, HostArray> &states) {
  std::map<std::string, HostArray> parameters;
  for (const auto &[name, array] : states)
    if (getRole(states, name).kind == StateRole::Parameter)
      parameters.emplace(name, array);
  return parameters;
}
