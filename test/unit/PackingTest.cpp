//===- PackingTest.cpp - offsets for blocks of memory -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Packing.h"

#include "gmock/gmock.h"

#include <random>

using namespace gridloom;
using ::testing::ElementsAre;

TEST(Packing, SharesMemoryOfBlocksThatDoNotConflict) {
  Packing packing = packBlocks({{128, {}}, {64, {}}, {100, {}}});
  EXPECT_THAT(packing.offsets, ElementsAre(0, 0, 0));
  EXPECT_EQ(packing.bytes, 128);
}

TEST(Packing, TakesTheSmallestGapThatFits) {
  // Blocks of 256, 192 and 128 bytes one after another; the last block conflicts with the first and
  // the third, and goes into the gap of 192 bytes between them.
  Packing packing = packBlocks({{256, {1, 2, 3}}, {192, {0, 2}}, {128, {0, 1, 3}}, {65, {0, 2}}});
  EXPECT_THAT(packing.offsets, ElementsAre(0, 256, 448, 256));
  EXPECT_EQ(packing.bytes, 576);
}

TEST(Packing, AlignsOffsetsAndKeepsConflictsApart) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    unsigned count = 1 + random() % 40;
    std::vector<MemoryBlock> blocks(count);
    int64_t sum = 0;
    for (MemoryBlock &block : blocks) {
      block.bytes = 1 + random() % 1000;
      sum += (block.bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    }
    for (unsigned i = 0; i < count; ++i)
      for (unsigned j = i + 1; j < count; ++j)
        if (random() % 2) {
          blocks[i].conflicts.push_back(j);
          blocks[j].conflicts.push_back(i);
        }
    Packing packing = packBlocks(blocks);
    EXPECT_LE(packing.bytes, sum);
    for (unsigned i = 0; i < count; ++i) {
      int64_t from = packing.offsets[i], to = from + blocks[i].bytes;
      EXPECT_EQ(from % kBufferAlignment, 0);
      EXPECT_LE(to, packing.bytes);
      for (unsigned j : blocks[i].conflicts)
        EXPECT_TRUE(to <= packing.offsets[j] || packing.offsets[j] + blocks[j].bytes <= from)
            << "blocks " << i << " and " << j << " of round " << round;
    }
  }
}
