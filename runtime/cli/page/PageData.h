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

#include <nlohmann/json.hpp>

namespace gridloom::rt {

using Json = nlohmann::ordered_json;

/// Rows of one table at most.
inline constexpr size_t kMostPageRows = 10'000;

/// A JSON file of the plan's folder; null where it is absent. Throws InvalidPlan where it is no
/// object.
Json readPlanFile(const Plan &plan, const char *name);

/// Fields that may be absent or of another type.
std::string getText(const Json &object, const char *key);
double getNumber(const Json &object, const char *key);
const Json &getList(const Json &object, const char *key);
const Json &getField(const Json &object, const char *key); ///< null where it is absent

/// Rows, which are objects with the same keys, as columns: a list of values for each key, or, where
/// texts repeat, {"texts": [...], "at": [...]}.
Json packRows(const std::vector<Json> &rows);

/// '#dist.sharding<@mesh, [{"data"}, {}]>' as inspect writes it: "[data, -]", with a sum that is
/// still to be made over axes behind it: "[data, -] + model".
std::string shortenSharding(const std::string &text);
/// The device axes of what shortenSharding returned, sorted: "data+model"; "" for a whole value.
std::string listAxes(const std::string &sharding);

/// A table of weights, inputs, outputs and the values in between, those with equal rows but for a
/// layer's number as one row. What was left out is added to `notes`.
Json makeTensors(const Plan &plan, const Json &report, std::vector<std::string> &notes);
/// `inspect collectives` with the report's times.
Json makeCollectiveRows(const Plan &plan, const Json &report, std::vector<std::string> &notes);

/// The model's operations by the scopes of their ONNX names; equal layers are one.
Json makeModelTree(const Json &report, const Json &timeline, std::vector<std::string> &notes);

/// timeline.json, checked, without steps that are not drawn where there are too many.
Json makePrograms(const Plan &plan, const Json &timeline, std::vector<std::string> &notes);
/// The run of a trace, drawn as the programs are.
Json makeTrace(const Plan &plan, const std::filesystem::path &path, const Json &programs,
               std::vector<std::string> &notes);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PAGE_PAGEDATA_H
