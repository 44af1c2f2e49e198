//===- ReportFile.cpp - the compiler's report in a plan -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ReportFile.h"

#include "runtime/core/Error.h"
#include "runtime/core/Plan.h"

#include <algorithm>
#include <fstream>

using namespace gridloom;
using namespace gridloom::rt;

Json gridloom::rt::readPlanFile(const std::filesystem::path &plan, const char *name,
                                std::string &fault) {
  std::ifstream file(plan / name);
  fault.clear();
  if (!file)
    return nullptr;
  Json content = readJson(file, fault);
  if (content.is_object())
    return content;
  if (fault.empty() || fault == "is not JSON")
    fault = "is not a JSON object";
  return nullptr;
}

Json gridloom::rt::readPlanFile(const std::filesystem::path &plan, const char *name) {
  std::string fault;
  Json content = readPlanFile(plan, name, fault);
  if (!fault.empty())
    throw Error(ErrorCode::InvalidPlan,
                (plan / name).string() + " " + fault + "; compile the plan again");
  return content;
}

Json gridloom::rt::readReport(const std::filesystem::path &plan) {
  Json report = readPlanFile(plan, "report.json");
  if (!report.is_null())
    return report;
  requirePlanFolder(plan);
  throw Error(ErrorCode::InvalidPlan,
              plan.string() + " has no report.json: copy it from the folder that 'gridloom "
                              "compile' wrote, or compile the plan again");
}

std::vector<PlannedCollective> gridloom::rt::findCountedCollectives(const Plan &plan) {
  std::string ignored;
  return findCountedCollectives(plan, readPlanFile(plan.getFolder(), "report.json", ignored));
}

std::vector<PlannedCollective> gridloom::rt::findCountedCollectives(const Plan &plan,
                                                                    const Json &report) {
  std::vector<PlannedCollective> found = findCollectives(plan);
  for (const Json &reported : getList(report, "collectives"))
    if (uint64_t id = getSize(reported, "id");
        id < found.size() && getText(reported, "kind") == found[id].kind)
      found[id].times = std::max(found[id].times, getInteger(reported, "times"));
  return found;
}
