//===- TrainingEvents.cpp - a training run for TensorBoard ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/TrainingEvents.h"

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static std::optional<EventPlace> findPlace(const TrainingSetup &setup) {
  if (!setup.checkpoint)
    return std::nullopt;
  const EvaluationHistory &before = setup.checkpoint->evaluations;
  return EventPlace{setup.begin.step, setup.isEvaluatedFirst(),
                    before.lastStep == setup.begin.step ? before.atLastStep : 0};
}

/// Whether to move existing events away. They may be of a run whose checkpoints are elsewhere.
static bool keepsEarlier(const TrainingSetup &setup) {
  return setup.settings.resume && !setup.checkpoint;
}

void TrainingEvents::check(const fs::path &folder, const TrainingSetup &setup) {
  setup.plan->requireOutside("--log-dir", folder);
  EventLog::check(folder, keepsEarlier(setup) ? EventPlace() : findPlace(setup));
}

TrainingEvents::TrainingEvents(const fs::path &folder, const TrainingSetup &setup)
    : setup(setup), kept(keepsEarlier(setup) ? EventLog::moveEarlier(folder) : ""),
      log(folder, findPlace(setup)) {}

void TrainingEvents::add(const StepRecord &record) {
  if (!record.committed)
    return;
  std::map<std::string, double> scalars = {
      {"learning_rate", record.learningRate},
      {"samples_per_second", double(setup.step.batch) / record.milliseconds * 1e3}};
  for (const auto &[name, value] : record.values)
    if (isMetric(name) || name == "loss" || name == "gradient_norm" || name == kLossScale)
      scalars[name] = value;
  log.add(record.taken, scalars);
}

void TrainingEvents::add(const EvaluationRecord &record) {
  std::map<std::string, double> scalars;
  for (const auto &[name, value] : record.values)
    if (isMetric(name) || name == "loss")
      scalars["eval_" + name] = value;
  log.add(record.taken, scalars);
}

void TrainingEvents::add(int64_t step, const std::string &parameter, const HostArray &value) {
  log.add(step, "parameters/" + parameter, Histogram::of(value));
}
