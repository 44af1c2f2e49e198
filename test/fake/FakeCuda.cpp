//===- FakeCuda.cpp - a CUDA driver without a GPU -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeCuda.h"

#include "test/fake/FakeMachine.h"
#include "test/fake/PtxModule.h"

#include <cstdlib>
#include <cstring>

using namespace gridloom::fake;
using namespace gridloom::fake::driver;

namespace {

constexpr int leastPriority = 0;
constexpr int greatestPriority = -5;
constexpr unsigned largestSharedBytes = 227 * 1024;

using DevicePointer = unsigned long long;
using EventHandle = std::shared_ptr<Event>;

struct Module;

struct Function {
  std::string symbol;
  Module *module;
  unsigned sharedBytes = ptxSharedBytes;
};

struct Module {
  std::string image;
  bool isText;
  std::deque<Function> functions;
  std::shared_ptr<const std::map<std::string, PtxKernel>> kernels; // null: not supported
  std::string fault;                                               // then the reason
};

Machine &machine() { return Machine::get(); }
std::byte *toHost(DevicePointer pointer) {
  return reinterpret_cast<std::byte *>(static_cast<uintptr_t>(pointer));
}
int numberOf(void *stream) { return stream ? static_cast<Stream *>(stream)->number : -1; }

/// Logs the call; returns the error to return at once, or 0.
int enter(const char *name, void *stream = nullptr, const std::string &detail = "") {
  if (int result = machine().enter(name, numberOf(stream), detail))
    return result;
  Context *context = machine().getCurrent();
  if (!context || !context->retains) {
    machine().report(std::string(name) + " without a current context");
    return InvalidContext;
  }
  if (int result = machine().checkCapture(name, static_cast<Stream *>(stream)))
    return result;
  return machine().getSticky(context->device);
}

int copy(const char *call, void *to, const void *from, size_t bytes, void *handle, Access access,
         Access second = {}) {
  if (int result = enter(call, handle, std::to_string(bytes)))
    return result;
  Stream *stream = machine().checkStream(handle, call);
  if (!stream)
    return InvalidHandle;
  std::vector<Access> accesses = {access};
  if (second.data)
    accesses.push_back(second);
  machine().submit(*stream, {call, accesses, [=] {
                               std::memcpy(to, from, bytes);
                               return Step::Done;
                             }});
  return Success;
}

int launchHost(Stream &stream, const Function &function, KernelFunction kernel, Launch launch,
               void **parameters) {
  for (size_t i = 0; i < kernel.numPointers; ++i)
    launch.pointers.push_back(*static_cast<void **>(parameters[i]));
  std::vector<Access> accesses = kernel.accesses(launch);
  machine().submit(stream, {"kernel " + function.symbol, std::move(accesses),
                            [run = std::move(kernel.run), launch = std::move(launch)] {
                              run(launch);
                              return Step::Done;
                            }});
  return Success;
}

using PtxKernels = std::shared_ptr<const std::map<std::string, PtxKernel>>;

/// One launch of a kernel of `kernels`, or one replay of that launch.
Operation makePtxOperation(int device, const PtxKernels &kernels, const std::string &symbol,
                           const Launch &launch) {
  std::vector<PtxBuffer> buffers;
  for (void *pointer : launch.pointers)
    if (auto [begin, end] = machine().findMemory(pointer); begin)
      buffers.push_back(
          {static_cast<std::byte *>(pointer), begin, end, machine().findShadow(begin)});
  auto late = std::make_shared<std::vector<Access>>();
  auto run = [=]() mutable -> Step {
    try {
      runPtx(kernels->at(symbol), launch, buffers);
    } catch (const PtxError &error) {
      machine().report(error.what());
      machine().breakDevice(device, LaunchFailed);
    }
    for (const PtxBuffer &buffer : buffers) {
      late->push_back({buffer.readBegin, size_t(buffer.readEnd - buffer.readBegin), false});
      late->push_back({buffer.writeBegin, size_t(buffer.writeEnd - buffer.writeBegin), true});
    }
    return Step::Done;
  };
  Operation operation{"kernel " + symbol, {}, std::move(run), late};
  operation.renew = [=] { return makePtxOperation(device, kernels, symbol, launch); };
  return operation;
}

int launchPtx(Stream &stream, const PtxKernels &kernels, const std::string &symbol, Launch launch,
              void **parameters) {
  for (size_t i = 0; i < kernels->at(symbol).parameters.size(); ++i)
    launch.pointers.push_back(*static_cast<void **>(parameters[i]));
  machine().submit(stream, makePtxOperation(stream.device, kernels, symbol, launch));
  return Success;
}

template <typename Object> void destroy(void *object) { delete static_cast<Object *>(object); }

} // namespace

