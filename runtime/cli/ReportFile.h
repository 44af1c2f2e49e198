//===- ReportFile.h - the compiler's report in a plan -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_REPORTFILE_H
#define GRIDLOOM_RUNTIME_CLI_REPORTFILE_H

#include "runtime/core/PlanQueries.h"
#include "support/LenientJson.h"

#include <filesystem>

namespace gridloom::rt {

/// A JSON file in a plan's folder; null if it is missing. Throws InvalidPlan if it is not an
/// object.
Json readPlanFile(const std::filesystem::path &plan, const char *name);
/// The same for readers that can do without it: if it is not an object, null, and `fault` is "is
/// not a JSON object" or the like; else "".
Json readPlanFile(const std::filesystem::path &plan, const char *name, std::string &fault);

/// A plan's report.json. Throws InvalidPlan if `plan` is no plan's folder, or the report is missing
/// or not a JSON object.
Json readReport(const std::filesystem::path &plan);

/// A plan's collectives as findCollectives numbers them. Those in loops run as often as the plan's
/// report says that they do at most; once where it says nothing.
std::vector<PlannedCollective> findCountedCollectives(const Plan &plan);
/// The same with a report that has been read.
std::vector<PlannedCollective> findCountedCollectives(const Plan &plan, const Json &report);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_REPORTFILE_H
