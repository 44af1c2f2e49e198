//===- Philox.h - random words by counter -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_PHILOX_H
#define GRIDLOOM_SUPPORT_PHILOX_H

#include <array>
#include <cstdint>

namespace gridloom {

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, section 4): four words that look random, as a
/// function of a counter and a key. Kernels, the interpreter and the runtime compute it with these
/// constants.
struct Philox {
  static constexpr int rounds = 10;
  static constexpr uint32_t multipliers[] = {0xD2511F53, 0xCD9E8D57};
  static constexpr uint32_t keySteps[] = {0x9E3779B9, 0xBB67AE85};

  static constexpr uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
  static constexpr uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

  static constexpr std::array<uint32_t, 4> compute(std::array<uint32_t, 4> counter,
                                                   std::array<uint32_t, 2> key) {
    for (int round = 0; round < rounds; ++round) {
      uint64_t even = uint64_t(counter[0]) * multipliers[0];
      uint64_t odd = uint64_t(counter[2]) * multipliers[1];
      counter = {high(odd) ^ counter[1] ^ key[0], low(odd), high(even) ^ counter[3] ^ key[1],
                 low(even)};
      key = {key[0] + keySteps[0], key[1] + keySteps[1]};
    }
    return counter;
  }
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_PHILOX_H
