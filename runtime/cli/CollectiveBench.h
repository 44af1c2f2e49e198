//===- CollectiveBench.h - gridloom bench all_reduce ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H
#define GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H

#include "runtime/cli/Verbs.h"

#include <string>
#include <vector>

namespace gridloom::rt {

/// Adds a verb per collective to `bench`.
std::vector<Verb> addCollectives(CLI::App &bench);
/// Their names: all_reduce, ...
std::vector<std::string> getCollectiveNames();

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H
