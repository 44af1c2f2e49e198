//===- ClusterWriterTest.cpp - clusters written and read back -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/ClusterWriter.h"
#include "cluster/ClusterFile.h"
#include "cluster/Presets.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

using namespace gridloom::cluster;
using testing::HasSubstr;

namespace {

class ClusterWriterTest : public testing::Test {
protected:
  /// Writes the cluster to a file and reads it back, under its own name.
  Cluster writeAndRead(const Cluster &cluster) {
    std::ofstream(path) << formatCluster(cluster);
    std::string error;
    std::optional<Cluster> read = readCluster(path, error);
    EXPECT_TRUE(read) << error << "\n" << formatCluster(cluster);
    if (!read)
      return {};
    read->name = cluster.name;
    return *read;
  }
  ~ClusterWriterTest() override { std::filesystem::remove(path); }

  std::string path =
      testing::TempDir() + "cluster-writer-test-" + std::to_string(::getpid()) + ".json";
};

TEST_F(ClusterWriterTest, PresetsAreReadAsTheyWereWritten) {
  for (const std::string &name : listPresets())
    for (int64_t hosts : {1, 3}) {
      const Preset &preset = *findPreset(name);
      Cluster cluster = makeHosts(preset, hosts * preset.devices - (hosts > 1));
      EXPECT_EQ(writeAndRead(cluster), cluster) << formatCluster(cluster);
    }
}

/// Draws clusters with numbers of many magnitudes, as files may have them, and all their digits.
class RandomCluster {
public:
  explicit RandomCluster(unsigned seed) : random(seed) {}
  Cluster make();

private:
  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }
  double number() { return std::exp(std::uniform_real_distribution<double>(-6.9, 13.8)(random)); }
  EfficiencyCurve makeCurve();
  DeviceKind makeKind(const std::string &name);
  void addDevices(Cluster &cluster);

  std::mt19937 random;
};

EfficiencyCurve RandomCluster::makeCurve() {
  EfficiencyCurve curve;
  double size = 0;
  for (int64_t points = draw(0, 4); points > 0; --points)
    curve.points.emplace_back(size = 1.5 * (size + number()),
                              std::uniform_real_distribution<double>(0.01, 1)(random));
  return curve;
}

DeviceKind RandomCluster::makeKind(const std::string &name) {
  DeviceKind kind;
  kind.name = name;
  kind.target = draw(0, 1) ? "cpu" : "";
  kind.memoryBytes = draw(0, 1) * draw(1, int64_t(1) << 50);
  kind.bytesPerSecond = number();
  kind.launchSeconds = draw(0, 1) ? number() : 0;
  kind.collectiveSeconds = draw(0, 1) ? number() : 0;
  kind.cores = draw(0, 1) ? number() : 0;
  for (auto &rates : kind.flopsPerSecond)
    for (double &rate : rates)
      rate = draw(0, 1) ? number() : 0;
  kind.flopsPerSecond[0][static_cast<size_t>(NumberType::F32)] = number();
  for (EfficiencyCurve *curve : {&kind.efficiency[0], &kind.efficiency[1], &kind.memoryEfficiency})
    *curve = makeCurve();
  return kind;
}

void RandomCluster::addDevices(Cluster &cluster) {
  auto kind = static_cast<uint32_t>(draw(0, static_cast<int64_t>(cluster.kinds.size()) - 1));
  auto first = static_cast<uint32_t>(cluster.devices.size()),
       count = static_cast<uint32_t>(draw(1, 5));
  cluster.devices.insert(cluster.devices.end(), count, kind);
  if (cluster.kinds[kind].cores > 0 && draw(0, 1))
    cluster.sharedCores.push_back({first, count, draw(1, 64)});
}

Cluster RandomCluster::make() {
  Cluster cluster;
  cluster.name = "random \"quoted\" \xc3\xa4";
  for (int64_t kinds = draw(1, 3); kinds > 0; --kinds)
    cluster.kinds.push_back(makeKind("kind " + std::to_string(kinds)));
  for (int64_t entries = draw(1, 4); entries > 0; --entries)
    addDevices(cluster);
  cluster.numSwitches = static_cast<uint32_t>(draw(1, 3));
  auto count = static_cast<uint32_t>(cluster.devices.size());
  double seconds = number(), bytes = number();
  for (uint32_t node = 0; node < cluster.getNumNodes(); ++node) {
    // Rows of equal links, which the writer can merge, and rows that nearly are.
    if (draw(0, 3) == 0)
      bytes = number();
    uint32_t to = count + (draw(0, 7) == 0 ? cluster.numSwitches - 1 : 0);
    if (node != to)
      cluster.links.push_back({node, to, seconds, {bytes, draw(0, 3) ? bytes : number()}});
    if (node != count) // every node is connected
      cluster.links.push_back({node, count, seconds, {bytes, bytes}});
  }
  return cluster;
}

TEST_F(ClusterWriterTest, RandomClustersAreReadAsTheyWereWritten) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Cluster cluster = RandomCluster(seed).make();
    ASSERT_EQ(writeAndRead(cluster), cluster) << "seed " << seed << "\n" << formatCluster(cluster);
  }
}

TEST_F(ClusterWriterTest, EqualLinksOfEqualDevicesAreOneLine) {
  std::string text = formatCluster(makeHosts(*findPreset("GB200-NVL72"), 72));
  EXPECT_THAT(text, HasSubstr(R"("count":72)"));
  EXPECT_THAT(text, HasSubstr(R"("links": [{"ends":["d0","s0"])"));
  EXPECT_LT(text.size(), 1000U);
}

TEST_F(ClusterWriterTest, HostsWithCoresOfTheirOwn) {
  Cluster cluster;
  DeviceKind kind = *findKind("cpu");
  kind.name = "core";
  kind.cores = 1;
  cluster.kinds = {kind};
  cluster.devices.assign(6, 0);
  cluster.numSwitches = 1;
  cluster.sharedCores = {{0, 4, 2}, {5, 1, 1}};
  for (uint32_t device = 0; device < 6; ++device)
    cluster.links.push_back({device, 6, 1e-6, {1e9, 1e9}});
  EXPECT_EQ(writeAndRead(cluster), cluster);
}

} // namespace
