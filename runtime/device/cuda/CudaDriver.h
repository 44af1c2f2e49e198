//===- CudaDriver.h - the CUDA driver's entry points ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The few types and entry points of libcuda that the runtime uses, declared here so that it builds
// without the CUDA toolkit and starts without a driver. The names of the constants are CUDA's.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDADRIVER_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDADRIVER_H

#include "runtime/device/cuda/DynamicLibrary.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gridloom::rt::cuda {

using Result = int;
using DeviceNumber = int;
using DevicePointer = unsigned long long;
using Context = struct ContextTag *;
using StreamHandle = struct StreamTag *;
using EventHandle = struct EventTag *;
using Module = struct ModuleTag *;
using Function = struct FunctionTag *;
using HostFunction = void (*)(void *);
using Graph = struct GraphTag *;
using GraphExec = struct GraphExecTag *;

enum : Result {
  SUCCESS = 0,
  ERROR_OUT_OF_MEMORY = 2,
  ERROR_DEVICE_UNAVAILABLE = 46,
  ERROR_NO_DEVICE = 100,
  ERROR_INVALID_DEVICE = 101,
  ERROR_INVALID_IMAGE = 200,
  ERROR_NO_BINARY_FOR_GPU = 209,
  ERROR_ECC_UNCORRECTABLE = 214,
  ERROR_INVALID_PTX = 218,
  ERROR_NVLINK_UNCORRECTABLE = 220,
  ERROR_UNSUPPORTED_PTX_VERSION = 222,
  ERROR_CONTAINED = 226,
  ERROR_NOT_FOUND = 500,
  ERROR_NOT_READY = 600,
  ERROR_ILLEGAL_ADDRESS = 700,
  ERROR_LAUNCH_TIMEOUT = 702,
  ERROR_ASSERT = 710,
  ERROR_HARDWARE_STACK_ERROR = 714,
  ERROR_LAUNCH_FAILED = 719,
  ERROR_NOT_SUPPORTED = 801,
};
enum : unsigned {
  STREAM_NON_BLOCKING = 1,
  EVENT_DEFAULT = 0,
  EVENT_DISABLE_TIMING = 2,
  MEMHOSTALLOC_PORTABLE = 1,
  STREAM_WRITE_VALUE_DEFAULT = 0,
  GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8,
};
enum : int {
  DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  STREAM_CAPTURE_MODE_RELAXED = 2,
  JIT_ERROR_LOG_BUFFER = 5,
  JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

/// X(member, symbol in the library, parameters). The versioned symbols are the current ABI's.
#define GRIDLOOM_CUDA_ENTRY_POINTS(X)                                                              \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(driverGetVersion, "cuDriverGetVersion", (int *version))                                        \
  X(getErrorName, "cuGetErrorName", (Result error, const char **text))                             \
  X(getErrorString, "cuGetErrorString", (Result error, const char **text))                         \
  X(deviceGetCount, "cuDeviceGetCount", (int *count))                                              \
  X(deviceGet, "cuDeviceGet", (DeviceNumber * device, int ordinal))                                \
  X(deviceGetName, "cuDeviceGetName", (char *name, int length, DeviceNumber device))               \
  X(deviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, DeviceNumber device))  \
  X(devicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Context * context, DeviceNumber device))  \
  X(devicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (DeviceNumber device))                \
  X(ctxSetCurrent, "cuCtxSetCurrent", (Context context))                                           \
  X(ctxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))         \
  X(memGetInfo, "cuMemGetInfo_v2", (size_t *free, size_t *total))                                  \
  X(memAlloc, "cuMemAlloc_v2", (DevicePointer * pointer, size_t bytes))                            \
  X(memFree, "cuMemFree_v2", (DevicePointer pointer))                                              \
  X(memAllocAsync, "cuMemAllocAsync",                                                              \
    (DevicePointer * pointer, size_t bytes, StreamHandle stream))                                  \
  X(memFreeAsync, "cuMemFreeAsync", (DevicePointer pointer, StreamHandle stream))                  \
  X(memHostAlloc, "cuMemHostAlloc", (void **pointer, size_t bytes, unsigned flags))                \
  X(memFreeHost, "cuMemFreeHost", (void *pointer))                                                 \
  X(memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                       \
    (DevicePointer to, const void *from, size_t bytes, StreamHandle stream))                       \
  X(memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                       \
    (void *to, DevicePointer from, size_t bytes, StreamHandle stream))                             \
  X(memcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                                       \
    (DevicePointer to, DevicePointer from, size_t bytes, StreamHandle stream))                     \
  X(memsetD8Async, "cuMemsetD8Async",                                                              \
    (DevicePointer to, unsigned char value, size_t bytes, StreamHandle stream))                    \
  X(streamCreateWithPriority, "cuStreamCreateWithPriority",                                        \
    (StreamHandle * stream, unsigned flags, int priority))                                         \
  X(streamDestroy, "cuStreamDestroy_v2", (StreamHandle stream))                                    \
  X(streamWaitEvent, "cuStreamWaitEvent",                                                          \
    (StreamHandle stream, EventHandle event, unsigned flags))                                      \
  X(streamSynchronize, "cuStreamSynchronize", (StreamHandle stream))                               \
  X(streamQuery, "cuStreamQuery", (StreamHandle stream))                                           \
  X(launchHostFunc, "cuLaunchHostFunc", (StreamHandle stream, HostFunction function, void *data))  \
  X(eventCreate, "cuEventCreate", (EventHandle * event, unsigned flags))                           \
  X(eventDestroy, "cuEventDestroy_v2", (EventHandle event))                                        \
  X(eventRecord, "cuEventRecord", (EventHandle event, StreamHandle stream))                        \
  X(eventQuery, "cuEventQuery", (EventHandle event))                                               \
  X(eventSynchronize, "cuEventSynchronize", (EventHandle event))                                   \
  X(eventElapsedTime, "cuEventElapsedTime",                                                        \
    (float *milliseconds, EventHandle begin, EventHandle end))                                     \
  X(moduleLoadDataEx, "cuModuleLoadDataEx",                                                        \
    (Module * module, const void *image, unsigned numOptions, int *options, void **values))        \
  X(moduleUnload, "cuModuleUnload", (Module module))                                               \
  X(moduleGetFunction, "cuModuleGetFunction",                                                      \
    (Function * function, Module module, const char *name))                                        \
  X(funcSetAttribute, "cuFuncSetAttribute", (Function function, int attribute, int value))         \
  X(launchKernel, "cuLaunchKernel",                                                                \
    (Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,           \
     unsigned blockY, unsigned blockZ, unsigned sharedBytes, StreamHandle stream,                  \
     void **parameters, void **extra))

