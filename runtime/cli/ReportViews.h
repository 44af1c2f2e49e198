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

#include "support/Candidates.h"
#include "support/LenientJson.h"

#include <cstdint>

namespace gridloom::rt {

/// What was chosen and why, what it costs, what else was tried. For people only the first rows of
/// tables that may be long.
Document explainPlan(const Json &report, bool forTools);
/// How the value of an ONNX node, weight or input is split. Throws InvalidArgument where the report
/// has none of that name.
Document explainValue(const Json &report, const std::string &name);
/// Throws InvalidArgument where the report has none of that number.
Document explainCollective(const Json &report, int64_t id);
/// A pipeline stage's load and memory, and what it waits for. Throws InvalidArgument where the
/// report has none of that number.
Document explainStage(const Json &report, int64_t number);

/// Sorted.
std::vector<PlanCandidate> readCandidates(const Json &report);
/// Why the chosen candidate of these: how many there were, and what the next one would take; of a
/// sole one what left no other. "" where the report has none.
std::string explainChoice(const Json &report, const std::vector<PlanCandidate> &candidates);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_REPORTVIEWS_H
