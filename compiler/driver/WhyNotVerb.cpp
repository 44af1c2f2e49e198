//===- WhyNotVerb.cpp - gridloom explain, where it plans again ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/WhyNotVerb.h"

#include "compiler/driver/WhyNot.h"
#include "support/ExplainText.h"
#include "support/Text.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

using namespace gridloom;

/// Rows of a table of differences, for people.
static constexpr size_t kMostRows = 8;
/// Relative differences below this are rounding.
static constexpr double kEqual = 1e-9;

/// What is wrong with the text of --why-not; "" where that is nothing.
static std::string requirePin(const std::string &pin) {
  return pin.empty() ? "it is empty; write NAME=[{axis,...},...] or mesh=axis=size,..." : "";
}

CLI::App *gridloom::addWhyNot(CLI::App &app, WhyNotOptions &options) {
  CLI::App *verb = app.add_subcommand("explain", "Explain a plan's decisions and their costs");
  verb->footer(kExplainExamples);
  verb->add_option("plan", options.plan, "folder that 'gridloom compile' wrote")->required();
  auto *collective = verb->add_option("--collective", options.collective, "the id of a collective")
                         ->check(CLI::Range(0, 1 << 30));
  auto *pin = verb->add_option("--why-not", options.pin, kWhyNotHelp)
                  ->type_name("NAME=SHARDING|mesh=MESH")
                  ->check(requirePin)
                  ->excludes(collective);
  auto *alternatives = verb->add_flag("--alternatives", options.alternatives, kAlternativesHelp)
                           ->needs(collective)
                           ->excludes(pin);
  // These explain without the compiler, alone; they are here to be refused for what they are.
  verb->add_option("--value", options.value, kValueHelp)
      ->excludes(collective)
      ->excludes(pin)
      ->excludes(alternatives);
  verb->add_option("--stage", options.stage, kStageHelp)
      ->excludes(collective)
      ->excludes(pin)
      ->excludes(alternatives);
  options.format.addOptions(*verb);
  return verb;
}

static int fail(const std::string &message) {
  std::cerr << "error: " << makePrintable(message) << "\n";
  return 1;
}

/// To a tenth of a microsecond.
static Cell timeCell(double ms) { return numberCell(ms, 4); }
static std::string timeText(double ms) { return numberCell(ms, ms < 1 ? 4 : 2, "ms").text; }

static double getChange(const PlannedAgain &plan, const Trial &trial) {
  double change = trial.costs.getStepMs() - plan.getCosts().getStepMs();
  return std::abs(change) <= kEqual * plan.getCosts().getStepMs() ? 0 : change;
}

/// "slower (+12 %)"
static std::string judge(const PlannedAgain &plan, const Trial &trial) {
  double now = plan.getCosts().getStepMs(), change = getChange(plan, trial);
  if (trial.isSame)
    return "the plan is split so already";
  if (change == 0)
    return "as fast";
  std::string percent =
      now > 0 ? numberCell(100 * change / now, std::abs(change) < 0.1 * now ? 1 : 0, "%").text : "";
  return std::string(change > 0 ? "slower (+" : "faster (") + percent + ")";
}

/// "slower (+12 %): 12.31 ms instead of 10.99 ms"
static std::string judgeInFull(const PlannedAgain &plan, const Trial &trial) {
  double now = plan.getCosts().getStepMs(), change = getChange(plan, trial);
  std::string text = judge(plan, trial);
  return text + (trial.isSame  ? ""
                 : change == 0 ? ": " + timeText(now)
                               : ": " + timeText(now + change) + " instead of " + timeText(now));
}

static int explainPin(const PlannedAgain &plan, const WhyNotOptions &options) {
  Trial trial = plan.plan(options.pin);
  if (!trial.refusal.empty())
    return fail("not with '" + options.pin + "': " + trial.refusal);
  Document document;
  document.addField("pin", trial.pin);
  document.addField("verdict", judgeInFull(plan, trial));
  if (!trial.stopped.empty())
    document.addField("stopped", trial.stopped);
  document.addField("strategy", trial.strategy);
  if (trial.strategy != plan.getStrategy())
    document.addField("instead_of", plan.getStrategy());
  if (trial.devices != plan.getDevices())
    document.addField("devices", std::to_string(trial.devices) + " instead of " +
                                     std::to_string(plan.getDevices()));
  if (options.format.isJson()) {
    document.addField("plan_ms", plan.getCosts().getStepMs());
    document.addField("pinned_ms", trial.costs.getStepMs());
    document.addField("change_ms", getChange(plan, trial));
  }
  document.addField("compile_it", trial.command);
  addCostChanges(document, plan.getCosts(), trial.costs, {"plan", "pinned"},
                 options.format.isJson() ? std::numeric_limits<size_t>::max() : kMostRows);
  options.format.write(document);
  return 0;
}

static double sumExposed(const CostSheet &costs) {
  double sum = 0;
  for (const CostSheet::Program &program : costs.programs)
    sum += program.exposedMs;
  return sum;
}

static int explainAlternatives(const PlannedAgain &plan, const WhyNotOptions &options) {
  std::string error;
  std::vector<std::string> pins = plan.listAlternatives(options.collective, error);
  if (!error.empty())
    return fail(error);
  std::vector<Trial> trials;
  for (const std::string &pin : pins)
    trials.push_back(plan.plan(pin));
  auto order = [](const Trial &trial) {
    return std::pair(!trial.refusal.empty(), trial.costs.getStepMs());
  };
  std::stable_sort(trials.begin(), trials.end(),
                   [&](const Trial &a, const Trial &b) { return order(a) < order(b); });
  Document document;
  document.addField("collective", options.collective);
  document.addField("step_ms", timeCell(plan.getCosts().getStepMs()));
  const Trial &best = trials.front();
  document.addField("cheapest", best.refusal.empty() ? best.pin + ", " + judgeInFull(plan, best)
                                                     : "none: every other split is refused");
  document.addTable("alternatives",
                    {"pin", "step_ms", "change_ms", "exposed_ms", "memory_bytes", "verdict"});
  for (const Trial &trial : trials) {
    if (!trial.refusal.empty()) {
      document.addRow({trial.pin, nullptr, nullptr, nullptr, nullptr, trial.refusal});
      continue;
    }
    auto memory = trial.costs.memory.find("total");
    document.addRow(
        {trial.pin, timeCell(trial.costs.getStepMs()), timeCell(getChange(plan, trial)),
         timeCell(sumExposed(trial.costs)),
         memory == trial.costs.memory.end() ? Cell(nullptr) : bytesCell(memory->second),
         judge(plan, trial) + (trial.stopped.empty() ? "" : "; stopped " + trial.stopped)});
  }
  options.format.write(document);
  return best.refusal.empty() ? 0 : 1;
}

int gridloom::runWhyNot(const WhyNotOptions &options) {
  std::string error;
  std::optional<PlannedAgain> plan = PlannedAgain::open(options.plan, error);
  if (!plan)
    return error.empty() ? 1 : fail(error);
  return options.pin.empty() ? explainAlternatives(*plan, options) : explainPin(*plan, options);
}
