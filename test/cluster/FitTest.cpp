//===- FitTest.cpp - rates recovered from timings -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Fit.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

using namespace gridloom::cluster;

namespace {

DeviceKind makeTruth() {
  DeviceKind kind;
  kind.bytesPerSecond = 1e10;
  kind.launchSeconds = 3e-6;
  kind.flopsPerSecond[0] = {2e9, 5e10, 0, 1e10, 0};
  kind.flopsPerSecond[1] = {0, 4e9, 0, 0, 0};
  kind.efficiency[0].points = {{1e5, 0.25}, {1e8, 1}};
  kind.memoryEfficiency.points = {{1e4, 1}, {1e8, 0.4}};
  return kind;
}

/// Work of all sizes, timed three times each by the cost library's own formulas.
std::vector<WorkSample> makeSamples(const DeviceKind &truth) {
  std::vector<WorkSample> samples;
  auto add = [&](const Work &work) {
    for (int i = 0; i < 3; ++i)
      samples.push_back({work, getComputeSeconds(truth, work)});
  };
  for (int exponent = 4; exponent < 30; ++exponent) {
    double size = std::exp2(exponent);
    add({WorkClass::Other, NumberType::F32, size / 12, size, size / 2});
    if (size > 1e3)
      add({WorkClass::Other, NumberType::F32, 4 * size, size / 16, size / 16});
    for (NumberType type : {NumberType::F32, NumberType::F64, NumberType::Bf16})
      if (size > (type == NumberType::F32 ? 1e3 : 1e5)) // where f32 outweighs the launch
        add({WorkClass::Contraction, type, size, std::sqrt(size), std::sqrt(size)});
  }
  return samples;
}

/// The largest factor by which the estimates of `kind` and `truth` differ, at least 1.
double getWorstRatio(const DeviceKind &kind, const DeviceKind &truth,
                     std::span<const WorkSample> samples) {
  double worst = 1;
  for (const WorkSample &sample : samples) {
    double ratio = getComputeSeconds(kind, sample.work) / getComputeSeconds(truth, sample.work);
    worst = std::max({worst, ratio, 1 / ratio});
  }
  return worst;
}

bool isSound(const DeviceKind &kind) {
  return kind.bytesPerSecond > 0 && std::isfinite(kind.bytesPerSecond) && kind.launchSeconds >= 0 &&
         kind.memoryEfficiency.isSound() && kind.efficiency[0].isSound() &&
         kind.efficiency[1].isSound() && kind.getRate(WorkClass::Contraction, NumberType::F32) > 0;
}

TEST(FitTest, WorkGivesTheRatesItWasTimedWith) {
  DeviceKind truth = makeTruth(), kind;
  std::vector<WorkSample> samples = makeSamples(truth);
  fitWork(samples, kind);
  EXPECT_TRUE(isSound(kind));
  EXPECT_NEAR(kind.launchSeconds, truth.launchSeconds, 0.05 * truth.launchSeconds);
  EXPECT_NEAR(kind.bytesPerSecond, 1e10, 0.1e10);
  EXPECT_NEAR(kind.flopsPerSecond[0][1], 5e10, 0.1e10);
  EXPECT_NEAR(kind.flopsPerSecond[0][0], 2e9, 0.1e9);
  EXPECT_NEAR(kind.flopsPerSecond[0][3], 1e10, 0.05e10);
  EXPECT_EQ(kind.flopsPerSecond[0][4], 0);
  EXPECT_NEAR(kind.flopsPerSecond[1][1], 4e9, 0.2e9);
  EXPECT_LT(getWorstRatio(kind, truth, samples), 1.15);
}

/// Contractions that hide none, half and all of their memory traffic.
TEST(FitTest, WorkTellsHowMuchIsHidden) {
  DeviceKind truth = makeTruth();
  for (double share : {0.0, 0.5, 1.0}) {
    truth.unhiddenOfContraction = share;
    std::vector<WorkSample> samples = makeSamples(truth);
    for (int exponent = 22; exponent < 30; ++exponent)
      for (double intensity : {2.0, 4.0, 8.0}) {
        double flops = std::exp2(exponent);
        Work work = {WorkClass::Contraction, NumberType::F32, flops, flops / intensity, 0};
        samples.push_back({work, getComputeSeconds(truth, work)});
      }
    DeviceKind kind;
    fitWork(samples, kind);
    EXPECT_NEAR(kind.unhiddenOfContraction, share, 0.25);
    EXPECT_LT(getWorstRatio(kind, truth, samples), 1.6) << share;
  }
}

TEST(FitTest, SlowMomentsDoNotCount) {
  DeviceKind truth = makeTruth();
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    std::vector<WorkSample> samples = makeSamples(truth);
    // The first of each work's three times is up to twenty times too long.
    for (size_t i = 0; i < samples.size(); i += 3)
      samples[i].seconds *= std::uniform_real_distribution<double>(1, 20)(random);
    DeviceKind kind;
    fitWork(samples, kind);
    EXPECT_TRUE(isSound(kind)) << seed;
    EXPECT_LT(getWorstRatio(kind, truth, makeSamples(truth)), 1.3) << seed;
  }
}

