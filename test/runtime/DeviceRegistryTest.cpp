//===- DeviceRegistryTest.cpp - the kinds of devices by name --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Registry.h"
#include "runtime/core/Error.h"
#include "runtime/core/Placement.h"
#include "runtime/device/Registry.h"

#include <gmock/gmock.h>

using namespace gridloom::rt;

namespace {

TEST(DeviceRegistryTest, KindsAreFoundByName) {
  EXPECT_EQ(listDeviceKinds(), "cpu or cuda");
  for (const DeviceKind *kind : getDeviceKinds())
    EXPECT_EQ(findDeviceKind(kind->getName()), kind);
  for (const char *name : {"", "CPU", "cuda:0", "tpu"})
    EXPECT_EQ(findDeviceKind(name), nullptr) << name;
}

TEST(DeviceRegistryTest, EveryTransportJoinsAKindOfDeviceAndEveryKindHasOne) {
  for (const TransportKind *transport : getTransportKinds())
    EXPECT_NE(findDeviceKind(transport->getDeviceKind()), nullptr) << transport->getName();
  for (const DeviceKind *kind : getDeviceKinds())
    EXPECT_NE(listTransports([&](const TransportKind &transport) {
                return transport.getDeviceKind() == kind->getName();
              }),
              "")
        << kind->getName();
}

TEST(DeviceRegistryTest, CpuKnowsItsLevels) {
  const DeviceKind &cpu = *findDeviceKind("cpu");
  DeviceInventory inventory = cpu.takeInventory();
  ASSERT_EQ(inventory.devices.size(), 1u);
  EXPECT_EQ(cpu.findObstacle("x86-64-v9"),
            "is for cpu level x86-64-v9, which this machine lacks; compile with --cpu-arch " +
                inventory.devices[0].level);
  EXPECT_EQ(cpu.findObstacle(inventory.devices[0].level), "");
  EXPECT_GT(inventory.devices[0].bytes, 0u);
  EXPECT_EQ(cpu.create({.threads = 1})->getKind(), "cpu");
}

TEST(DeviceRegistryTest, TheEnvironmentLowersTheLevelAndChoosesKernels) {
  const DeviceKind &cpu = *findDeviceKind("cpu");
  std::string highest = cpu.takeInventory().devices[0].level;
  if (highest.starts_with("x86-64-v"))
    EXPECT_EQ(cpu.create({.threads = 1})->listLibraries("cpu.so"),
              (std::vector<std::string>{"cpu." + highest + ".so", "cpu.so"}));
  ASSERT_EQ(setenv("GRIDLOOM_CPU_LEVEL", "x86-64", 1), 0);
  std::string level = cpu.takeInventory().devices[0].level;
  std::vector<std::string> libraries = cpu.create({.threads = 1})->listLibraries("cpu.so");
  std::string obstacle = cpu.findObstacle("x86-64-v2");
  setenv("GRIDLOOM_CPU_LEVEL", "v3", 1);
  std::string unknown = cpu.findObstacle("x86-64");
  unsetenv("GRIDLOOM_CPU_LEVEL");
  if (!highest.starts_with("x86-64"))
    GTEST_SKIP() << "this CPU is " << highest;
  EXPECT_EQ(level, "x86-64");
  EXPECT_EQ(libraries, (std::vector<std::string>{"cpu.x86-64.so", "cpu.so"}));
  EXPECT_EQ(obstacle, "is for cpu level x86-64-v2, above GRIDLOOM_CPU_LEVEL=x86-64; compile with "
                      "--cpu-arch x86-64");
  EXPECT_EQ(unknown, "cannot run with GRIDLOOM_CPU_LEVEL=v3; unset it, or set x86-64, x86-64-v2, "
                     "x86-64-v3 or x86-64-v4");
}

TEST(DeviceRegistryTest, PlacementNamesTheKindsOfAPlanAndATransport) {
  auto errorOf = [](const std::string &transport, int gpu, const std::string &kind) {
    PlacementOptions options;
    options.transport = transport;
    options.gpu = gpu;
    try {
      options.prepare(kind, 2, /*inProcess=*/true, "the test");
    } catch (const Error &error) {
      EXPECT_EQ(error.getCode(), ErrorCode::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(errorOf("nccl", -1, "cpu"),
            "--transport nccl joins GPUs, but the test is for CPU ranks; use --transport local");
  EXPECT_EQ(errorOf("local", -1, "cuda"),
            "--transport local joins CPU ranks, but the test is for GPUs; use --transport nccl or "
            "loopback");
  EXPECT_EQ(errorOf("", 1, "cpu"), "--device names a GPU, but the test is for cpu");
  EXPECT_EQ(errorOf("", -1, "tpu"), "unknown kind of device 'tpu'; this runtime knows cpu or cuda");
}

} // namespace