//===----------------------------------------------------------------------===//
// Tests' side
//===----------------------------------------------------------------------===//

namespace gridloom::fake {

void reset(const Options &options) { machine().reset(options); }
void registerKernel(const std::string &symbol, KernelFunction function) {
  machine().registerKernel(symbol, std::move(function));
}
void failCall(const std::string &name, int result, int skip) {
  machine().plant(name, result, skip);
}
std::vector<Call> getCalls(const std::string &prefix) { return machine().getCalls(prefix); }
std::vector<std::string> takeFindings() { return machine().takeFindings(); }
std::vector<std::string> findLeaks() { return machine().findLeaks(); }
int getStreamPriority(int stream) { return machine().getStreamPriority(stream); }

} // namespace gridloom::fake

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

namespace {

constexpr unsigned char standInMark = 'g';

/// The start of a 64-bit ELF file, in which CUDA's binaries name their architecture.
struct ElfHeader {
  unsigned char ident[16] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8};
  uint16_t type = 2;
  uint16_t machine = 190;
  uint32_t version = 1;
  uint64_t entry = 0;
  uint64_t programHeaders = 0;
  uint64_t sectionHeaders = 0;
  uint32_t flags = 0;
  uint16_t headerBytes = 64;
  uint16_t programHeaderBytes = 0;
  uint16_t numProgramHeaders = 0;
  uint16_t sectionHeaderBytes = 0;
  uint16_t numSectionHeaders = 0;
  uint16_t names = 0;
};
static_assert(sizeof(ElfHeader) == 64);

int getArchitecture(const ElfHeader &header) {
  bool current = header.ident[8] >= 8;
  return static_cast<int>((current ? header.flags >> 8 : header.flags) & 0xff);
}

int loadElf(const void *image, std::string &code) {
  ElfHeader header;
  std::memcpy(&header, image, sizeof(header));
  if (header.machine != 190)
    return InvalidImage;
  // A GPU's machine code cannot run here; callers then load the PTX.
  if (header.ident[15] != standInMark)
    return NoBinaryForGpu;
  int wanted = getArchitecture(header);
  int present = machine().getOptions().architecture;
  if (wanted / 10 != present / 10 || wanted % 10 > present % 10)
    return NoBinaryForGpu;
  size_t bytes =
      header.sectionHeaders + size_t(header.numSectionHeaders) * header.sectionHeaderBytes;
  code.assign(static_cast<const char *>(image), bytes);
  return Success;
}

int loadText(const char *text, std::string &code) {
  code = text;
  size_t target = code.find(".target sm_");
  if (code.find(".version") == std::string::npos || target == std::string::npos)
    return InvalidImage;
  int wanted = static_cast<int>(
      std::strtol(code.c_str() + target + std::strlen(".target sm_"), nullptr, 10));
  return wanted > machine().getOptions().architecture ? NoBinaryForGpu : Success;
}

bool hasKernel(const Module &module, const std::string &symbol) {
  std::string sought = module.isText ? ".entry " + symbol : symbol;
  for (size_t at = 0; (at = module.image.find(sought, at)) != std::string::npos; ++at) {
    char after = at + sought.size() < module.image.size() ? module.image[at + sought.size()] : 0;
    if (!std::isalnum(static_cast<unsigned char>(after)) && after != '_')
      return true;
  }
  return false;
}

} // namespace

