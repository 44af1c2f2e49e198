//===- CudaKind.cpp - registers the device `cuda` -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Environment.h"
#include "runtime/core/Error.h"
#include "runtime/device/Registry.h"
#include "runtime/device/cuda/CuBlasLt.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <algorithm>

using namespace gridloom::rt;

namespace gridloom::rt {
const DeviceKind &cudaDevices();
} // namespace gridloom::rt

/// The version from a library's `call` (10000 * major + 100 * minor + patch), or "missing".
static std::string findVersion(const char *variable, const std::vector<std::string> &names,
                               const char *call) {
  try {
    std::string given = getEnvironment(variable, "");
    DynamicLibrary library = given.empty() ? DynamicLibrary(names, "it is optional")
                                           : DynamicLibrary({given}, "it is named by a variable");
    size_t (*getVersion)() = nullptr;
    if (!library.find(getVersion, call))
      return "found";
    size_t version = getVersion();
    return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
           std::to_string(version % 100);
  } catch (const Error &) {
    return "missing";
  }
}

namespace {

class CudaKind final : public DeviceKind {
public:
  std::string getName() const override { return "cuda"; }
  std::string getPlural() const override { return "GPUs"; }
  std::vector<std::string> getFeatures() const override { return {"cudnn"}; }
  bool isNumbered() const override { return true; }
  bool hasGraphs() const override { return true; }
  std::unique_ptr<Device> create(const DeviceRequest &request) const override {
    // A launcher may show each process only its own GPU; NcclKind detects ranks that share one.
    int number =
        request.number >= 0 ? request.number : request.localRank % std::max(1, countCudaDevices());
    return std::make_unique<CudaDevice>(number);
  }
  DeviceInventory takeInventory() const override;
};

} // namespace

DeviceInventory CudaKind::takeInventory() const {
  DeviceInventory inventory;
  int driver = 0;
  try {
    for (int number = 0;; ++number) {
      CudaDevice gpu(number);
      const CudaContext &context = *gpu.getContext();
      DeviceMemory own = gpu.getMemory().value_or(DeviceMemory());
      inventory.devices.push_back({"cuda:" + std::to_string(number), context.getModel(),
                                   "sm_" + std::to_string(context.getArchitecture()), std::nullopt,
                                   own.total, own.free});
      driver = context.use().getVersion();
    }
  } catch (const Error &error) {
    if (driver == 0)
      inventory.fields.emplace_back("no_gpu", error.what());
  }
  if (driver)
    inventory.fields.emplace_back("driver", "CUDA " + cuda::formatVersion(driver));
  inventory.fields.emplace_back(
      "cublaslt", findVersion("GRIDLOOM_CUBLASLT", listCuBlasLt(driver), "cublasLtGetVersion"));
  inventory.fields.emplace_back(
      "cudnn", findVersion("GRIDLOOM_CUDNN", {"libcudnn.so.9"}, "cudnnGetVersion"));
  return inventory;
}

const DeviceKind &gridloom::rt::cudaDevices() {
  static const CudaKind kind;
  return kind;
}
