//===- ReportFile.cpp - the compiler's report in a plan -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ReportFile.h"

#include "runtime/core/Error.h"

#include <fstream>

using namespace gridloom::rt;
using nlohmann::json;

json gridloom::rt::readReport(const std::filesystem::path &plan) {
  std::string path = (plan / "report.json").string();
  std::ifstream file(path);
  if (!file)
    throw Error(ErrorCode::InvalidArgument,
                path + " cannot be read; explain needs a folder that 'gridloom compile' wrote");
  json report = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object())
    throw Error(ErrorCode::InvalidPlan, path + " is not a JSON object; compile the plan again");
  return report;
}
