//===- PlanJobs.h - runs a plan's entries ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Separates tests that link MLIR, and have no exceptions, from the runtime, which throws.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_EQUIVALENCE_PLANJOBS_H
#define GRIDLOOM_TEST_EQUIVALENCE_PLANJOBS_H

#include "compiler/interpreter/PlanRun.h"

namespace gridloom::testing {

/// Inputs or outputs by name.
using PlanTensors = std::map<std::string, PlanTensor>;

/// The SHA-256 of the bytes, as plans record it for a file.
std::string getDigest(const std::vector<char> &bytes);

/// Loads a plan and runs the given entries, with all ranks in this process, `repeats` times each.
/// Returns the outputs by entry; `error` names the entry that failed, or is empty.
std::map<std::string, PlanTensors> runEntries(const std::string &folder,
                                              const std::map<std::string, PlanTensors> &entries,
                                              int repeats, std::string &error);

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_EQUIVALENCE_PLANJOBS_H
