//===- Sampler.h - choose the next token ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_SAMPLER_H
#define GRIDLOOM_RUNTIME_CLI_SAMPLER_H

#include <cstdint>
#include <span>

namespace gridloom::rt {

struct SamplingSettings {
  /// Samples from this many most likely tokens; 0: from all.
  int64_t topK = 0;
  /// Divides the logits before the softmax; 0: always takes the most likely token.
  double temperature = 0;
  uint64_t seed = 0;
};

/// The most likely token, the first if several are equal; or with a temperature a sample that
/// depends only on the logits, the seed, `row` and `step`. Throws InvalidArgument if a logit is NaN
/// or none is finite.
int64_t chooseToken(std::span<const float> logits, const SamplingSettings &settings, int64_t row,
                    int64_t step);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_SAMPLER_H
