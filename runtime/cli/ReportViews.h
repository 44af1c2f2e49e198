//===- ReportViews.h - report.json as documents -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The compiler writes report.json for people and tools; missing fields are skipped.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H
#define GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H

#include "support/Candidates.h"
#include "support/LenientJson.h"

#include <cstdint>

namespace gridloom::rt {

/// What was chosen and why, what it costs, and the alternatives. Unless `forTools`, long tables
/// show only their first rows.
Document explainPlan(const Json &report, bool forTools);
/// How the value of an ONNX node, weight or input is split. Throws InvalidArgument if the report
/// has none of that name.
Document explainValue(const Json &report, const std::string &name);
/// Explains collective `id`. Throws InvalidArgument if the report has none of that number.
Document explainCollective(const Json &report, int64_t id);
/// A pipeline stage's load and memory, and what it waits for. Throws InvalidArgument if the report
/// has no stage of that number.
Document explainStage(const Json &report, int64_t number);

/// The report's candidates, sorted.
std::vector<PlanCandidate> readCandidates(const Json &report);
/// Why a candidate was chosen: how many there were, and what the next one would take; if it is the
/// only one, which options left no other. "" if the report has none.
std::string explainChoice(const Json &report, const std::vector<PlanCandidate> &candidates);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H
