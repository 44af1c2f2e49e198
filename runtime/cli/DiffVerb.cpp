//===- DiffVerb.cpp - gridloom diff ---------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/Job.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/MemoryNeeds.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/plan.pb.h"
#include "support/Document.h"
#include "support/Text.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

static const char *const examples = R"(
Examples:
  gridloom diff before.plan after.plan
  gridloom diff a.plan b.plan --exit-code     exit code 1 when they differ

Lines begin with - for the first plan and + for the second.)";

namespace {

/// The facts to compare: one line per subject.
using Facts = std::map<std::string, std::string>;

} // namespace

/// The compiler's estimates, from the report; a plan may be without one.
static void addTimes(const Plan &plan, Facts &facts) {
  std::ifstream file(plan.getFolder() / "report.json");
  nlohmann::json report = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("estimates") || !report["estimates"].is_array())
    return;
  for (const nlohmann::json &estimate : report["estimates"]) {
    if (!estimate.is_object() || !estimate.contains("entry") || !estimate["entry"].is_string())
      continue;
    std::string text;
    for (auto [key, name] : {std::pair("step_ms", "step"),
                             {"compute_ms", "compute"},
                             {"comm_ms", "comm"},
                             {"exposed_ms", "exposed"}}) {
      auto number = estimate.find(key);
      if (number == estimate.end() || !number->is_number())
        continue;
      text += (text.empty() ? "" : ", ") + std::string(name) + " " +
              numberCell(number->get<double>(), 3).text + " ms";
    }
    auto found = estimate.find("dims");
    bool hasDims = found != estimate.end() && found->is_string();
    std::string dims = hasDims ? found->get<std::string>() : "";
    facts["2 estimate of " + estimate["entry"].get<std::string>() +
          (dims.empty() ? "" : " (" + dims + ")")] = text;
  }
}

static Facts getFacts(const Plan &plan) {
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
  addTimes(plan, facts);
  for (const auto &[kind, count] : countSteps(plan))
    facts["3 " + kind + " steps"] = std::to_string(count);
  std::map<std::string, std::pair<int64_t, uint64_t>> sums;
  for (const PlannedCollective &c : findCollectives(plan)) {
    std::string over;
    for (const std::string &axis : c.axes)
      over += (over.empty() ? "" : ".") + axis;
    auto &[times, bytes] = sums["4 stage " + std::to_string(c.stage) + " " + c.kind + " " +
                                (c.axes.empty() ? "" : "over ") + over + " for " + c.origin];
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

static int diff(const std::string &first, const std::string &second, bool exitCode) {
  auto load = [](const std::string &path) { return Plan::load(path, {.requireTarget = false}); };
  std::shared_ptr<const Plan> a = load(first), b = load(second);
  Facts before = getFacts(*a), after = getFacts(*b);
  std::set<std::string> subjects;
  for (const Facts *facts : {&before, &after})
    for (const auto &[subject, value] : *facts)
      subjects.insert(subject);
  bool differ = false;
  for (const std::string &subject : subjects) {
    auto old = before.find(subject), now = after.find(subject);
    if (old != before.end() && now != after.end() && old->second == now->second)
      continue;
    differ = true;
    std::string name = subject.substr(2); // the number only orders
    if (old != before.end())
      std::cout << "- " << name << ": " << old->second << "\n";
    if (now != after.end())
      std::cout << "+ " << name << ": " << now->second << "\n";
  }
  if (!differ && a->getDigest() != b->getDigest()) {
    differ = true;
    std::cout << "the plans do the same, but their files differ\n";
  } else if (!differ) {
    std::cout << "the plans are equal\n";
  }
  return differ && exitCode ? 1 : 0;
}

Verb gridloom::rt::addDiff(CLI::App &app) {
  struct Settings {
    std::string first, second;
    bool exitCode = false;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand("diff", "Show how two plans differ");
  verb->footer(examples);
  verb->add_option("first", settings->first, "a plan")->required();
  verb->add_option("second", settings->second, "another")->required();
  verb->add_flag("--exit-code", settings->exitCode, "exit with 1 when they differ");
  return {verb, [settings] { return diff(settings->first, settings->second, settings->exitCode); }};
}
