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

/// What the learning rate is multiplied by in each step. Steps are committed ones, from 0. The
/// first `warmup` steps have (step + 1) / warmup, so that the first is not 0; what follows counts
/// from there, up to what it has after `total` steps, the last of which is taken just before,
/// and stays that:
///
///   constant  1
///   linear    from 1 straight to `min`
///   cosine    from 1 to `min` along half a cosine
///   step      `gamma` to the power of how often `every` steps have passed
struct Schedule {
  enum Kind { Constant, Linear, Cosine, Step } kind = Constant;
  int64_t warmup = 0, total = 0, every = 0;
  double min = 0, gamma = 0;

  /// Reads a schedule as kScheduleGrammar describes. `steps` is the total where the text gives
  /// none; 0: there is no such. Throws InvalidArgument naming what is wrong.
  static Schedule parse(const std::string &text, int64_t steps);
  /// The factor of a step.
  double getFactor(int64_t step) const;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_SCHEDULE_H