/// X(member, symbol, parameters) of optional entry points, null in older drivers. The first seven
/// are for graphs, of CUDA 11.4.
#define GRIDLOOM_CUDA_OPTIONAL_ENTRY_POINTS(X)                                                     \
  X(streamBeginCapture, "cuStreamBeginCapture_v2", (StreamHandle stream, int mode))                \
  X(streamEndCapture, "cuStreamEndCapture", (StreamHandle stream, Graph * graph))                  \
  X(threadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode))             \
  X(graphInstantiate, "cuGraphInstantiateWithFlags",                                               \
    (GraphExec * executable, Graph graph, unsigned long long flags))                               \
  X(graphLaunch, "cuGraphLaunch", (GraphExec executable, StreamHandle stream))                     \
  X(graphExecDestroy, "cuGraphExecDestroy", (GraphExec executable))                                \
  X(graphDestroy, "cuGraphDestroy", (Graph graph))                                                 \
  X(deviceGetUuid, "cuDeviceGetUuid_v2", (unsigned char *uuid, DeviceNumber device))               \
  X(streamWriteValue32, "cuStreamWriteValue32_v2",                                                 \
    (StreamHandle stream, DevicePointer to, uint32_t value, unsigned flags))

/// The driver, loaded and initialised.
class Driver {
public:
  /// Opens `path`; empty means environment variable GRIDLOOM_CUDA_DRIVER, else libcuda.so.1. Throws
  /// Unavailable if there is no driver, it is too old, or it finds no GPU.
  explicit Driver(const std::string &path = "");

// NOLINTBEGIN(bugprone-macro-parentheses)
#define GRIDLOOM_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  GRIDLOOM_CUDA_ENTRY_POINTS(GRIDLOOM_CUDA_MEMBER)
  GRIDLOOM_CUDA_OPTIONAL_ENTRY_POINTS(GRIDLOOM_CUDA_MEMBER)
#undef GRIDLOOM_CUDA_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)

  /// Throws unless `result` is success: "<call> failed with <name> (<text>) <doing> <subject>". The
  /// code is OutOfMemory, Unavailable (no such GPU) or Internal, depending on `result`.
  void check(Result result, const char *call, const char *doing,
             std::string_view subject = {}) const {
    if (result != SUCCESS)
      fail(result, call, doing, subject);
  }
  [[noreturn]] void fail(Result result, const char *call, const char *doing,
                         std::string_view subject) const;
  /// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string describe(Result result) const;

  /// 1000 * major + 10 * minor of the CUDA version the driver supports.
  int getVersion() const { return version; }
  /// Why this driver cannot capture graphs; "" if it can.
  std::string whyNotCapturable() const;
  /// The flags for cuGraphInstantiateWithFlags: nodes keep the priorities of the streams that they
  /// were captured on, if the driver supports it (CUDA 11.7).
  unsigned long long getGraphFlags() const;
  /// Whether cuStreamWriteValue32 works on all GPUs without checks: since CUDA 12.
  bool canWriteValues() const { return streamWriteValue32 && version >= 12000; }
  const std::string &getPath() const { return library.getName(); }

private:
  DynamicLibrary library;
  int version = 0;
};

/// "12.4" for 12040.
std::string formatVersion(int version);

} // namespace gridloom::rt::cuda

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDADRIVER_H