std::vector<std::byte> gridloom::fake::makeCubin(int architecture,
                                                 const std::vector<std::string> &symbols) {
  std::string names(1, '\0');
  for (const std::string &symbol : symbols)
    names += symbol + '\0';
  ElfHeader header;
  header.ident[15] = standInMark;
  header.flags = static_cast<uint32_t>(architecture) << 8;
  header.sectionHeaders = sizeof(header) + names.size();
  std::vector<std::byte> code(header.sectionHeaders);
  std::memcpy(code.data(), &header, sizeof(header));
  std::memcpy(code.data() + sizeof(header), names.data(), names.size());
  return code;
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

EXPORT int cuInit(unsigned) { return machine().enter("cuInit"); }

EXPORT int cuDriverGetVersion(int *version) {
  *version = machine().getOptions().driverVersion;
  return machine().enter("cuDriverGetVersion");
}

EXPORT int cuGetErrorName(int error, const char **text) {
  *text = error == Success                 ? "CUDA_SUCCESS"
          : error == InvalidValue          ? "CUDA_ERROR_INVALID_VALUE"
          : error == OutOfMemory           ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == NoDevice              ? "CUDA_ERROR_NO_DEVICE"
          : error == NoBinaryForGpu        ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
          : error == InvalidImage          ? "CUDA_ERROR_INVALID_IMAGE"
          : error == InvalidPtx            ? "CUDA_ERROR_INVALID_PTX"
          : error == NotFound              ? "CUDA_ERROR_NOT_FOUND"
          : error == IllegalAddress        ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == LaunchFailed          ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == DeviceUnavailable     ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
          : error == EccUncorrectable      ? "CUDA_ERROR_ECC_UNCORRECTABLE"
          : error == UnsupportedPtxVersion ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
          : error == CaptureUnsupported    ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : error == CaptureInvalidated    ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
          : error == CaptureUnjoined       ? "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
                                           : nullptr;
  return *text ? Success : InvalidValue;
}

EXPORT int cuGetErrorString(int error, const char **text) {
  *text = error == OutOfMemory      ? "out of memory"
          : error == NoDevice       ? "no CUDA-capable device is detected"
          : error == IllegalAddress ? "an illegal memory access was encountered"
          : error == LaunchFailed   ? "unspecified launch failure"
          : error == NoBinaryForGpu ? "no kernel image is available for execution on the device"
                                    : "error of the fake driver";
  return Success;
}

EXPORT int cuDeviceGetCount(int *count) {
  *count = machine().getOptions().devices;
  return machine().enter("cuDeviceGetCount");
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  int result = machine().enter("cuDeviceGet");
  return machine().findContext(ordinal) ? result : int(InvalidDevice);
}

EXPORT int cuDeviceGetName(char *name, int length, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(length));
  return machine().enter("cuDeviceGetName");
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int) {
  int architecture = machine().getOptions().architecture;
  if (attribute != 75 && attribute != 76)
    return InvalidValue;
  *value = attribute == 75 ? architecture / 10 : architecture % 10;
  return machine().enter("cuDeviceGetAttribute");
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  std::memset(uuid, 0, 16);
  // With oneGpu all ordinals are one GPU, as where CUDA_VISIBLE_DEVICES differs between ranks.
  uuid[15] = static_cast<unsigned char>(machine().getOptions().oneGpu ? 1 : device + 1);
  // Processes that simulate several machines have different GPUs on each.
  if (const char *host = std::getenv("GRIDLOOM_FAKE_MACHINE"))
    std::strncpy(reinterpret_cast<char *>(uuid), host, 14);
  return machine().enter("cuDeviceGetUuid_v2");
}

EXPORT int cuDevicePrimaryCtxRetain(Context **context, int device) {
  if (int result = machine().enter("cuDevicePrimaryCtxRetain"))
    return result;
  *context = machine().findContext(device);
  ++(*context)->retains;
  return Success;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  machine().enter("cuDevicePrimaryCtxRelease_v2");
  Context *context = machine().findContext(device);
  if (!context || !context->retains) {
    machine().report("cuDevicePrimaryCtxRelease of a context that is not retained");
    return InvalidContext;
  }
  --context->retains;
  return Success;
}

