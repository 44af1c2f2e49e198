//===- ReportFile.cpp - the compiler's report in a plan -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ReportFile.h"

#include "runtime/core/Error.h"

#include <fstream>

using namespace gridloom;
using namespace gridloom::rt;

Json gridloom::rt::readPlanFile(const std::filesystem::path &plan, const char *name) {
  std::filesystem::path path = plan / name;
  std::ifstream file(path);
  if (!file)
    return nullptr;
  std::string error;
  Json content = readJson(file, error);
  if (!content.is_object())
    throw Error(ErrorCode::InvalidPlan,
                path.string() + (error.starts_with("has") ? " " + error : " is not a JSON object") +
                    "; compile the plan again");
  return content;
}

Json gridloom::rt::readReport(const std::filesystem::path &plan) {
  Json report = readPlanFile(plan, "report.json");
  if (report.is_null())
    throw Error(ErrorCode::InvalidArgument,
                (plan / "report.json").string() +
                    " cannot be read; it takes a folder that 'gridloom compile' wrote");
  return report;
}
