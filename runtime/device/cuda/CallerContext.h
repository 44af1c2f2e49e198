//===- CallerContext.h - the caller's CUDA context --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CALLERCONTEXT_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CALLERCONTEXT_H

namespace gridloom::rt {

/// Restores the calling thread's current CUDA context on destruction, whatever the runtime makes
/// current in between: the caller may use CUDA itself (PyTorch's current device). Neither loads nor
/// initialises the driver. Never throws.
class CallerContext {
public:
  CallerContext() noexcept;
  ~CallerContext();
  CallerContext(const CallerContext &) = delete;
  CallerContext &operator=(const CallerContext &) = delete;

private:
  struct ContextTag *context = nullptr;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CALLERCONTEXT_H