EXPORT int cuCtxSetCurrent(Context *context) {
  machine().setCurrent(context);
  return Success;
}

EXPORT int cuCtxGetCurrent(Context **context) {
  *context = machine().getCurrent();
  return Success;
}

EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = leastPriority;
  *greatest = greatestPriority;
  return enter("cuCtxGetStreamPriorityRange");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

EXPORT int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = machine().getOptions().memoryBytes;
  *free = machine().getFreeBytes(machine().getCurrentDevice());
  return enter("cuMemGetInfo_v2");
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = machine().getOptions().memoryBytes;
  return machine().enter("cuDeviceTotalMem_v2"); // needs no context
}

static int allocate(DevicePointer *pointer, size_t bytes) {
  if (bytes == 0)
    return InvalidValue;
  std::byte *data = machine().allocate(bytes);
  *pointer = reinterpret_cast<uintptr_t>(data);
  return data ? Success : OutOfMemory;
}

EXPORT int cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
  int result = enter("cuMemAlloc_v2", nullptr, std::to_string(bytes));
  return result ? result : allocate(pointer, bytes);
}

EXPORT int cuMemFree_v2(DevicePointer pointer) {
  enter("cuMemFree_v2");
  return machine().release(toHost(pointer), nullptr, "cuMemFree") ? Success : InvalidValue;
}

EXPORT int cuMemAllocAsync(DevicePointer *pointer, size_t bytes, void *stream) {
  if (int result = enter("cuMemAllocAsync", stream, std::to_string(bytes)))
    return result;
  return machine().checkStream(stream, "cuMemAllocAsync") ? allocate(pointer, bytes)
                                                          : int(InvalidHandle);
}

EXPORT int cuMemFreeAsync(DevicePointer pointer, void *handle) {
  enter("cuMemFreeAsync", handle);
  Stream *stream = machine().checkStream(handle, "cuMemFreeAsync");
  if (!stream)
    return InvalidHandle;
  return machine().release(toHost(pointer), stream, "cuMemFreeAsync") ? Success : InvalidValue;
}

EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  if (int result = enter("cuMemHostAlloc", nullptr, std::to_string(bytes)))
    return result;
  constexpr size_t page = 4096;
  *pointer = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  machine().track(*pointer, "pinned memory of " + std::to_string(bytes) + " bytes");
  return Success;
}

EXPORT int cuMemFreeHost(void *pointer) {
  enter("cuMemFreeHost");
  if (!machine().untrack(pointer, "cuMemFreeHost"))
    return InvalidValue;
  std::free(pointer);
  return Success;
}

EXPORT int cuMemcpyHtoDAsync_v2(DevicePointer to, const void *from, size_t bytes, void *stream) {
  return copy("cuMemcpyHtoDAsync_v2", toHost(to), from, bytes, stream, {toHost(to), bytes, true});
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, DevicePointer from, size_t bytes, void *stream) {
  return copy("cuMemcpyDtoHAsync_v2", to, toHost(from), bytes, stream,
              {toHost(from), bytes, false});
}

EXPORT int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, void *stream) {
  return copy("cuMemcpyDtoDAsync_v2", toHost(to), toHost(from), bytes, stream,
              {toHost(to), bytes, true}, {toHost(from), bytes, false});
}

EXPORT int cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, void *handle) {
  if (int result = enter("cuMemsetD8Async", handle, std::to_string(bytes)))
    return result;
  Stream *stream = machine().checkStream(handle, "cuMemsetD8Async");
  if (!stream)
    return InvalidHandle;
  machine().submit(*stream, {"cuMemsetD8Async", {{toHost(to), bytes, true}}, [=] {
                               std::memset(toHost(to), value, bytes);
                               return Step::Done;
                             }});
  return Success;
}

