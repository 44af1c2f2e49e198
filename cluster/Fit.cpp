//===- Fit.cpp - rates of a machine from measured times ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Fit.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

using namespace gridloom::cluster;

double gridloom::cluster::getMedian(std::vector<double> values) {
  assert(!values.empty() && "there is no median of nothing");
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1)
    return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

/// Work with at most this many FLOPs per byte waits for memory.
static constexpr double kFlopsOfTraffic = 0.25;
/// Work that spends more than this share on memory says nothing about arithmetic.
static constexpr double kShareOfTraffic = 0.7;
/// Work that spends more than this share on its launch says nothing about rates.
static constexpr double kShareOfLaunch = 0.75;
/// The shorter of arithmetic and memory traffic hardly matters below this share of the longer.
static constexpr double kShareOfShorter = 0.2;
/// Sizes within this many doublings are about the same.
static constexpr double kDoublings = 2;

namespace {

/// The rate that work of a size reached; not telling if something else took most of the time.
struct Reached {
  double size, rate;
  bool isTelling;
};

/// Samples without their launch, and what is known so far.
class WorkFitter {
public:
  WorkFitter(std::span<const WorkSample> samples, DeviceKind &kind) : kind(kind) {
    for (const WorkSample &sample : samples)
      if (std::isfinite(sample.seconds) && sample.seconds > 0)
        valid.push_back(sample);
  }
  void fit();

private:
  void fitLaunch();
  void fitMemory();
  void fitRates(WorkClass work);
  void fitUnhidden(WorkClass work, double DeviceKind::*unhidden);
  double getError(WorkClass work) const;
  std::vector<Reached> collect(WorkClass work, NumberType type) const;
  /// Seconds without the launch, at least a quarter of all.
  double getNet(const WorkSample &sample) const {
    return std::max(sample.seconds - kind.launchSeconds, (1 - kShareOfLaunch) * sample.seconds);
  }
  bool isLong(const WorkSample &sample) const {
    return kind.launchSeconds <= kShareOfLaunch * sample.seconds;
  }

  DeviceKind &kind;
  std::vector<WorkSample> valid;
};

} // namespace

static double getBytes(const Work &work) { return work.readBytes + work.writtenBytes; }

static bool isTraffic(const Work &work) {
  return work.kind == WorkClass::Other && work.flops <= kFlopsOfTraffic * getBytes(work);
}

/// Bins samples by size. Keeps the telling ones of bins in which most are telling: among launches,
/// for example, only disturbed ones seem to be.
static std::map<long, std::vector<Reached>> sortBySize(const std::vector<Reached> &reached) {
  std::map<long, std::vector<Reached>> bins;
  for (const Reached &one : reached)
    bins[std::lround(std::log2(one.size) / kDoublings)].push_back(one);
  for (auto next = bins.begin(); next != bins.end();) {
    std::vector<Reached> &members = next->second;
    size_t all = members.size();
    std::erase_if(members, [](const Reached &one) { return !one.isTelling; });
    next = 2 * members.size() > all ? std::next(next) : bins.erase(next);
  }
  return bins;
}

/// A point for each bin of sizes, with the median of what was reached. Sets the peak, to which
/// shares refer.
static EfficiencyCurve makeCurve(const std::vector<Reached> &reached, double &peak) {
  EfficiencyCurve curve;
  double most = 0;
  for (const auto &[bin, members] : sortBySize(reached)) {
    std::vector<double> sizes, rates;
    for (const Reached &one : members) {
      sizes.push_back(one.size);
      rates.push_back(one.rate);
    }
    double rate = getMedian(rates);
    curve.points.emplace_back(getMedian(sizes), rate);
    most = std::max(most, rate);
  }
  if (curve.points.empty() && !reached.empty()) { // the largest is all that there is
    const Reached &largest =
        *std::max_element(reached.begin(), reached.end(),
                          [](const Reached &a, const Reached &b) { return a.size < b.size; });
    curve.points.emplace_back(largest.size, most = largest.rate);
  }
  for (auto &[size, share] : curve.points)
    share /= most;
  if (most > 0)
    peak = most;
  return curve;
}

