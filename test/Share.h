//===- Share.h - a section's share of the full run ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// `scripts/test --full` gives each of its sections a share of its time, and one seed to all. A test
// with more cases than it may have time for runs them in an order drawn from the seed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_SHARE_H
#define GRIDLOOM_TEST_SHARE_H

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

namespace gridloom::testing {

/// The time of a section, or one of `parts` equal parts of it, counted from the construction. There
/// is no limit without GRIDLOOM_SECONDS.
class Share {
public:
  explicit Share(double parts = 1) : begin(std::chrono::steady_clock::now()) {
    if (const char *text = std::getenv("GRIDLOOM_SECONDS"))
      seconds = std::strtod(text, nullptr) / parts;
    if (const char *text = std::getenv("GRIDLOOM_SEED"))
      seed = std::strtoull(text, nullptr, 10);
  }
  bool hasTime() const {
    std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return seconds < 0 || passed.count() < seconds;
  }
  uint64_t getSeed() const { return seed; }
  /// Shuffles `cases` by the seed; without a limit they keep their order.
  template <typename T> void order(std::vector<T> &cases) const {
    std::mt19937_64 random(seed);
    if (seconds >= 0)
      std::shuffle(cases.begin(), cases.end(), random);
  }

private:
  std::chrono::steady_clock::time_point begin;
  double seconds = -1;
  uint64_t seed = 1;
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_SHARE_H
