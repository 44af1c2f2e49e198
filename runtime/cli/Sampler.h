//===- Sampler.h - the next token -------------------------------*- C++ -*-===//
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
  /// Draws among so many of the likeliest tokens; 0: among all.
  int64_t topK = 0;
  /// Divides the logits before the softmax; 0: the likeliest token, always.
  double temperature = 0;
  uint64_t seed = 0;
};

/// The next token by its logits: the likeliest one, of equal ones the first; or with a temperature
/// a draw that depends on the logits, the seed, `row` and `step` alone. Throws InvalidArgument when
/// a logit is NaN or none is finite.
int64_t chooseToken(std::span<const float> logits, const SamplingSettings &settings, int64_t row,
                    int64_t step);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_SAMPLER_H