EXPORT int cuStreamWriteValue32_v2(void *handle, DevicePointer to, uint32_t value, unsigned) {
  if (int result = enter("cuStreamWriteValue32_v2", handle))
    return result;
  Stream *stream = machine().checkStream(handle, "cuStreamWriteValue32");
  if (!stream)
    return InvalidHandle;
  machine().submit(*stream, {"value write", {}, [=] {
                               __atomic_store_n(reinterpret_cast<uint32_t *>(toHost(to)), value,
                                                __ATOMIC_RELEASE);
                               return Step::Done;
                             }});
  return Success;
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

EXPORT int cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
  if (int result = enter("cuStreamCreateWithPriority", nullptr, std::to_string(priority)))
    return result;
  if (flags != 1)
    machine().report("cuStreamCreateWithPriority of a stream that meets the default stream");
  *stream = machine().createStream(priority);
  return Success;
}

EXPORT int cuStreamDestroy_v2(void *stream) {
  enter("cuStreamDestroy_v2", stream);
  return machine().destroyStream(static_cast<Stream *>(stream)) ? Success : InvalidHandle;
}

EXPORT int cuStreamWaitEvent(void *handle, EventHandle *event, unsigned) {
  if (int result = enter("cuStreamWaitEvent", handle))
    return result;
  Stream *stream = machine().checkStream(handle, "cuStreamWaitEvent");
  if (!stream || !machine().isTracked(event, "cuStreamWaitEvent"))
    return InvalidHandle;
  return machine().wait(*stream, *event);
}

EXPORT int cuStreamSynchronize(void *handle) {
  if (int result = enter("cuStreamSynchronize", handle))
    return result;
  Stream *stream = machine().checkStream(handle, "cuStreamSynchronize");
  return stream ? machine().synchronize(*stream) : int(InvalidHandle);
}

EXPORT int cuStreamQuery(void *handle) {
  Stream *stream = machine().checkStream(handle, "cuStreamQuery");
  if (!stream)
    return InvalidHandle;
  int result = machine().checkCapture("cuStreamQuery", stream);
  return result ? result : machine().query(*stream);
}

EXPORT int cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
  if (int result = enter("cuLaunchHostFunc", handle))
    return result;
  Stream *stream = machine().checkStream(handle, "cuLaunchHostFunc");
  if (!stream)
    return InvalidHandle;
  Operation operation{"host function", {}, [=] {
                        function(data);
                        return Step::Done;
                      }};
  operation.mayWait = true;
  machine().submit(*stream, std::move(operation));
  return Success;
}

EXPORT int cuEventCreate(EventHandle **event, unsigned flags) {
  if (int result = enter("cuEventCreate"))
    return result;
  *event = new EventHandle(std::make_shared<Event>());
  (**event)->timed = !(flags & 2);
  machine().track(*event, "event");
  return Success;
}

EXPORT int cuEventDestroy_v2(EventHandle *event) {
  enter("cuEventDestroy_v2");
  if (!machine().untrack(event, "cuEventDestroy"))
    return InvalidHandle;
  destroy<EventHandle>(event);
  return Success;
}

EXPORT int cuEventRecord(EventHandle *event, void *handle) {
  if (int result = enter("cuEventRecord", handle))
    return result;
  Stream *stream = machine().checkStream(handle, "cuEventRecord");
  if (!stream || !machine().isTracked(event, "cuEventRecord"))
    return InvalidHandle;
  machine().record(*stream, *event);
  return Success;
}

EXPORT int cuEventQuery(EventHandle *event) {
  if (!machine().isTracked(event, "cuEventQuery"))
    return InvalidHandle;
  if (int result = machine().checkCapture("cuEventQuery", nullptr))
    return result;
  return (*event)->capture ? int(CapturedEvent) : machine().query(**event);
}

