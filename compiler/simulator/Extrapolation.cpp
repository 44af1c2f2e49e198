//===- Extrapolation.cpp - many micro-batches from some -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Extrapolation.h"

#include <algorithm>

using namespace gridloom;
using namespace gridloom::sim;

/// The most steps, over all stages, that are run one by one; each takes about 500 bytes.
static constexpr int64_t kMaxSteps = 1 << 17;

int64_t gridloom::sim::countShown(int64_t count, int64_t steps) {
  int64_t most = kMaxSteps / std::max<int64_t>(1, steps) / kLeastShown * kLeastShown;
  return std::min(count, std::max(most, kLeastShown));
}

namespace {

/// Extrapolates the figures of two numbers of micro-batches linearly to `count`.
struct Line {
  int64_t fewer, shown, count;

  double operator()(double less, double more) const {
    double each = (more - less) / static_cast<double>(shown - fewer);
    return more + each * static_cast<double>(count - shown);
  }
  int64_t operator()(int64_t less, int64_t more) const {
    return more + (more - less) / (shown - fewer) * (count - shown);
  }
};

} // namespace

/// Sums are extrapolated; shares are computed from them.
static void extend(rt::RunStats &stats, const rt::RunStats &less, const Line &line) {
  for (double rt::RunStats::*figure :
       {&rt::RunStats::wall, &rt::RunStats::compute, &rt::RunStats::communication,
        &rt::RunStats::exposed, &rt::RunStats::device, &rt::RunStats::busy, &rt::RunStats::kernels})
    stats.*figure = line(less.*figure, stats.*figure);
  if (double shorter = std::min(stats.compute, stats.communication); shorter > 0)
    stats.overlap = (stats.communication - stats.exposed) / shorter;
  if (stats.isPipeline && stats.wall > 0)
    stats.bubble = std::max(0.0, 1 - (stats.compute + stats.exposed) / stats.wall);
}

void gridloom::sim::extrapolate(ProgramRun &run, const ProgramRun &less, int64_t fewer,
                                int64_t shown, int64_t count) {
  Line line{fewer, shown, count};
  run.seconds = line(less.seconds, run.seconds);
  std::vector<rt::RunStats> stats;
  for (size_t i = 0; i < run.stages.size(); ++i) {
    StageRun &stage = run.stages[i];
    for (size_t j = 0; j < stage.steps.size(); ++j) {
      SimulatedStep &step = stage.steps[j];
      const SimulatedStep &before = less.stages[i].steps[j];
      step.times = line(before.times, step.times);
      step.seconds = line(before.seconds, step.seconds);
    }
    extend(stage.stats, less.stages[i].stats, line);
    stats.push_back(stage.stats);
  }
  run.stats = rt::combineStats(stats);
  run.partial.push_back({"micro-batches", shown, count});
}