/// The launch is the median time of the smallest work by bytes and FLOPs.
void WorkFitter::fitLaunch() {
  auto bySize = [](const WorkSample &a, const WorkSample &b) {
    return getBytes(a.work) + a.work.flops < getBytes(b.work) + b.work.flops;
  };
  std::stable_sort(valid.begin(), valid.end(), bySize);
  std::vector<double> seconds;
  for (const WorkSample &sample : std::span(valid).first(std::max<size_t>(1, valid.size() / 16)))
    seconds.push_back(sample.seconds);
  kind.launchSeconds = getMedian(seconds);
}

void WorkFitter::fitMemory() {
  std::vector<Reached> reached;
  for (const WorkSample &sample : valid)
    if (double bytes = getBytes(sample.work); bytes > 0 && isTraffic(sample.work))
      reached.push_back({bytes, bytes / getNet(sample), isLong(sample)});
  kind.memoryEfficiency = makeCurve(reached, kind.bytesPerSecond);
}

std::vector<Reached> WorkFitter::collect(WorkClass work, NumberType type) const {
  std::vector<Reached> reached;
  for (const WorkSample &sample : valid) {
    double flops = sample.work.flops, bytes = getBytes(sample.work);
    if (sample.work.kind != work || sample.work.type != type || flops <= 0 ||
        isTraffic(sample.work))
      continue;
    double memory = bytes > 0 && kind.bytesPerSecond > 0
                        ? bytes / (kind.bytesPerSecond * kind.memoryEfficiency.at(bytes))
                        : 0;
    double net = getNet(sample), unhidden = kind.getUnhidden(work);
    double arithmetic = std::max(net - unhidden * memory, (1 - kShareOfTraffic) * net);
    reached.push_back({flops, flops / arithmetic,
                       isLong(sample) && memory <= kShareOfTraffic * net / (1 + unhidden)});
  }
  return reached;
}

/// The curve is that of f32; other types share it and get the rates that fit it best.
void WorkFitter::fitRates(WorkClass work) {
  auto number = static_cast<size_t>(work);
  auto &rates = kind.flopsPerSecond[number];
  double &f32 = rates[static_cast<size_t>(NumberType::F32)];
  kind.efficiency[number] = makeCurve(collect(work, NumberType::F32), f32);
  for (size_t type = 0; type < rates.size(); ++type) {
    if (type == static_cast<size_t>(NumberType::F32))
      continue;
    std::vector<double> peaks;
    for (const auto &[bin, members] : sortBySize(collect(work, static_cast<NumberType>(type))))
      for (const Reached &one : members)
        peaks.push_back(one.rate / kind.efficiency[number].at(one.size));
    if (!peaks.empty())
      rates[type] = getMedian(peaks);
  }
}

/// The median error, as a factor's logarithm, of the times of a class to which both arithmetic and
/// memory traffic contribute.
double WorkFitter::getError(WorkClass work) const {
  std::vector<double> errors;
  for (const WorkSample &sample : valid) {
    auto [shorter, longer] = getComputeParts(kind, sample.work);
    if (shorter > longer)
      std::swap(shorter, longer);
    if (sample.work.kind == work && sample.work.type == NumberType::F32 && isLong(sample) &&
        shorter >= kShareOfShorter * longer)
      errors.push_back(std::fabs(std::log(getComputeSeconds(kind, sample.work) / sample.seconds)));
  }
  return errors.empty() ? 0 : getMedian(errors);
}

/// Chooses the unhidden share that explains the times best.
void WorkFitter::fitUnhidden(WorkClass work, double DeviceKind::*unhidden) {
  double best = 0, least = std::numeric_limits<double>::infinity();
  for (double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    kind.*unhidden = share;
    fitRates(work);
    if (double error = getError(work); error < least) {
      best = share;
      least = error;
    }
  }
  kind.*unhidden = best;
  fitRates(work);
}

void WorkFitter::fit() {
  if (valid.empty())
    return;
  fitLaunch();
  fitMemory();
  fitUnhidden(WorkClass::Contraction, &DeviceKind::unhiddenOfContraction);
  fitUnhidden(WorkClass::Other, &DeviceKind::unhiddenOfOther);
}

