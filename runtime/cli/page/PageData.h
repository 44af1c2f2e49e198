//===- PageData.h - what a page shows ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Parts of the page's data as JSON. Times and decisions are those of the plan's report.json and
// timeline.json; nothing is estimated here. Fields of the report that are absent, or of another
// type than the compiler writes, are passed over, as `explain` does.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H
#define GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H

#include "runtime/core/Plan.h"
#include "support/LenientJson.h"

namespace gridloom::rt {

/// Rows of one table at most.
inline constexpr size_t kMostPageRows = 10'000;

/// Rows, which are objects with the same keys, as columns: a list of values for each key, or, where
/// texts repeat, {"texts": [...], "at": [...]}.
Json packRows(const std::vector<Json> &rows);

/// A table of weights, inputs, outputs and the values in between, those with equal rows but for a
/// layer's number as one row. What was left out is added to `notes`.
Json makeTensors(const Plan &plan, const Json &report, std::vector<std::string> &notes);
/// `inspect collectives` with the report's times.
Json makeCollectiveRows(const Plan &plan, const Json &report, std::vector<std::string> &notes);

/// The model's operations by the scopes of their ONNX names; equal layers are one.
Json makeModelTree(const Json &report, const Json &timeline, std::vector<std::string> &notes);

/// The first field that timeline.json lacks or has with another type than the compiler writes; ""
/// of a file that the page can draw.
std::string findTimelineFault(const Json &timeline);
/// A timeline without faults, without steps that are not drawn where there are too many.
Json makePrograms(const Json &timeline, std::vector<std::string> &notes);
/// The run of a trace, drawn as the programs of timeline.json are.
Json makeTrace(const Plan &plan, const std::filesystem::path &path, const Json &timeline,
               std::vector<std::string> &notes);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H
