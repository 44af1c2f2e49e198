//===- SampleOrder.h - the order of samples ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sample q of a run, counted over all epochs, is permutation(seed, epoch)[q mod n] of n samples,
// with epoch = q / n. The only state is q, the cursor: every rank computes the same order, a
// resumed run continues it, and each epoch reads each sample once. A batch that reaches the end of
// an epoch continues with the next one, so all batches are full.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_SAMPLEORDER_H
#define GRIDLOOM_RUNTIME_TRAIN_SAMPLEORDER_H

#include <cstdint>
#include <vector>

namespace gridloom::rt {

class SampleOrder {
public:
  /// The order of `numSamples` samples, at least 1. Uses integers only: it is the same on all
  /// machines.
  SampleOrder(int64_t numSamples, uint64_t seed);

  int64_t getNumSamples() const { return numSamples; }
  int64_t getEpoch(int64_t cursor) const { return cursor / numSamples; }
  /// The sample at `cursor`, which must not be negative.
  int64_t getSample(int64_t cursor) const;
  /// The samples of a batch that begins at `cursor`.
  std::vector<int64_t> getBatch(int64_t cursor, int64_t size) const;

private:
  uint64_t permute(uint64_t value, uint64_t key) const;

  int64_t numSamples;
  uint64_t seed;
  int halfBits = 1;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_SAMPLEORDER_H
