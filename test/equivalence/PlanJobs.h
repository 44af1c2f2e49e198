//===- PlanJobs.h - runs the entries of a plan ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The border between tests that link MLIR, without exceptions, and the runtime, which throws.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_EQUIVALENCE_PLANJOBS_H
#define GRIDLOOM_TEST_EQUIVALENCE_PLANJOBS_H

#include "compiler/interpreter/PlanRun.h"

namespace gridloom::testing {

/// Inputs, or outputs, by name.
using PlanTensors = std::map<std::string, PlanTensor>;

/// The SHA-256 of a file of the bytes, as plans name it.
std::string getDigest(const std::vector<char> &bytes);

/// Loads a plan and runs the given entries, all ranks in this process, `repeats` times each.
/// Returns the outputs by entry; `error` names the entry that failed, and is empty when none did.
std::map<std::string, PlanTensors> runEntries(const std::string &folder,
                                              const std::map<std::string, PlanTensors> &entries,
                                              int repeats, std::string &error);

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_EQUIVALENCE_PLANJOBS_H
