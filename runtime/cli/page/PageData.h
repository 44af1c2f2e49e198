//===- PageData.h - data of the page ----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Parts of the page's data as JSON. Times and decisions come from the plan's report.json and
// timeline.json; nothing is estimated here. Fields of the report that are missing, or of another
// type than the compiler writes, are skipped, as in `explain`.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H
#define GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H

#include "runtime/core/Plan.h"
#include "support/LenientJson.h"

namespace gridloom::rt {

/// The largest number of rows in a table.
inline constexpr size_t kMostPageRows = 10'000;

/// Packs rows, which are objects with the same keys, as columns: a list of values for each key, or
/// {"texts": [...], "at": [...]} if texts repeat.
Json packRows(const std::vector<Json> &rows);

/// A table of weights, inputs, outputs and intermediate values; rows that differ only in a layer's
/// number are merged. Adds to `notes` what was left out.
Json makeTensors(const Plan &plan, const Json &report, std::vector<std::string> &notes);
/// `inspect collectives` with the report's times.
Json makeCollectiveRows(const Plan &plan, const Json &report, std::vector<std::string> &notes);

/// The model's operations as a tree by the scopes of their ONNX names; equal layers are merged.
Json makeModelTree(const Json &report, const Json &timeline, std::vector<std::string> &notes);

/// The first field of timeline.json that is missing or has another type than the compiler writes;
/// "" if the page can draw the file.
std::string findTimelineFault(const Json &timeline);
/// The programs of a timeline without faults; drops steps that are not drawn if there are too many.
Json makePrograms(const Json &timeline, std::vector<std::string> &notes);
/// The run of a trace, in the form of the programs of timeline.json.
Json makeTrace(const Plan &plan, const std::filesystem::path &path, const Json &timeline,
               std::vector<std::string> &notes);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H
