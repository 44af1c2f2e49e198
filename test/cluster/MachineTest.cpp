//===- MachineTest.cpp - levels of clusters and groups on them ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Machine.h"
#include "cluster/Presets.h"

#include <gmock/gmock.h>

using namespace gridloom::cluster;

namespace {

constexpr double kGiga = 1e9;

/// Hosts of `sizes` devices, each on a switch of 400 GB/s with one network adapter of 40 GB/s.
Cluster makeHostsOf(const std::vector<uint32_t> &sizes) {
  Cluster cluster;
  cluster.kinds = {*findKind("H100-80GB")};
  for (uint32_t size : sizes)
    cluster.devices.insert(cluster.devices.end(), size, 0);
  cluster.numSwitches = static_cast<uint32_t>(sizes.size()) + 1;
  auto count = static_cast<uint32_t>(cluster.devices.size());
  uint32_t network = count + static_cast<uint32_t>(sizes.size()), device = 0;
  for (uint32_t host = 0; host < sizes.size(); ++host) {
    for (uint32_t i = 0; i < sizes[host]; ++i)
      cluster.links.push_back({device++, count + host, 1e-6, {400 * kGiga, 400 * kGiga}});
    cluster.links.push_back({count + host, network, 5e-6, {40 * kGiga, 40 * kGiga}});
  }
  return cluster;
}

TEST(MachineTest, AnAdapterIsSharedByTheDevicesOfItsHost) {
  Machine machine = makeMachine(makeHostsOf({4, 4}), 8);
  ASSERT_EQ(machine.levels.size(), 2U);
  EXPECT_EQ(machine.levels[0], (Level{4, 2e-6, 400 * kGiga}));
  EXPECT_EQ(machine.levels[1].block, 8);
  EXPECT_DOUBLE_EQ(machine.levels[1].bytesPerSecond, 10 * kGiga);
  EXPECT_DOUBLE_EQ(machine.levels[1].latencySeconds, 12e-6);
}

TEST(MachineTest, AnAdapterPerDeviceIsItsOwn) {
  Machine machine = makeMachine(makeHosts(*findPreset("HGX-H100"), 16), 16);
  ASSERT_EQ(machine.levels.size(), 2U);
  EXPECT_EQ(machine.levels[0], (Level{8, 2e-6, 360 * kGiga}));
  EXPECT_EQ(machine.levels[1].bytesPerSecond, 40 * kGiga);
  // The route may go through another device of the host that has the adapter: within the host,
  // across, within the host.
  EXPECT_LE(machine.levels[1].latencySeconds, 18e-6);
  EXPECT_GE(machine.levels[1].latencySeconds, 14e-6);
}

TEST(MachineTest, FewDevicesOfACluster) {
  Cluster cluster = makeHosts(*findPreset("HGX-H100"), 16);
  EXPECT_TRUE(makeMachine(cluster, 1).levels.empty());
  EXPECT_EQ(makeMachine(cluster, 4).levels, (std::vector<Level>{{4, 2e-6, 360 * kGiga}}));
  EXPECT_EQ(makeMachine(cluster, 12).levels.size(), 2U);
}

/// Two leaf switches, each with two hosts of 4 adapters of 50 GB/s and one uplink of 100 GB/s:
/// every device gets an eighth of the uplink.
TEST(MachineTest, LinksBetweenSwitchesAreShared) {
  Cluster cluster;
  cluster.kinds = {*findKind("H100-80GB")};
  cluster.devices.assign(16, 0);
  cluster.numSwitches = 7; // four hosts, two leaves, a spine
  auto add = [&](uint32_t from, uint32_t to, double bytes) {
    cluster.links.push_back({from, to, 1e-6, {bytes, bytes}});
  };
  for (uint32_t device = 0; device < 16; ++device) {
    add(device, 16 + device / 4, 400 * kGiga);
    add(device, 20 + device / 8, 50 * kGiga);
  }
  add(20, 22, 100 * kGiga);
  add(21, 22, 100 * kGiga);
  Machine machine = makeMachine(cluster, 16);
  ASSERT_EQ(machine.levels.size(), 3U);
  EXPECT_EQ(machine.levels[0].block, 4);
  EXPECT_EQ(machine.levels[1].block, 8);
  EXPECT_EQ(machine.levels[1].bytesPerSecond, 50 * kGiga);
  EXPECT_EQ(machine.levels[2].block, 16);
  EXPECT_EQ(machine.levels[2].bytesPerSecond, 12.5 * kGiga);
}

TEST(MachineTest, TheSlowerDirectionCounts) {
  Cluster cluster = makeHostsOf({2});
  for (Link &link : cluster.links)
    link.bytesPerSecond[1] = 7 * kGiga;
  EXPECT_EQ(makeMachine(cluster, 2).levels[0].bytesPerSecond, 7 * kGiga);
}

TEST(MachineTest, UnequalHostsHaveWhatDividesThem) {
  Machine machine = makeMachine(makeHostsOf({6, 6}), 12);
  EXPECT_EQ(machine.levels[0].block, 6);
  machine = makeMachine(makeHostsOf({8, 4, 8}), 20);
  EXPECT_EQ(machine.levels[0].block, 4);
  // No block size puts every aligned block of ranks on one host: all use the network.
  machine = makeMachine(makeHostsOf({3, 4, 1}), 8);
  ASSERT_EQ(machine.levels.size(), 1U);
  EXPECT_LT(machine.levels[0].bytesPerSecond, 40 * kGiga);
}

TEST(MachineTest, MixedDevices) {
  Cluster cluster = makeHostsOf({4, 4});
  cluster.kinds.push_back(*findKind("A100-80GB"));
  for (size_t device = 4; device < 8; ++device)
    cluster.devices[device] = 1;
  EXPECT_EQ(makeMachine(cluster, 4).getName(), "H100-80GB");
  Machine machine = makeMachine(cluster, 8);
  EXPECT_EQ(machine.getName(), "H100-80GB+A100-80GB");
  EXPECT_EQ(machine.getMemoryBytes(), int64_t(80) << 30);
}

TEST(MachineTest, AxesAreOnTheLevelsOfTheirStrides) {
  Machine machine{{}, {{8, 1, 100}, {32, 9, 10}}};
  EXPECT_EQ(placeGroup(machine, {{{8, 1}}}), (Group{{8, 1, 100}}));
  EXPECT_EQ(placeGroup(machine, {{{4, 8}}}), (Group{{4, 9, 10}}));
  EXPECT_EQ(placeGroup(machine, {{{16, 1}}}), (Group{{8, 1, 100}, {2, 9, 10}}));
  EXPECT_EQ(placeGroup(machine, {{{8, 4}}}), (Group{{2, 1, 100}, {4, 9, 10}}));
  // Groups over several axes: data=4 outside, model=2 and tensor=4 inside.
  EXPECT_EQ(placeGroup(machine, {{{2, 4}, {4, 1}}}), (Group{{8, 1, 100}}));
  EXPECT_EQ(placeGroup(machine, {{{4, 8}, {4, 1}}}), (Group{{4, 1, 100}, {4, 9, 10}}));
  EXPECT_EQ(placeGroup(machine, {}), Group());
  EXPECT_EQ(placeGroup(machine, {{{1, 8}}}), Group());
}

TEST(MachineTest, AxesThatFitNoBlockAreOutside) {
  Machine machine{{}, {{6, 1, 100}, {12, 9, 10}}};
  EXPECT_EQ(placeGroup(machine, {{{4, 1}}}), (Group{{2, 1, 100}, {2, 9, 10}}));
  EXPECT_EQ(placeGroup(machine, {{{3, 4}}}), (Group{{3, 9, 10}}));
  EXPECT_EQ(placeGroup(machine, {{{3, 1}}}), (Group{{3, 1, 100}}));
}

/// Two hosts of `devices` devices each, which share `cores` cores; rates are those of one core.
Cluster makeSharedHosts(uint32_t devices, int64_t cores) {
  Cluster cluster = makeHostsOf({devices, devices});
  DeviceKind &kind = cluster.kinds[0];
  kind.cores = 1;
  kind.launchSeconds = 1e-6;
  kind.collectiveSeconds = 1e-5;
  kind.efficiency[0].points = {{1e6, 0.5}, {1e9, 1}};
  cluster.sharedCores = {{0, devices, cores}, {devices, devices, cores}};
  return cluster;
}

TEST(MachineTest, DevicesOfAHostShareItsCores) {
  Cluster cluster = makeSharedHosts(4, 4);
  EXPECT_EQ(makeMachine(cluster, 4).kinds, cluster.kinds);
  EXPECT_EQ(makeMachine(cluster, 8).kinds, cluster.kinds);
  // Two ranks alone get two cores each: twice the rate, and each core does half of the work.
  DeviceKind two = makeMachine(cluster, 2).kinds[0];
  EXPECT_EQ(two.cores, 2);
  EXPECT_EQ(two.bytesPerSecond, 2 * cluster.kinds[0].bytesPerSecond);
  EXPECT_EQ(two.getRate(WorkClass::Contraction, NumberType::F32),
            2 * cluster.kinds[0].getRate(WorkClass::Contraction, NumberType::F32));
  EXPECT_EQ(two.efficiency[0].at(2e6), 0.5);
  EXPECT_EQ(two.launchSeconds, 1e-6);
  // A rank gets a whole number of threads.
  EXPECT_EQ(makeMachine(cluster, 3).kinds[0].cores, 1);
}

TEST(MachineTest, RanksBeyondTheCoresTakeTurns) {
  Cluster cluster = makeSharedHosts(4, 2);
  DeviceKind half = makeMachine(cluster, 8).kinds[0];
  EXPECT_EQ(half.cores, 0.5);
  EXPECT_EQ(half.bytesPerSecond, cluster.kinds[0].bytesPerSecond / 2);
  EXPECT_EQ(half.launchSeconds, 2e-6);
  EXPECT_EQ(half.collectiveSeconds, 1e-5);
  EXPECT_EQ(half.efficiency, cluster.kinds[0].efficiency);
  // The fullest host counts: of five ranks it has four.
  EXPECT_EQ(makeMachine(cluster, 5).kinds[0].cores, 0.5);
  // A device with cores of its own does not speed up the others.
  cluster.sharedCores.pop_back();
  EXPECT_EQ(makeMachine(cluster, 8).kinds[0].cores, 0.5);
  EXPECT_EQ(makeMachine(cluster, 1).kinds[0].cores, 2);
}

TEST(MachineTest, RatesOfSeveralCoresAreScaledBothWays) {
  DeviceKind kind = makeSharedHosts(1, 1).kinds[0], four = withCores(kind, 4);
  EXPECT_EQ(withCores(four, 1), kind);
  EXPECT_EQ(withCores(withCores(four, 0.25), 1), kind);
  kind.cores = 0; // unknown
  EXPECT_EQ(withCores(kind, 4), kind);
}

} // namespace
