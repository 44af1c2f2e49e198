//===- SampleOrder.cpp - the order of samples -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/SampleOrder.h"

#include "support/MixBits.h"

#include <bit>

using namespace gridloom;
using namespace gridloom::rt;

/// Rounds of the Feistel network. Four suffice for many samples, but six did not shuffle five
/// samples evenly. A round takes a few nanoseconds.
static constexpr uint64_t numRounds = 16;

SampleOrder::SampleOrder(int64_t numSamples, uint64_t seed) : numSamples(numSamples), seed(seed) {
  int bits = int(std::bit_width(uint64_t(numSamples - 1)));
  halfBits = bits < 2 ? 1 : (bits + 1) / 2;
}

/// The Feistel network on numbers of 2 * halfBits bits: a permutation of them.
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
  // Cycle walking: repeat until the number is a sample. That takes at most four rounds on average,
  // since there are at most four times as many numbers as samples.
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
