//===- TrainingLog.h - CSV log of steps -------------------------*- C++ -*-===//
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

/// A CSV file with a row for each step and the evaluation after it, if any:
///
///   step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,loss_scale,METRICS,ms,
///   eval_loss,eval_METRICS
///
/// `loss_scale` is there if the plan has one. `first_sample` is the number of samples that the
/// whole run read before the step. A resumed run cuts off rows after its checkpoint and writes them
/// again. If there is no checkpoint and the run starts anew, the earlier log is renamed.
class TrainingLog {
public:
  /// Throws InvalidArgument if the file exists, unless `setup` resumes a run and the file is its
  /// log.
  static void check(const std::filesystem::path &path, const TrainingSetup &setup);

  /// The new name of an earlier run's log without a checkpoint, "log.csv.1" or a later number;
  /// empty if there was none with rows.
  const std::filesystem::path &getKept() const { return keptPath; }

  /// Opens the file and locks it for this run, as CheckpointLock does. Throws InvalidArgument with
  /// the path and the system's reason, or if another run has it.
  TrainingLog(std::filesystem::path path, const TrainingSetup &setup);
  ~TrainingLog();
  TrainingLog(const TrainingLog &) = delete;
  TrainingLog &operator=(const TrainingLog &) = delete;

  /// The row is written to the file by the next call at the latest.
  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);
  /// Writes the last row. Throws InvalidArgument with the path and the system's reason.
  void flush();
  /// Also writes the last row, but its evaluation may still follow. A pipe's row waits for it,
  /// since it cannot be replaced there.
  void flushBeforeEvaluation();
  /// Waits until flushed rows are on disk, so that a checkpoint that survives a power failure has
  /// its rows. May run in another thread at the same time.
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
  bool isFile = false;        // a regular one
  std::string row, evaluated; // of the last step
  /// If the evaluation of the file's last row follows or is done again: the row without it, and its
  /// offset.
  std::string lastRow;
  size_t lastBegin = 0;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAININGLOG_H
