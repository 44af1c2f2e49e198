//===- Schedule.h - learning rates by step ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_SCHEDULE_H
#define GRIDLOOM_RUNTIME_TRAIN_SCHEDULE_H

#include <cstdint>
#include <string>

namespace gridloom::rt {

/// The grammar of schedules, for --help and errors.
extern const char *const kScheduleGrammar;

/// The factor on the learning rate. Steps are committed ones, from 0. The first `warmup` steps have
/// (step + 1) / warmup, so that the first is not 0. Then steps count from the end of the warm-up;
/// `linear` and `cosine` reach `min` at step `total`, just after the last of `total` steps, and
/// stay there:
///
///   constant  1
///   linear    from 1 straight to `min`
///   cosine    from 1 to `min` along half a cosine
///   step      `gamma` to the power of the number of completed periods of `every` steps
struct Schedule {
  enum Kind { Constant, Linear, Cosine, Step } kind = Constant;
  int64_t warmup = 0, total = 0, every = 0;
  bool usesRunLength = false; // `total` is the run's steps, since the text gives none
  double min = 0, gamma = 0;

  /// Reads a schedule as kScheduleGrammar describes. `steps` is the total if the text gives none;
  /// 0: unknown. Throws InvalidArgument naming what is wrong.
  static Schedule parse(const std::string &text, int64_t steps);
  /// The factor of a step.
  double getFactor(int64_t step) const;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_SCHEDULE_H