void gridloom::cluster::fitWork(std::span<const WorkSample> samples, DeviceKind &kind) {
  WorkFitter(samples, kind).fit();
}

//===----------------------------------------------------------------------===//
// Links
//===----------------------------------------------------------------------===//

/// Logarithms of start, latency and bandwidth.
using Parameters = std::array<double, 3>;

static double estimate(const CollectiveSample &sample, const Parameters &parameters) {
  Tier tier{sample.members, std::exp(parameters[1]), std::exp(parameters[2])};
  return std::exp(parameters[0]) + std::min(getRingSeconds(sample.kind, sample.bytes, tier),
                                            getTreeSeconds(sample.kind, sample.bytes, tier));
}

/// The mean over sizes of the mean error of a size: sizes count alike, however many samples have
/// them.
static double getError(std::span<const CollectiveSample> samples, const Parameters &parameters) {
  std::map<double, std::pair<double, int>> sums;
  for (const CollectiveSample &sample : samples) {
    auto &[sum, count] = sums[sample.bytes];
    sum += std::fabs(std::log(estimate(sample, parameters) / sample.seconds));
    ++count;
  }
  double error = 0;
  for (const auto &[bytes, sum] : sums)
    error += sum.first / sum.second;
  return error / static_cast<double>(sums.size());
}

namespace {

/// Searches along the directions in which the error decreases, in steps that shrink.
class Descent {
public:
  Descent(std::span<const CollectiveSample> samples, const Parameters &start);
  void run();

  Parameters best;
  double error;

private:
  bool move(const Parameters &direction, double step);

  std::span<const CollectiveSample> samples;
  Parameters low, high;
};

} // namespace

Descent::Descent(std::span<const CollectiveSample> samples, const Parameters &start)
    : best(start), error(getError(samples, start)), samples(samples) {
  constexpr double shortest = 1e-12;
  double longest = 0, most = 1;
  for (const CollectiveSample &sample : samples) {
    longest = std::max(longest, sample.seconds);
    most = std::max(most, sample.bytes);
  }
  // Links are at least a thousandth as fast as the samples showed.
  low = {std::log(shortest), std::log(shortest), std::log(most / longest / 1e3)};
  high = {std::log(longest), std::log(longest), std::log(most / shortest)};
}

bool Descent::move(const Parameters &direction, double step) {
  Parameters next = best;
  for (size_t i = 0; i < next.size(); ++i)
    next[i] = std::clamp(next[i] + step * direction[i], low[i], high[i]);
  double found = getError(samples, next);
  if (found >= error * (1 - 1e-9))
    return false;
  best = next;
  error = found;
  return true;
}

void Descent::run() {
  static constexpr std::array<Parameters, 6> directions = {
      {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, -1, 0}, {0, 1, 1}, {1, 0, 1}}};
  double step = 4;
  for (int halvings = 0; halvings < 16; ++halvings, step /= 2)
    for (bool improved = true; improved;) {
      improved = false;
      for (const Parameters &direction : directions)
        improved |= move(direction, step) || move(direction, -step);
    }
}

LinkFit gridloom::cluster::fitLinks(std::span<const CollectiveSample> samples) {
  assert(!samples.empty() && "nothing was measured");
  double least = samples.front().seconds, rate = 0;
  for (const CollectiveSample &sample : samples) {
    least = std::min(least, sample.seconds);
    rate = std::max(rate, (sample.bytes + 1) / sample.seconds);
  }
  std::optional<Descent> best;
  // The start and the first step share the time of the shortest sample.
  for (double share : {0.1, 0.5, 0.9}) {
    Descent found(samples,
                  {std::log(share * least), std::log((1 - share) * least), std::log(rate)});
    found.run();
    if (!best || found.error < best->error)
      best = found;
  }
  std::vector<double> errors;
  for (const CollectiveSample &sample : samples)
    errors.push_back(std::fabs(estimate(sample, best->best) / sample.seconds - 1));
  auto [start, latency, bandwidth] = best->best;
  return {std::exp(start), std::exp(latency), std::exp(bandwidth), getMedian(errors)};
}
