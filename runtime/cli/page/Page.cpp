//===- Page.cpp - a plan as one page of HTML ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/page/Page.h"

#include "runtime/cli/PlanViews.h"
#include "runtime/cli/ReportFile.h"
#include "runtime/cli/ReportViews.h"
#include "runtime/cli/page/PageData.h"
#include "runtime/cli/page/PageParts.h"

#include <sstream>

using namespace gridloom;
using namespace gridloom::rt;

/// A view of `inspect` as --json prints it.
static Json toJson(const Document &document) {
  std::ostringstream text;
  document.write(text, /*asJson=*/true);
  return Json::parse(text.str());
}

/// The objects of a list with only these fields.
static Json takeFields(const Json &list, const std::vector<const char *> &texts,
                       const std::vector<const char *> &numbers) {
  Json rows = Json::array();
  for (const Json &object : list) {
    Json row = Json::object();
    for (const char *key : texts)
      row[key] = getText(object, key);
    for (const char *key : numbers)
      row[key] = getNumber(object, key);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Sizes and links of the mesh's axes.
static Json describeMesh(const Plan &plan, const Json &report) {
  Json levels =
      takeFields(getList(report, "levels"), {}, {"block", "latency_us", "gigabytes_per_second"});
  Json axes = Json::array();
  for (const Mesh::Axis &axis : plan.getMesh().getAxes()) {
    Json crossed = Json::array();
    for (const Json &placed : getList(report, "axes"))
      if (getText(placed, "name") == axis.name)
        for (const Json &level : getList(placed, "levels"))
          if (level.is_number_unsigned() && level < levels.size())
            crossed.push_back(level);
    axes.push_back({{"name", axis.name}, {"size", axis.size}, {"levels", std::move(crossed)}});
  }
  return {{"axes", std::move(axes)},
          {"stage_axis", plan.getMesh().getStageAxis()},
          {"ranks", plan.getMesh().getNumRanks()},
          {"levels", std::move(levels)}};
}

/// The plan's report.json; null, with a note, if it is missing or damaged.
static Json readReportPart(const Plan &plan, std::vector<std::string> &notes) {
  std::string fault;
  Json report = readPlanFile(plan.getFolder(), "report.json", fault);
  if (!fault.empty())
    notes.push_back("report.json is damaged: it " + fault +
                    "; reasons, estimates and candidates are left out. Compile the plan again.");
  else if (report.is_null())
    notes.push_back("The plan has no report.json: reasons, estimates and candidates are missing.");
  return report;
}

/// The plan's timeline.json; null, with a note, if it is missing or damaged.
static Json readTimelinePart(const Plan &plan, std::vector<std::string> &notes) {
  std::string fault;
  Json timeline = readPlanFile(plan.getFolder(), "timeline.json", fault);
  if (!fault.empty())
    fault = "it " + fault;
  else if (timeline.is_null())
    notes.push_back("The plan has no timeline.json: compile it again for the simulated timeline "
                    "and memory curve.");
  else if (fault = findTimelineFault(timeline); !fault.empty())
    fault += " is missing or wrong";
  if (fault.empty())
    return timeline;
  notes.push_back(
      "timeline.json is damaged: " + fault +
      "; the simulated timeline and memory curve are left out. Compile the plan again.");
  return nullptr;
}

static Json collectData(const Plan &plan, const std::filesystem::path &trace) {
  std::vector<std::string> notes;
  Json report = readReportPart(plan, notes), timeline = readTimelinePart(plan, notes);
  Json data{{"summary", toJson(makeSummary(plan))},
            {"memory", toJson(makeMemory(plan))},
            {"mesh", describeMesh(plan, report)}};
  for (const char *name : {"strategy", "machine", "cluster"})
    data[name] = getText(report, name);
  data["estimates"] = takeFields(getList(report, "estimates"), {"entry", "dims"},
                                 {"step_ms", "compute_ms", "comm_ms", "exposed_ms", "bubble"});
  data["candidates"] =
      takeFields(getList(report, "candidates"), {"strategy", "reason"},
                 {"simulated_ms", "sum_ms", "memory_bytes", "estimated_memory_bytes"});
  data["why"] = explainChoice(report, readCandidates(report));
  for (const char *name : {"warnings", "remarks"})
    data[name] = getList(report, name);
  data["limit_bytes"] = getNumber(getField(report, "memory"), "limit_bytes");
  data["programs"] = makePrograms(timeline, notes);
  data["trace"] = trace.empty() ? Json() : makeTrace(plan, trace, timeline, notes);
  data["tensors"] = makeTensors(plan, report, notes);
  data["collectives"] = makeCollectiveRows(plan, report, notes);
  data["model"] = makeModelTree(report, timeline, notes);
  data["notes"] = notes;
  return data;
}

/// Escapes text for HTML.
static std::string escapeHtml(const std::string &text) {
  std::string escaped;
  for (char c : text)
    if (c == '<' || c == '>' || c == '&' || c == '"')
      escaped += "&#" + std::to_string(int(c)) + ";";
    else
      escaped += c;
  return escaped;
}

/// JSON that cannot end a script element: names in a model may contain any text.
static std::string dumpForScript(const Json &data) {
  std::string text;
  for (char c : data.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace))
    if (c == '<' || c == '>' || c == '&') {
      char code[8];
      snprintf(code, sizeof code, "\\u%04x", unsigned(c));
      text += code;
    } else {
      text += c;
    }
  return text;
}

/// Replaces each {{name}} in the markup; does not search the inserted texts.
static std::string fill(const std::string &markup,
                        const std::map<std::string, std::string> &texts) {
  std::string page;
  size_t at = 0;
  for (size_t mark; (mark = markup.find("{{", at)) != std::string::npos;) {
    size_t end = markup.find("}}", mark);
    page += markup.substr(at, mark - at) + texts.at(markup.substr(mark + 2, end - mark - 2));
    at = end + 2;
  }
  return page + markup.substr(at);
}

std::string gridloom::rt::makePage(const Plan &plan, const std::filesystem::path &trace) {
  std::filesystem::path folder = (plan.getFolder() / "").lexically_normal().parent_path();
  return fill(getPageMarkup(), {{"title", escapeHtml(folder.filename().string())},
                                {"style", getPageStyle()},
                                {"script", getPageScript()},
                                {"data", dumpForScript(collectData(plan, trace))}});
}
