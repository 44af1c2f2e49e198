//===- CallerContext.cpp - the caller's CUDA context ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CallerContext.h"

#include "runtime/device/cuda/CudaDriver.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace gridloom::rt;

/// `symbol` of the driver if the process has loaded it; else null.
template <typename Function> static Function *findLoaded(const char *symbol) {
  const char *path = std::getenv("GRIDLOOM_CUDA_DRIVER");
  void *driver = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!driver)
    return nullptr;
  auto *found = reinterpret_cast<Function *>(dlsym(driver, symbol));
  dlclose(driver); // drops this function's reference
  return found;
}

CallerContext::CallerContext() noexcept {
  using GetCurrent = cuda::Result(ContextTag **);
  auto *getCurrent = findLoaded<GetCurrent>("cuCtxGetCurrent");
  if (!getCurrent || getCurrent(&context) != cuda::SUCCESS)
    context = nullptr; // the driver is not initialised
}

CallerContext::~CallerContext() {
  using SetCurrent = cuda::Result(ContextTag *);
  if (auto *setCurrent = findLoaded<SetCurrent>("cuCtxSetCurrent"))
    setCurrent(context);
}
