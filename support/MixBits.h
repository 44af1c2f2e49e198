//===- MixBits.h - well-mixed numbers ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_MIXBITS_H
#define GRIDLOOM_SUPPORT_MIXBITS_H

#include <cstdint>

namespace gridloom {

/// A well-mixed number for each argument (splitmix64's finaliser). Generated inputs and the order
/// of samples depend on it: another function would change them.
inline uint64_t mixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_MIXBITS_H
