//===- DiffVerb.cpp - gridloom diff ---------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/Job.h"
#include "runtime/cli/ReportFile.h"
#include "runtime/core/Error.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/MemoryNeeds.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/plan.pb.h"
#include "support/CostSheet.h"
#include "support/OutputFormat.h"
#include "support/Text.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <limits>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

static const char *const examples = R"(
Examples:
  gridloom diff before.plan after.plan
  gridloom diff a.plan b.plan --exit-code     exit code 1 when they differ
  gridloom diff a.plan b.plan --json          all rows, for tools

First come times, by what they are spent on, the largest difference first: they are the
simulator's, for the devices that each plan was compiled for. Then lines that begin with - for
the first plan and + for the second. A pipeline's times are those of one rank of each stage.
Times of specialisations that one plan has alone are not compared.)";

/// Rows of a table of times, except in JSON.
static constexpr size_t kMostCosts = 10;

namespace {

struct Settings {
  std::string first, second;
  bool exitCode = false;
  OutputFormat format;
};

/// The facts to compare: one line per subject.
using Facts = std::map<std::string, std::string>;

} // namespace

/// Without `countsLoops` collectives in loops count once, since one of the plans has no report.
static Facts getFacts(const Plan &plan, bool countsLoops) {
  Facts facts{{"0 model", plan.getModel().sha256.substr(0, 12) + " (" +
                              std::to_string(plan.getModel().bytes) + " bytes)"},
              {"0 target", plan.getTargetKind() + " " + plan.getTargetArch()},
              {"0 mesh", formatMesh(plan.getMesh())},
              {"0 microbatches", std::to_string(plan.getMicrobatches())},
              {"0 stages", std::to_string(plan.getNumStages())}};
  for (const Entry &entry : plan.getEntries())
    for (const EntrySpecialisation &specialisation : entry.specialisations)
      for (bool isInput : {true, false})
        for (const Argument &argument : isInput ? specialisation.inputs : specialisation.outputs)
          facts["1 " + entry.name + " (" + formatDims(specialisation.dims) + ") " +
                (isInput ? "input " : "output ") + argument.name] =
              std::string(nameOf(argument.type)) + " " + formatShape(argument.shape);
  for (const PlannedMemory &memory : findMemory(plan))
    facts["2 memory of stage " + std::to_string(memory.stage) + " " + memory.entry + " (" +
          memory.dims + ")"] = "arena " + bytesCell(memory.arena).text + ", registered " +
                               bytesCell(memory.registered).text;
  for (int number = 0; number < plan.getNumStages(); ++number) {
    MemoryNeeds needs = computeNeeds(plan.getStage(number));
    facts["2 memory of stage " + std::to_string(number)] =
        "total " + formatBytes(needs.getAllocated()) + ": " + describe(needs);
  }
  for (const auto &[kind, count] : countSteps(plan))
    facts["3 " + kind + " steps"] = std::to_string(count);
  std::map<std::string, std::pair<int64_t, uint64_t>> sums;
  for (const PlannedCollective &c :
       countsLoops ? findCountedCollectives(plan) : findCollectives(plan)) {
    std::string over;
    for (const std::string &axis : c.axes)
      over += (over.empty() ? "" : ".") + axis;
    auto &[times, bytes] = sums["4 stage " + std::to_string(c.stage) + " " +
                                nameKind(c.kind, over) + " for " + c.origin];
    times += c.times;
    bytes += c.bytes * uint64_t(c.times);
  }
  for (const auto &[subject, sum] : sums)
    facts[subject] = std::to_string(sum.first) + " x, " + bytesCell(sum.second).text;
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (const schema::Weight &weight : plan.getStage(number).weights())
      facts["5 weight " + weight.name() + " in stage " + std::to_string(number)] =
          formatShape(std::vector<int64_t>(weight.shape().begin(), weight.shape().end())) + " " +
          formatSharding(weight.sharding());
  return facts;
}

