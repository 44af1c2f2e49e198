//===- Overlap.cpp - what hides communication -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Overlap.h"

#include <algorithm>
#include <map>

using namespace gridloom;
using namespace gridloom::sim;

namespace {

/// The computation of a stage, by stream; steps of one stream do not overlap.
class Computation {
public:
  explicit Computation(const StageRun &run);
  /// Calls `visit` with every step that computes between two times, and its seconds there.
  template <typename Visit> void forEach(double begin, double end, Visit visit) const;
  /// Seconds between two times in which nothing computes.
  double getIdle(double begin, double end) const;

private:
  std::map<std::string, std::vector<TimedStep>> streams;
  std::vector<std::pair<double, double>> busy; ///< union of all streams, in order
};

} // namespace

Computation::Computation(const StageRun &run) {
  for (const TimedStep &each : run.timed)
    if (!run.steps[each.step].isCommunication && each.end > each.begin) {
      streams[run.steps[each.step].stream].push_back(each);
      busy.emplace_back(each.begin, each.end);
    }
  for (auto &[name, steps] : streams)
    std::sort(steps.begin(), steps.end(),
              [](const TimedStep &a, const TimedStep &b) { return a.begin < b.begin; });
  std::sort(busy.begin(), busy.end());
  size_t last = 0;
  for (size_t i = 1; i < busy.size(); ++i)
    if (busy[i].first <= busy[last].second)
      busy[last].second = std::max(busy[last].second, busy[i].second);
    else
      busy[++last] = busy[i];
  busy.resize(busy.empty() ? 0 : last + 1);
}

template <typename Visit> void Computation::forEach(double begin, double end, Visit visit) const {
  for (const auto &[name, steps] : streams) {
    auto each = std::partition_point(steps.begin(), steps.end(),
                                     [&](const TimedStep &step) { return step.end <= begin; });
    for (; each != steps.end() && each->begin < end; ++each)
      visit(each->step, std::min(end, each->end) - std::max(begin, each->begin));
  }
}

double Computation::getIdle(double begin, double end) const {
  double idle = end - begin;
  auto each = std::partition_point(busy.begin(), busy.end(),
                                   [&](const auto &span) { return span.second <= begin; });
  for (; each != busy.end() && each->first < end; ++each)
    idle -= std::min(end, each->second) - std::max(begin, each->first);
  return std::max(0.0, idle);
}

std::vector<Overlap> gridloom::sim::findOverlaps(const StageRun &run) {
  Computation computation(run);
  std::vector<Overlap> overlaps(run.steps.size());
  std::vector<std::map<size_t, double>> beside(run.steps.size());
  std::vector<int64_t> shown(run.steps.size()); // runs that are timed
  for (const TimedStep &each : run.timed) {
    if (!run.steps[each.step].isCommunication)
      continue;
    ++shown[each.step];
    overlaps[each.step].waiting += computation.getIdle(each.begin, each.met);
    overlaps[each.step].exposed += computation.getIdle(each.met, each.end);
    computation.forEach(each.met, each.end,
                        [&](size_t step, double seconds) { beside[each.step][step] += seconds; });
  }
  for (size_t i = 0; i < overlaps.size(); ++i) {
    bool isPart = shown[i] && run.steps[i].times > shown[i];
    double scale =
        isPart ? static_cast<double>(run.steps[i].times) / static_cast<double>(shown[i]) : 1;
    overlaps[i].exposed *= scale;
    overlaps[i].waiting *= scale;
    for (auto [step, seconds] : beside[i])
      overlaps[i].beside.push_back({step, seconds * scale});
    std::stable_sort(
        overlaps[i].beside.begin(), overlaps[i].beside.end(),
        [](const Overlap::Beside &a, const Overlap::Beside &b) { return a.seconds > b.seconds; });
  }
  return overlaps;
}
