//===- ReportFile.h - the compiler's report in a plan -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_REPORTFILE_H
#define GRIDLOOM_RUNTIME_CLI_REPORTFILE_H

#include "support/LenientJson.h"

#include <filesystem>

namespace gridloom::rt {

/// A JSON file of a plan's folder; null where it is absent. Throws InvalidPlan where it is no
/// object.
Json readPlanFile(const std::filesystem::path &plan, const char *name);

/// A plan's report.json. Throws where there is none, or it is no JSON object.
Json readReport(const std::filesystem::path &plan);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_REPORTFILE_H
