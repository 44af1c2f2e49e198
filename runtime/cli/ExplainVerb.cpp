//===- ExplainVerb.cpp - gridloom explain ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/ReportFile.h"
#include "runtime/cli/ReportViews.h"
#include "support/ExplainText.h"
#include "support/OutputFormat.h"

#include <CLI/CLI.hpp>

using namespace gridloom;
using namespace gridloom::rt;

namespace {

struct Settings {
  std::string plan, value, whyNot;
  int64_t collective = -1, stage = -1;
  bool alternatives = false;
  OutputFormat format;
};

} // namespace

static int explain(const Settings &settings) {
  Json report = readReport(settings.plan);
  Document document = !settings.value.empty()    ? explainValue(report, settings.value)
                      : settings.collective >= 0 ? explainCollective(report, settings.collective)
                      : settings.stage >= 0      ? explainStage(report, settings.stage)
                                                 : explainPlan(report, settings.format.isJson());
  settings.format.write(document);
  return 0;
}

/// Validates the text of --value; "" if it is valid.
static std::string requireValueName(const std::string &name) {
  return name.empty() ? "it is empty; write a node, weight or input, as in --value encoder.q" : "";
}

Verb gridloom::rt::addExplain(CLI::App &app) {
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand("explain", "Explain a plan's decisions and their costs");
  verb->footer(kExplainExamples);
  verb->add_option("plan", settings->plan, "folder that 'gridloom compile' wrote")->required();
  auto *value = verb->add_option("--value", settings->value, kValueHelp)->check(requireValueName);
  auto *collective =
      verb->add_option("--collective", settings->collective, "the id of a collective")
          ->check(CLI::Range(0, 1 << 30))
          ->excludes(value);
  verb->add_option("--stage", settings->stage, kStageHelp)
      ->check(CLI::Range(0, 1 << 20))
      ->excludes(value)
      ->excludes(collective);
  // The compiler parses these (plansAgain); they are declared here for --help.
  verb->add_option("--why-not", settings->whyNot, kWhyNotHelp)
      ->type_name("NAME=SHARDING|mesh=MESH");
  verb->add_flag("--alternatives", settings->alternatives, kAlternativesHelp);
  settings->format.addOptions(*verb);
  return {verb, [settings] { return explain(*settings); }};
}
