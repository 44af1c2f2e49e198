//===- SampleOrder.h - which samples a step reads ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sample q of a run, counted over all epochs, is permutation(seed, epoch)[q mod n] of n samples,
// with epoch = q / n. Nothing is kept but q, the cursor: every rank computes the same order, a
// resumed run continues it, and each epoch reads each sample once. A batch that reaches the end of
// an epoch goes on with the next one, so all batches are whole.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_SAMPLEORDER_H
#define GRIDLOOM_RUNTIME_TRAIN_SAMPLEORDER_H

#include <cstdint>
#include <vector>

namespace gridloom::rt {

class SampleOrder {
public:
  /// The order of `numSamples` samples, at least 1. Integers alone decide: it is the same
  /// everywhere.
  SampleOrder(int64_t numSamples, uint64_t seed);

  int64_t getNumSamples() const { return numSamples; }
  int64_t getEpoch(int64_t cursor) const { return cursor / numSamples; }
  /// The sample that is read at `cursor`, which is not negative.
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
