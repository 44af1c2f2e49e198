//===- TrainingEvents.h - a training run for TensorBoard --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_TRAININGEVENTS_H
#define GRIDLOOM_RUNTIME_TRAIN_TRAININGEVENTS_H

#include "runtime/train/EventLog.h"
#include "runtime/train/Trainer.h"

namespace gridloom::rt {

/// Event files (EventLog.h) of the taken steps, by step number: `loss`, metrics, `learning_rate`,
/// `gradient_norm`, `samples_per_second`; `eval_loss` and `eval_` metrics; and histograms
/// `parameters/NAME`. A resumed run continues in its folder. If there is no checkpoint and it
/// starts anew, earlier files are moved into a subfolder.
class TrainingEvents {
public:
  /// Throws InvalidArgument if the folder has events, unless `setup` resumes a run.
  static void check(const std::filesystem::path &folder, const TrainingSetup &setup);

  /// Throws as EventLog's constructor does.
  TrainingEvents(const std::filesystem::path &folder, const TrainingSetup &setup);

  /// The subfolder with the files of an earlier run without a checkpoint, "earlier.1" or a later
  /// number; empty if there were none.
  const std::filesystem::path &getKept() const { return kept; }

  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);
  void add(int64_t step, const std::string &parameter, const HostArray &value);
  void flush() { log.flush(); }
  /// As EventLog::sync.
  void sync() const { log.sync(); }

private:
  const TrainingSetup &setup;
  std::filesystem::path kept;
  EventLog log;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAININGEVENTS_H
