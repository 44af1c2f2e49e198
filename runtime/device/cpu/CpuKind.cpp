//===- CpuKind.cpp - registers the device `cpu` ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/Registry.h"
#include "runtime/device/cpu/ThreadPool.h"

#include <algorithm>
#include <fstream>
#include <unistd.h>

using namespace gridloom::rt;

namespace gridloom::rt {
const DeviceKind &cpuDevices();
} // namespace gridloom::rt

static std::string readCpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

/// The highest level of the x86-64 psABI that this CPU has.
static std::string getCpuLevel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3"))
    return "x86-64-v3";
  return __builtin_cpu_supports("x86-64-v2") ? "x86-64-v2" : "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

static bool hasCpuLevel(const std::string &arch) {
#ifdef __x86_64__
  if (arch == "x86-64")
    return true;
  if (arch == "x86-64-v2")
    return __builtin_cpu_supports("x86-64-v2");
  if (arch == "x86-64-v3")
    return __builtin_cpu_supports("x86-64-v3");
  if (arch == "x86-64-v4")
    return __builtin_cpu_supports("x86-64-v4");
  return false;
#elif defined(__aarch64__)
  return arch == "aarch64" || arch == "armv8-a";
#else
  return false;
#endif
}

namespace {

class CpuKind final : public DeviceKind {
public:
  std::vector<std::string> getFeatures() const override { return {"onednn"}; }
  std::string getName() const override { return "cpu"; }
  std::string getPlural() const override { return "CPU ranks"; }
  std::string findObstacle(const std::string &arch) const override {
    return hasCpuLevel(arch) ? "" : "cpu level " + arch + ", which this machine lacks";
  }
  bool hasThreads() const override { return true; }
  std::unique_ptr<Device> create(const DeviceRequest &request) const override {
    unsigned share = std::max(1u, getNumUsableCores() / unsigned(std::max(1, request.localSize)));
    return createCpuDevice(request.threads ? request.threads : share);
  }
  DeviceInventory takeInventory() const override {
    uint64_t bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    return {{{"cpu", readCpuName(), getCpuLevel(), getNumUsableCores(), bytes, std::nullopt}}, {}};
  }
};

} // namespace

const DeviceKind &gridloom::rt::cpuDevices() {
  static const CpuKind kind;
  return kind;
}
