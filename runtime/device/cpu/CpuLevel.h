//===- CpuLevel.h - what the processor executes -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPULEVEL_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPULEVEL_H

#include <string>

namespace gridloom::rt {

/// The highest level of the x86-64 psABI that this CPU has, as "x86-64-v3", but none above
/// $GRIDLOOM_CPU_LEVEL where that is set to a level; "aarch64" and "unknown" for others.
std::string getCpuLevel();

/// Whether this CPU runs code for `arch`.
bool hasCpuLevel(const std::string &arch);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPULEVEL_H