TEST(FitTest, TimesThatAreNoneArePassedOver) {
  DeviceKind truth = makeTruth(), kind;
  std::vector<WorkSample> samples = makeSamples(truth);
  for (double seconds : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    samples.push_back({{WorkClass::Contraction, NumberType::F32, 1e6, 1e4, 0}, seconds});
  fitWork(samples, kind);
  EXPECT_LT(getWorstRatio(kind, truth, makeSamples(truth)), 1.15);
  DeviceKind untouched = makeTruth();
  fitWork({}, untouched);
  EXPECT_EQ(untouched, makeTruth());
}

/// A machine whose launches outweigh everything else still gets rates.
TEST(FitTest, LaunchesThatHideAllElse) {
  DeviceKind truth = makeTruth(), kind;
  truth.launchSeconds = 1;
  fitWork(makeSamples(truth), kind);
  EXPECT_TRUE(isSound(kind));
}

TEST(FitTest, CurvesAreInOrderOfSizeWhateverTheTimes) {
  std::lognormal_distribution<double> noise(0, 2);
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<WorkSample> samples = makeSamples(makeTruth());
    for (WorkSample &sample : samples)
      sample.seconds *= noise(random);
    std::shuffle(samples.begin(), samples.end(), random);
    DeviceKind kind;
    fitWork(samples, kind);
    EXPECT_TRUE(isSound(kind)) << seed;
  }
}

double getSeconds(const CollectiveSample &sample, double start, double latency, double bandwidth) {
  Machine machine;
  machine.kinds.resize(1);
  machine.kinds[0].collectiveSeconds = start;
  return getCollectiveSeconds(machine, sample.kind, sample.bytes,
                              {{sample.members, latency, bandwidth}});
}

std::vector<CollectiveSample> makeCollectives(double start, double latency, double bandwidth) {
  std::vector<CollectiveSample> samples;
  for (Collective kind : {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
                          Collective::AllToAll, Collective::Permute})
    for (int64_t members : {2, 4, 6})
      for (int exponent = 10; exponent < 27; exponent += 3) {
        samples.push_back({kind, members, std::exp2(exponent), 0});
        samples.back().seconds = getSeconds(samples.back(), start, latency, bandwidth);
      }
  return samples;
}

TEST(FitTest, CollectivesGiveTheLinksTheyCrossed) {
  for (double start : {1e-6, 4e-5})
    for (double latency : {2e-6, 3e-5})
      for (double bandwidth : {1e8, 2e10}) {
        LinkFit fit = fitLinks(makeCollectives(start, latency, bandwidth));
        EXPECT_LT(fit.medianError, 0.02) << start << " " << latency << " " << bandwidth;
        EXPECT_NEAR(fit.bytesPerSecond / bandwidth, 1, 0.05);
        EXPECT_NEAR((fit.startSeconds + fit.latencySeconds) / (start + latency), 1, 0.1);
      }
}

TEST(FitTest, SlowCollectivesDoNotCount) {
  std::vector<CollectiveSample> samples = makeCollectives(2e-5, 1e-5, 2e9);
  for (size_t i = 0; i < samples.size(); i += 5)
    samples[i].seconds *= 10;
  LinkFit fit = fitLinks(samples);
  EXPECT_NEAR(fit.bytesPerSecond / 2e9, 1, 0.15);
  EXPECT_LT(fit.medianError, 0.1);
}

/// Too few samples for one answer still give usable numbers.
TEST(FitTest, FewCollectives) {
  for (size_t count : {1, 2, 5}) {
    std::vector<CollectiveSample> samples = makeCollectives(2e-5, 1e-5, 2e9);
    samples.resize(count);
    LinkFit fit = fitLinks(samples);
    for (double number : {fit.startSeconds, fit.latencySeconds, fit.bytesPerSecond}) {
      EXPECT_GT(number, 0);
      EXPECT_TRUE(std::isfinite(number));
    }
    EXPECT_LT(fit.medianError, 0.05) << count;
  }
}

/// Many samples of one size do not outweigh a few of another.
TEST(FitTest, SizesCountAlike) {
  std::vector<CollectiveSample> samples = {{Collective::Permute, 2, 1e7, 1e-2}};
  for (int i = 0; i < 1000; ++i)
    samples.push_back({Collective::Permute, 2, 8, 1e-5});
  LinkFit fit = fitLinks(samples);
  EXPECT_NEAR(fit.bytesPerSecond / 1e9, 1, 0.02);
}

TEST(FitTest, Medians) {
  EXPECT_EQ(getMedian({3}), 3);
  EXPECT_EQ(getMedian({4, 1}), 2.5);
  EXPECT_EQ(getMedian({9, 1, 2}), 2);
  EXPECT_EQ(getMedian({9, 1, 2, 4}), 3);
}

} // namespace
