//===- CudaDriver.cpp - the CUDA driver's entry points --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CudaDriver.h"

#include "runtime/core/Environment.h"
#include "runtime/core/Error.h"

namespace gridloom::rt::cuda {

// For stream-ordered memory and the required versioned symbols.
constexpr int oldestVersion = 11020;

// For cuGraphInstantiateWithFlags.
constexpr int oldestGraphVersion = 11040;

std::string formatVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Driver::Driver(const std::string &path)
    : library({path.empty() ? getEnvironment("GRIDLOOM_CUDA_DRIVER", "libcuda.so.1") : path},
              "the NVIDIA driver is not installed on this machine and a cuda plan cannot run; "
              "install the driver, or compile the model with --target cpu") {
  const char *remedy = "the driver is too old; install one for CUDA 11.2 or newer";
#define GRIDLOOM_CUDA_LOAD(member, symbol, parameters) library.require(member, symbol, remedy);
  GRIDLOOM_CUDA_ENTRY_POINTS(GRIDLOOM_CUDA_LOAD)
#undef GRIDLOOM_CUDA_LOAD
#define GRIDLOOM_CUDA_FIND(member, symbol, parameters) library.find(member, symbol);
  GRIDLOOM_CUDA_OPTIONAL_ENTRY_POINTS(GRIDLOOM_CUDA_FIND)
#undef GRIDLOOM_CUDA_FIND

  Result result = init(0);
  if (result != SUCCESS)
    throw Error(ErrorCode::Unavailable,
                "cuInit failed with " + describe(result) + ": " + library.getName() +
                    " is installed but no NVIDIA GPU is usable; check nvidia-smi, or compile the "
                    "model with --target cpu");
  check(driverGetVersion(&version), "cuDriverGetVersion", "reading the driver's version");
  if (version < oldestVersion)
    throw Error(ErrorCode::Unavailable,
                "the NVIDIA driver supports CUDA " + formatVersion(version) + ", " +
                    formatVersion(oldestVersion) + " is needed; install a newer driver");
}

std::string Driver::whyNotCapturable() const {
  bool complete = streamBeginCapture && streamEndCapture && threadExchangeStreamCaptureMode &&
                  graphInstantiate && graphLaunch && graphExecDestroy && graphDestroy;
  if (complete && version >= oldestGraphVersion)
    return "";
  return "the driver supports CUDA " + formatVersion(version) + ", graphs need " +
         formatVersion(oldestGraphVersion);
}

unsigned long long Driver::getGraphFlags() const {
  constexpr int oldestPriorityVersion = 11070;
  return version >= oldestPriorityVersion ? GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
}

std::string Driver::describe(Result result) const {
  const char *name = nullptr;
  const char *text = nullptr;
  if (getErrorName(result, &name) != SUCCESS || !name)
    return "error " + std::to_string(result);
  if (getErrorString(result, &text) != SUCCESS || !text)
    return name;
  return std::string(name) + " (" + text + ")";
}

/// Errors of earlier kernels, which every later call of this process also returns.
static bool isSticky(Result result) {
  return result == ERROR_ILLEGAL_ADDRESS || result == ERROR_LAUNCH_TIMEOUT ||
         result == ERROR_ASSERT ||
         (result >= ERROR_HARDWARE_STACK_ERROR && result <= ERROR_LAUNCH_FAILED);
}

/// Hardware errors. After most of them, too, the process cannot use the GPU any more.
static bool isLoss(Result result) {
  return result == ERROR_DEVICE_UNAVAILABLE || result == ERROR_ECC_UNCORRECTABLE ||
         result == ERROR_NVLINK_UNCORRECTABLE || result == ERROR_CONTAINED;
}

void Driver::fail(Result result, const char *call, const char *doing,
                  std::string_view subject) const {
  std::string message = std::string(call) + " failed with " + describe(result) + " " + doing;
  if (!subject.empty())
    message.append(" ").append(subject);
  if (isSticky(result))
    message +=
        "; a kernel that ran earlier on this GPU may be the cause: run with "
        "CUDA_LAUNCH_BLOCKING=1 to find it; this process cannot use the GPU any more, restart it";
  if (isLoss(result))
    message += "; the GPU is lost: see nvidia-smi and the kernel's log (dmesg) for its Xid error, "
               "then restart the process";
  ErrorCode code = ErrorCode::Internal;
  if (result == ERROR_OUT_OF_MEMORY)
    code = ErrorCode::OutOfMemory;
  else if (result == ERROR_NO_DEVICE || result == ERROR_INVALID_DEVICE || isLoss(result))
    code = ErrorCode::Unavailable;
  throw Error(code, message);
}

} // namespace gridloom::rt::cuda