/// A plan's costs from its report; none, with the reason added to `missing`, if the report has no
/// times.
static std::optional<CostSheet> findCosts(const Plan &plan, std::string &missing) {
  std::string reason;
  std::optional<CostSheet> costs;
  try {
    Json report = readPlanFile(plan.getFolder(), "report.json");
    costs = readCosts(report);
    if (!costs)
      reason = plan.getFolder().string() +
               (report.is_null() ? " has no report.json: copy it from the folder that 'gridloom "
                                   "compile' wrote, or compile the plan again"
                                 : " has a report.json without times: compile the plan again");
  } catch (const Error &error) {
    reason = error.what();
  }
  if (!costs)
    missing += (missing.empty() ? "" : "; ") + reason;
  return costs;
}

/// A fact that differs between the plans; null if a plan lacks it.
struct Difference {
  std::string subject;
  const std::string *first, *second;
};

static std::vector<Difference> compare(const Facts &before, const Facts &after) {
  std::set<std::string> subjects;
  for (const Facts *facts : {&before, &after})
    for (const auto &[subject, value] : *facts)
      subjects.insert(subject);
  std::vector<Difference> differences;
  for (const std::string &subject : subjects) {
    auto find = [&](const Facts &facts) {
      auto found = facts.find(subject);
      return found == facts.end() ? nullptr : &found->second;
    };
    const std::string *old = find(before), *now = find(after);
    if (!old || !now || *old != *now)
      differences.push_back({subject.substr(2), old, now}); // strips the sort key
  }
  return differences;
}

static void print(const std::vector<Difference> &differences) {
  for (const auto &[subject, first, second] : differences) {
    if (first)
      std::cout << makePrintable("- " + subject + ": " + *first) << "\n";
    if (second)
      std::cout << makePrintable("+ " + subject + ": " + *second) << "\n";
  }
}

static void addRows(Document &document, const std::vector<Difference> &differences) {
  document.addTable("differences", {"subject", "first", "second"});
  auto cell = [](const std::string *text) { return text ? Cell(*text) : Cell(nullptr); };
  for (const auto &[subject, first, second] : differences)
    document.addRow({subject, cell(first), cell(second)});
}

static int diff(const Settings &settings) {
  auto load = [](const std::string &path) { return Plan::load(path, {.requireTarget = false}); };
  std::shared_ptr<const Plan> a = load(settings.first), b = load(settings.second);
  bool isJson = settings.format.isJson();
  size_t most = isJson ? std::numeric_limits<size_t>::max() : kMostCosts;
  Document document;
  std::string missing;
  std::optional<CostSheet> first = findCosts(*a, missing), second = findCosts(*b, missing);
  bool countsLoops = first && second;
  Facts before = getFacts(*a, countsLoops), after = getFacts(*b, countsLoops);
  std::vector<Difference> differences = compare(before, after);
  bool costsDiffer = first && second && addCostChanges(document, *first, *second, {}, most);
  bool differ = costsDiffer || !differences.empty() || a->getDigest() != b->getDigest();
  if (isJson) {
    document.addField("differ", differ);
    if (!missing.empty())
      document.addField("no_costs", missing);
    addRows(document, differences);
    settings.format.write(document);
  } else if (!differ) {
    std::cout << "the plans are equal\n";
  } else {
    if (!missing.empty())
      std::cout << "no costs: " << makePrintable(missing) << "\n";
    if (costsDiffer)
      settings.format.write(document);
    if (costsDiffer && !differences.empty())
      std::cout << "\n";
    print(differences);
    if (!costsDiffer && differences.empty())
      std::cout << "the plans do the same, but their files differ\n";
  }
  return differ && settings.exitCode ? 1 : 0;
}

Verb gridloom::rt::addDiff(CLI::App &app) {
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand("diff", "Show how two plans differ, and what that costs");
  verb->footer(examples);
  verb->add_option("first", settings->first, "a plan")->required();
  verb->add_option("second", settings->second, "another")->required();
  verb->add_flag("--exit-code", settings->exitCode, "exit with 1 when they differ");
  settings->format.addOptions(*verb);
  return {verb, [settings] { return diff(*settings); }};
}
