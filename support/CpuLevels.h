//===- CpuLevels.h - levels of the x86-64 psABI -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The names that --cpu-arch, a plan's target and GRIDLOOM_CPU_LEVEL share.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_CPULEVELS_H
#define GRIDLOOM_SUPPORT_CPULEVELS_H

#include "support/Text.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace gridloom {

/// Each level executes the code of those before it.
inline constexpr std::string_view kCpuLevels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};

/// The level that plans are made for unless --cpu-arch names another.
inline constexpr std::string_view kDefaultCpuLevel = kCpuLevels[2];

/// The place of `level` in kCpuLevels; -1 if it is none of them.
inline int findCpuLevel(std::string_view level) {
  const auto *found = std::find(std::begin(kCpuLevels), std::end(kCpuLevels), level);
  return found == std::end(kCpuLevels) ? -1 : int(found - std::begin(kCpuLevels));
}

/// The second level that a plan for `arch` holds kernels for: the default level has registers of
/// 256 bits, the next one of 512. Empty for other processors.
inline std::string getWideCpuLevel(std::string_view arch) {
  return arch == kDefaultCpuLevel ? std::string(kCpuLevels[3]) : "";
}

/// "x86-64, x86-64-v2, x86-64-v3 or x86-64-v4", for messages.
inline std::string listCpuLevels() {
  return joinWithOr(std::vector<std::string>(std::begin(kCpuLevels), std::end(kCpuLevels)));
}

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_CPULEVELS_H
