//===- PresetsTest.cpp - clusters known by name ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"
#include "cluster/Machine.h"

#include <gmock/gmock.h>

using namespace gridloom::cluster;
using testing::HasSubstr;

namespace {

TEST(PresetsTest, AllAreClusters) {
  for (const std::string &name : listPresets()) {
    std::string error;
    std::optional<Cluster> one = findCluster(name, error), three = findCluster(name + "x3", error);
    ASSERT_TRUE(one && three) << error;
    EXPECT_EQ(one->getNumDevices(), findPreset(name)->devices);
    EXPECT_EQ(three->getNumDevices(), 3 * one->getNumDevices());
    EXPECT_FALSE(findSeparateDevice(*three));
    Machine machine = makeMachine(*three, three->getNumDevices());
    ASSERT_EQ(machine.levels.size(), 2U) << name;
    EXPECT_EQ(machine.levels[0].block, one->getNumDevices());
    EXPECT_GT(machine.levels[0].bytesPerSecond, machine.levels[1].bytesPerSecond);
    EXPECT_LT(machine.levels[0].latencySeconds, machine.levels[1].latencySeconds);
    EXPECT_EQ(makeMachine(*one, one->getNumDevices()).levels.size(), 1U);
  }
}

TEST(PresetsTest, AllKindsHaveRatesAndHosts) {
  for (const std::string &name : listKinds()) {
    const DeviceKind &kind = *findKind(name);
    EXPECT_EQ(getUsualPreset(name).kind, name);
    EXPECT_GT(kind.getRate(WorkClass::Contraction, NumberType::F32), 0);
    EXPECT_GE(kind.getRate(WorkClass::Contraction, NumberType::F16),
              kind.getRate(WorkClass::Contraction, NumberType::F32));
    EXPECT_GT(kind.bytesPerSecond, 0);
    EXPECT_GT(kind.launchSeconds, 0);
  }
}

TEST(PresetsTest, ASharedAdapterIsDivided) {
  std::string error;
  Machine machine = makeMachine(*findCluster("p3.16xlargex2", error), 16);
  EXPECT_DOUBLE_EQ(machine.levels[1].bytesPerSecond, 0.8 * 25e9 / 8 / 8);
}

TEST(PresetsTest, DevicesAreThoseOfWholeHosts) {
  std::string error;
  std::optional<Cluster> cluster = findDevices("12xh100-80gb", "cpu", error);
  ASSERT_TRUE(cluster) << error;
  EXPECT_EQ(cluster->getNumDevices(), 12);
  EXPECT_EQ(makeMachine(*cluster, 12).levels[0].block, 8);
  EXPECT_EQ(findDevices("4", "A100-80GB", error)->kinds[0].name, "A100-80GB");
}

TEST(PresetsTest, LargeOnesAreMadeQuickly) {
  std::string error;
  std::optional<Cluster> cluster = findCluster("HGX-H100x12500", error);
  ASSERT_TRUE(cluster) << error;
  EXPECT_EQ(makeMachine(*cluster, 100'000).levels.size(), 2U);
}

TEST(PresetsTest, OtherNamesAreRefused) {
  auto errorOf = [](const std::string &text) {
    std::string error;
    EXPECT_FALSE(findCluster(text, error));
    return error;
  };
  EXPECT_THAT(
      errorOf("HGX-H10"),
      HasSubstr(
          "unknown --cluster 'HGX-H10'; did you mean 'HGX-H100'?; write a file, or one of cpu, "));
  EXPECT_THAT(errorOf("HGX-H10x4"), HasSubstr("did you mean 'HGX-H100'?"));
  EXPECT_THAT(errorOf("p3.16xlarge2"), HasSubstr("did you mean 'p3.16xlarge'?"));
  for (const char *text : {"", "x", "x2", "HGX-H100x", "HGX-H100x0", "HGX-H100x-1", "HGX-H100x1.5"})
    EXPECT_THAT(errorOf(text), HasSubstr("unknown --cluster '" + std::string(text) + "'"));
  EXPECT_THAT(errorOf("HGX-H100x99999999999999999999"), HasSubstr("has more than 1048576 devices"));
}

TEST(PresetsTest, OtherDevicesAreRefused) {
  auto errorOf = [](const std::string &text) {
    std::string error;
    EXPECT_FALSE(findDevices(text, "cpu", error));
    return error;
  };
  for (const char *text : {"", "0", "-1", "four", "0xH100-80GB", "H100-80GB"})
    EXPECT_THAT(errorOf(text), HasSubstr("cannot read --devices '" + std::string(text) + "'"));
  EXPECT_THAT(
      errorOf("8xH100"),
      HasSubstr("--devices names 'H100'; did you mean 'H100-80GB'?; known are cpu, V100-16GB"));
  EXPECT_THAT(errorOf("2000000"), HasSubstr("are too many; the most are 1048576"));
}

} // namespace
