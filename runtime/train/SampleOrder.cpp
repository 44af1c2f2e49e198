//===- SampleOrder.cpp - which samples a step reads -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/SampleOrder.h"

#include "support/MixBits.h"

#include <bit>

using namespace gridloom;
using namespace gridloom::rt;

/// Rounds of the Feistel network. Four are enough for many samples; five samples were not shuffled
/// evenly with six. A round takes some nanoseconds.
static constexpr uint64_t numRounds = 16;

SampleOrder::SampleOrder(int64_t numSamples, uint64_t seed) : numSamples(numSamples), seed(seed) {
  int bits = int(std::bit_width(uint64_t(numSamples - 1)));
  halfBits = bits < 2 ? 1 : (bits + 1) / 2;
}

/// Swaps and mixes the halves of a number of 2 * halfBits bits: a permutation of these numbers.
uint64_t SampleOrder::permute(uint64_t value, uint64_t key) const {
  uint64_t mask = (uint64_t(1) << halfBits) - 1, high = value >> halfBits, low = value & mask;
  for (uint64_t round = 0; round < numRounds; ++round) {
    uint64_t next = high ^ (mixBits(key ^ mixBits(low * numRounds + round)) & mask);
    high = low;
    low = next;
  }
  return high << halfBits | low;
}

int64_t SampleOrder::getSample(int64_t cursor) const {
  uint64_t key = mixBits(mixBits(seed) ^ uint64_t(getEpoch(cursor)));
  // A number outside of the samples leads on to another one; the walk comes back to the samples
  // after less than four numbers on average, since there are less than four times as many.
  uint64_t value = uint64_t(cursor % numSamples);
  do
    value = permute(value, key);
  while (value >= uint64_t(numSamples));
  return int64_t(value);
}

std::vector<int64_t> SampleOrder::getBatch(int64_t cursor, int64_t size) const {
  std::vector<int64_t> batch;
  for (int64_t i = 0; i < size; ++i)
    batch.push_back(getSample(cursor + i));
  return batch;
}
