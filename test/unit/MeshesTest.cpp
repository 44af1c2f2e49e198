//===- MeshesTest.cpp - meshes that the planner tries ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Meshes.h"

#include <gmock/gmock.h>

using namespace gridloom;
using testing::ElementsAre;

namespace {

cluster::Machine makeHosts(int64_t count, int64_t block) {
  cluster::Machine machine;
  if (block < count)
    machine.levels.push_back({block, 1e-6, 1e11});
  machine.levels.push_back({count, 1e-5, 1e10});
  return machine;
}

std::vector<std::string> list(int64_t count, int64_t block, int64_t rows, size_t mostMeshes = 2) {
  std::vector<std::string> names;
  for (const MeshSpec &mesh :
       makeSearchMeshes(makeHosts(count, block), count, rows, /*mostAxes=*/3, mostMeshes))
    names.push_back(print(mesh));
  return names;
}

TEST(Meshes, TheFirstSplitsRowsAndKeepsTheFastestLinks) {
  EXPECT_THAT(list(1024, 8, 64), ElementsAre("x=64,y=2,z=8", "x=32,y=4,z=8"));
  EXPECT_THAT(list(256, 8, 16), ElementsAre("x=16,y=2,z=8", "x=32,y=4,z=2"));
  EXPECT_THAT(list(256, 8, 32), ElementsAre("x=32,y=4,z=2", "x=16,y=2,z=8"));
}

TEST(Meshes, OneIsEnoughWhereItSaysAll) {
  EXPECT_THAT(list(4, 4, 2), ElementsAre("x=2,y=2"));
  EXPECT_THAT(list(16, 8, 8), ElementsAre("x=2,y=4,z=2"));
  EXPECT_THAT(list(16, 16, 1), ElementsAre("x=4,y=2,z=2"));
  EXPECT_THAT(list(64, 8, 16), ElementsAre("x=8,y=4,z=2"));
  EXPECT_THAT(list(64, 64, 2), ElementsAre("x=8,y=4,z=2"));
}

/// Groups of 8 devices lie within a host of 72, or of 24.
TEST(Meshes, HostsThatDoNotDivideTheDevices) {
  EXPECT_EQ(getFastBlock(makeHosts(256, 72), 256), 8);
  EXPECT_EQ(getFastBlock(makeHosts(256, 72), 128), 8);
  EXPECT_EQ(getFastBlock(makeHosts(64, 24), 64), 8);
  EXPECT_EQ(getFastBlock(makeHosts(25, 8), 25), 25);
  EXPECT_EQ(getFastBlock(makeHosts(64, 64), 32), 32);
  EXPECT_THAT(list(256, 72, 16), ElementsAre("x=16,y=2,z=8", "x=32,y=4,z=2"));
}

TEST(Meshes, OddNumbersHaveFewerAxes) {
  EXPECT_THAT(list(7, 7, 7), ElementsAre("x=7"));
  EXPECT_THAT(list(15, 15, 3), ElementsAre("x=5,y=3"));
  EXPECT_THAT(list(14, 7, 2), ElementsAre("x=2,y=7"));
}

/// Every mesh has all devices, no axis crosses a block boundary, and every divisor is some product.
TEST(Meshes, EveryDivisorIsAProductOfAxes) {
  for (int64_t block : {1, 4, 8, 12})
    for (int64_t blocks : {1, 2, 3, 6, 8, 32, 128}) {
      int64_t count = block * blocks;
      if (count == 1)
        continue;
      std::vector<bool> isSaid(count + 1);
      for (const MeshSpec &mesh :
           makeSearchMeshes(makeHosts(count, block), count, 1, /*mostAxes=*/3, 20)) {
        EXPECT_EQ(countDevices(mesh), count);
        int64_t stride = 1;
        for (const AxisSpec &axis : llvm::reverse(mesh)) {
          EXPECT_TRUE(stride % block == 0 || block % (stride * axis.size) == 0)
              << print(mesh) << " in blocks of " << block;
          stride *= axis.size;
        }
        for (unsigned some = 0; some < 1U << mesh.size(); ++some) {
          int64_t product = 1;
          for (size_t i = 0; i < mesh.size(); ++i)
            product *= some >> i & 1 ? mesh[i].size : 1;
          isSaid[product] = true;
        }
      }
      for (int64_t divisor = 1; divisor <= count && count <= 64; ++divisor)
        EXPECT_TRUE(isSaid[divisor] || count % divisor != 0)
            << divisor << " of " << count << " in blocks of " << block;
    }
}

TEST(Meshes, TheFinestSayAllOthers) {
  auto list = [](int64_t devices, size_t axes) {
    std::string all;
    for (const MeshSpec &mesh : listFinestMeshes(devices, axes))
      all += print(mesh) + " ";
    return all;
  };
  EXPECT_EQ(list(8, 3), "x=2,y=2,z=2 ");
  EXPECT_EQ(list(8, 2), "x=2,y=4 x=4,y=2 ");
  EXPECT_EQ(list(12, 3), "x=2,y=2,z=3 x=2,y=3,z=2 x=3,y=2,z=2 ");
  EXPECT_EQ(list(7, 3), "x=7 ");
}

} // namespace
