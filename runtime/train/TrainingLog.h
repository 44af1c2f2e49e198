//===- TrainingLog.h - a table of all steps ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_TRAININGLOG_H
#define GRIDLOOM_RUNTIME_TRAIN_TRAININGLOG_H

#include "runtime/train/Trainer.h"

#include <cstdio>
#include <memory>

namespace gridloom::rt {

/// A CSV file with a row for each step, and the evaluation after it where there was one:
///
///   step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,loss_scale,METRICS,ms,
///   eval_loss,eval_METRICS
///
/// `loss_scale` is there where the plan has one.
/// `first_sample` counts the samples of the whole run that were read before the step. A run that
/// was interrupted after its last checkpoint has rows that the resumed one makes again: they go. A
/// log whose run is begun once more, since there is no checkpoint, is kept under another name.
class TrainingLog {
public:
  /// Throws InvalidArgument where there is a file of this name, unless `setup` is to resume a run
  /// whose log it is.
  static void check(const std::filesystem::path &path, const TrainingSetup &setup);

  /// The name that the log of a run without a checkpoint was given, "log.csv.1" or a later number;
  /// empty where there was none with a row.
  const std::filesystem::path &getKept() const { return keptPath; }

  /// Opens the file for this run alone: it is locked as long as this lives, as CheckpointLock does.
  /// Throws InvalidArgument with the path and the system's reason, or where another run has it.
  TrainingLog(std::filesystem::path path, const TrainingSetup &setup);
  ~TrainingLog();
  TrainingLog(const TrainingLog &) = delete;
  TrainingLog &operator=(const TrainingLog &) = delete;

  /// The row is in the file when the next one comes, at latest.
  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);
  /// Writes the last row. Throws InvalidArgument with the path and the system's reason.
  void flush();
  /// Waits until the disk has what is flushed: a checkpoint that outlasts a power failure has its
  /// rows then. Any thread may call it beside the others.
  void sync() const;

private:
  void open();
  void keepEarlier(const TrainingSetup &setup);
  std::string readKept(const TrainingSetup &setup);
  void write(std::string_view text);

  std::filesystem::path path, keptPath;
  std::vector<std::string> values, evalValues; // columns after the fixed ones
  struct Closer {
    void operator()(FILE *file) const { fclose(file); }
  };
  std::unique_ptr<FILE, Closer> file;
  std::string row, evaluated; // of the last step
  /// Where all steps were logged before: the last row in the file, but for the evaluation that is
  /// made again, and where it begins.
  std::string lastRow;
  size_t lastBegin = 0;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAININGLOG_H
