//===- ReportViews.h - report.json as documents -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The compiler writes report.json for people and tools; fields that are not there are passed over.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H
#define GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H

#include "runtime/cli/LenientJson.h"
#include "support/CostSheet.h"

#include <cstdint>

namespace gridloom::rt {

/// What was chosen and why, what it costs, what else was tried. For people only the first rows of
/// tables that may be long.
Document explainPlan(const LenientJson &report, bool forTools);
/// How the value of an ONNX node, weight or input is split. Throws InvalidArgument where the report
/// has none of that name.
Document explainValue(const LenientJson &report, const std::string &name);
/// Throws InvalidArgument where the report has none of that number.
Document explainCollective(const LenientJson &report, int64_t id);
/// A pipeline stage's load and memory, and what it waits for. Throws InvalidArgument where the
/// report has none of that number.
Document explainStage(const LenientJson &report, int64_t number);

/// Empty where the report has no simulated times.
CostSheet readCosts(const LenientJson &report);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H
