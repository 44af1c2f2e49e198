//===- CpuKind.cpp - registers the device `cpu` ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/Registry.h"
#include "runtime/device/cpu/CpuLevel.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "support/CpuLevels.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

using namespace gridloom;
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

namespace {

class CpuKind final : public DeviceKind {
public:
  std::vector<std::string> getFeatures() const override { return {"onednn"}; }
  std::string getName() const override { return "cpu"; }
  std::string getPlural() const override { return "CPU ranks"; }
  std::string findObstacle(const std::string &arch) const override {
    const char *text = std::getenv("GRIDLOOM_CPU_LEVEL");
    std::string limit = text ? text : "";
    if (!limit.empty() && findCpuLevel(limit) < 0)
      return "cannot run with GRIDLOOM_CPU_LEVEL=" + limit + "; unset it, or set " +
             listCpuLevels();
    if (hasCpuLevel(arch))
      return "";
    bool isLimited = !limit.empty() && findCpuLevel(limit) < findCpuLevel(arch);
    return "is for cpu level " + arch + ", " +
           (isLimited ? "above GRIDLOOM_CPU_LEVEL=" + limit : "which this machine lacks") +
           "; compile with --cpu-arch " + getCpuLevel();
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