EXPORT int cuEventElapsedTime(float *milliseconds, EventHandle *begin, EventHandle *end) {
  if (int result = enter("cuEventElapsedTime"))
    return result;
  for (EventHandle *event : {begin, end}) {
    if (!machine().isTracked(event, "cuEventElapsedTime") || !(*event)->timed)
      return InvalidHandle;
    if (int result = machine().query(**event))
      return result;
  }
  std::chrono::duration<float, std::milli> elapsed = (*end)->time - (*begin)->time;
  *milliseconds = elapsed.count();
  return Success;
}

EXPORT int cuEventSynchronize(EventHandle *event) {
  if (int result = enter("cuEventSynchronize"))
    return result;
  if (!machine().isTracked(event, "cuEventSynchronize"))
    return InvalidHandle;
  return (*event)->capture ? int(CapturedEvent) : machine().synchronize(**event);
}

//===----------------------------------------------------------------------===//
// Modules and launches
//===----------------------------------------------------------------------===//

EXPORT int cuModuleLoadDataEx(Module **module, const void *image, unsigned, int *, void **) {
  if (int result = enter("cuModuleLoadDataEx"))
    return result;
  bool isElf = !std::memcmp(image,
                            "\x7f"
                            "ELF",
                            4);
  auto loaded = std::make_unique<Module>();
  loaded->isText = !isElf;
  int result = isElf ? loadElf(image, loaded->image)
                     : loadText(static_cast<const char *>(image), loaded->image);
  if (result)
    return result;
  if (!isElf)
    try {
      loaded->kernels =
          std::make_shared<const std::map<std::string, PtxKernel>>(parsePtx(loaded->image));
    } catch (const PtxError &error) {
      loaded->fault = error.what();
    }
  *module = loaded.release();
  machine().track(*module, "module");
  return Success;
}

EXPORT int cuModuleUnload(Module *module) {
  enter("cuModuleUnload");
  if (!machine().untrack(module, "cuModuleUnload"))
    return InvalidHandle;
  destroy<Module>(module);
  return Success;
}

EXPORT int cuModuleGetFunction(Function **function, Module *module, const char *name) {
  if (int result = enter("cuModuleGetFunction", nullptr, name))
    return result;
  if (!machine().isTracked(module, "cuModuleGetFunction"))
    return InvalidHandle;
  if (!hasKernel(*module, name))
    return NotFound;
  *function = &module->functions.emplace_back(Function{name, module});
  return Success;
}

EXPORT int cuFuncSetAttribute(Function *function, int attribute, int value) {
  if (int result = enter("cuFuncSetAttribute", nullptr, std::to_string(value)))
    return result;
  if (attribute != 8 || value < 0 || static_cast<unsigned>(value) > largestSharedBytes)
    return InvalidValue;
  function->sharedBytes = static_cast<unsigned>(value);
  return Success;
}

EXPORT int cuLaunchKernel(Function *function, unsigned gridX, unsigned gridY, unsigned gridZ,
                          unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                          void *handle, void **parameters, void **) {
  if (int result = enter("cuLaunchKernel", handle, function->symbol))
    return result;
  Stream *stream = machine().checkStream(handle, "cuLaunchKernel");
  if (!stream)
    return InvalidHandle;
  uint64_t threads = uint64_t(blockX) * blockY * blockZ;
  if (!gridX || !gridY || !gridZ || !threads || threads > 1024 || gridY > 65535 || gridZ > 65535 ||
      sharedBytes > function->sharedBytes)
    return InvalidValue;
  Launch launch{{gridX, gridY, gridZ}, {blockX, blockY, blockZ}, sharedBytes, {}};
  if (auto kernel = machine().findKernel(function->symbol))
    return launchHost(*stream, *function, std::move(*kernel), std::move(launch), parameters);
  const auto &kernels = function->module->kernels;
  if (!kernels || !kernels->count(function->symbol)) {
    machine().report("kernel " + function->symbol + " has neither a host function nor PTX" +
                     (function->module->fault.empty() ? "" : ": " + function->module->fault));
    return NotSupported;
  }
  return launchPtx(*stream, kernels, function->symbol, std::move(launch), parameters);
}

} // extern "C"
