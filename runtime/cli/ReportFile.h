//===- ReportFile.h - the compiler's report in a plan -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_REPORTFILE_H
#define GRIDLOOM_RUNTIME_CLI_REPORTFILE_H

#include <nlohmann/json.hpp>

#include <filesystem>

namespace gridloom::rt {

/// A plan's report.json. Throws where there is none, or it is no JSON object.
nlohmann::json readReport(const std::filesystem::path &plan);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_REPORTFILE_H
