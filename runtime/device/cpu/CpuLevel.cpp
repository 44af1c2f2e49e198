//===- CpuLevel.cpp - what the processor executes -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuLevel.h"

#include "support/CpuLevels.h"

#include <algorithm>
#include <cstdlib>

using namespace gridloom;
using namespace gridloom::rt;

#ifdef __x86_64__
static int findHighest() {
  __builtin_cpu_init();
  int highest = __builtin_cpu_supports("x86-64-v4")   ? 3
                : __builtin_cpu_supports("x86-64-v3") ? 2
                : __builtin_cpu_supports("x86-64-v2") ? 1
                                                      : 0;
  const char *limit = std::getenv("GRIDLOOM_CPU_LEVEL");
  int allowed = limit ? findCpuLevel(limit) : -1;
  return allowed < 0 ? highest : std::min(highest, allowed);
}

std::string gridloom::rt::getCpuLevel() { return std::string(kCpuLevels[findHighest()]); }

bool gridloom::rt::hasCpuLevel(const std::string &arch) {
  int level = findCpuLevel(arch);
  return level >= 0 && level <= findHighest();
}
#elif defined(__aarch64__)
std::string gridloom::rt::getCpuLevel() { return "aarch64"; }
bool gridloom::rt::hasCpuLevel(const std::string &arch) {
  return arch == "aarch64" || arch == "armv8-a";
}
#else
std::string gridloom::rt::getCpuLevel() { return "unknown"; }
bool gridloom::rt::hasCpuLevel(const std::string &arch) { return false; }
#endif
