//===- CudaDevice.cpp - an NVIDIA GPU as a device -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CudaDevice.h"

#include "runtime/core/Error.h"
#include "runtime/device/cuda/CuDnnGraph.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

namespace gridloom::rt {

using cuda::DevicePointer;

static DevicePointer toDevice(const void *pointer) {
  return static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(pointer));
}

//===----------------------------------------------------------------------===//
// Memory, modules, kernels
//===----------------------------------------------------------------------===//

namespace {

struct CudaMemory final : Memory {
  CudaMemory(std::shared_ptr<const CudaContext> context, DevicePointer pointer, size_t size)
      : context(std::move(context)), pointer(pointer) {
    data = reinterpret_cast<void *>(static_cast<uintptr_t>(pointer));
    bytes = size;
  }
  ~CudaMemory() override { context->useQuietly().memFree(pointer); }

  std::shared_ptr<const CudaContext> context;
  DevicePointer pointer;
};

} // namespace

/// The loaded code of one library.
class CudaModule {
public:
  CudaModule(std::shared_ptr<const CudaContext> context, cuda::Module handle)
      : context(std::move(context)), handle(handle) {}
  ~CudaModule() { context->useQuietly().moduleUnload(handle); }
  CudaModule(const CudaModule &) = delete;
  CudaModule &operator=(const CudaModule &) = delete;
  cuda::Module getHandle() const { return handle; }

private:
  std::shared_ptr<const CudaContext> context;
  cuda::Module handle;
};

namespace {

class CudaKernel final : public Kernel {
public:
  CudaKernel(std::shared_ptr<CudaModule> module, cuda::Function function, std::string symbol)
      : module(std::move(module)), function(function), symbol(std::move(symbol)) {}

  std::shared_ptr<CudaModule> module;
  cuda::Function function;
  std::string symbol;
  uint32_t sharedBytes = 48 * 1024; // what a launch may use without asking
};

} // namespace

static bool isBinary(std::span<const std::byte> code) {
  constexpr std::array<unsigned char, 4> elf = {0x7f, 'E', 'L', 'F'};
  constexpr std::array<unsigned char, 4> fatBinary = {0x50, 0xed, 0x55, 0xba};
  return code.size() >= 4 && (!std::memcmp(code.data(), elf.data(), 4) ||
                              !std::memcmp(code.data(), fatBinary.data(), 4));
}

static std::shared_ptr<CudaModule> loadModule(const std::shared_ptr<const CudaContext> &context,
                                              const std::string &library,
                                              std::span<const std::byte> code) {
  const cuda::Driver &driver = context->use();
  bool binary = isBinary(code);
  // The driver reads PTX as a string.
  std::string text;
  const void *image = code.data();
  if (!binary) {
    text.assign(reinterpret_cast<const char *>(code.data()), code.size());
    image = text.c_str();
  }

  std::array<char, 2048> log = {};
  int options[] = {cuda::JIT_ERROR_LOG_BUFFER, cuda::JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  cuda::Module handle = nullptr;
  cuda::Result result = driver.moduleLoadDataEx(&handle, image, 2, options, values);
  if (result == cuda::SUCCESS)
    return std::make_shared<CudaModule>(context, handle);

  std::string sm = "sm_" + std::to_string(context->getArchitecture());
  std::string message = "cuModuleLoadDataEx failed with " + driver.describe(result) + " loading " +
                        library + " on " + context->getName();
  switch (result) {
  case cuda::ERROR_NO_BINARY_FOR_GPU:
    throw Error(ErrorCode::InvalidPlan, message +
                                            ": it was compiled for another GPU; compile the "
                                            "model with --target cuda:" +
                                            sm);
  case cuda::ERROR_UNSUPPORTED_PTX_VERSION:
    throw Error(ErrorCode::InvalidPlan,
                message + ": its PTX is newer than the driver; install a newer driver");
  case cuda::ERROR_INVALID_IMAGE:
    throw Error(ErrorCode::InvalidPlan, message + ": the file is damaged or no GPU code; compile "
                                                  "the model again");
  case cuda::ERROR_INVALID_PTX: {
    std::string line = log.data();
    std::replace(line.begin(), line.end(), '\n', ' ');
    throw Error(ErrorCode::InvalidPlan, message + ": " + line);
  }
  default:
    driver.fail(result, "cuModuleLoadDataEx", "loading", library);
  }
}

//===----------------------------------------------------------------------===//
// CudaDevice
//===----------------------------------------------------------------------===//

CudaDevice::CudaDevice(int ordinal, const CudaOptions &options)
    : context(std::make_shared<CudaContext>(
          std::make_shared<const cuda::Driver>(options.driverPath), ordinal)),
      cublasLtPath(options.cublasLtPath), cudnnPath(options.cudnnPath) {}

CudaDevice::~CudaDevice() = default;

std::unique_ptr<Memory> CudaDevice::allocate(size_t bytes) {
  const cuda::Driver &driver = context->use();
  // Not from the driver's memory pool: NCCL lets peers of one process read buffers directly, which
  // pool memory does not allow.
  DevicePointer pointer = 0;
  cuda::Result result = driver.memAlloc(&pointer, std::max<size_t>(bytes, 1));
  if (result == cuda::ERROR_OUT_OF_MEMORY) {
    size_t free = 0;
    size_t total = 0;
    driver.memGetInfo(&free, &total);
    throw Error(ErrorCode::OutOfMemory,
                "cuMemAlloc failed on " + getName() + ": " + std::to_string(bytes) +
                    " bytes asked, " + std::to_string(free) + " of " + std::to_string(total) +
                    " free; shard over more devices, or use more micro-batches");
  }
  driver.check(result, "cuMemAlloc", ("allocating " + std::to_string(bytes) + " bytes on").c_str(),
               getName());
  return std::make_unique<CudaMemory>(context, pointer, bytes);
}

std::unique_ptr<Stream> CudaDevice::createStream(StreamKind kind, const std::string &name) {
  return std::make_unique<CudaStream>(context, kind, name);
}

std::unique_ptr<Event> CudaDevice::createEvent() { return std::make_unique<CudaEvent>(context); }

std::unique_ptr<Kernel> CudaDevice::loadKernel(const std::string &library,
                                               std::span<const std::byte> code,
                                               const std::string &symbol) {
  // Two plans may have files of one name with different code.
  uint64_t digest = 14695981039346656037u;
  for (std::byte byte : code)
    digest = (digest ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  std::weak_ptr<CudaModule> &entry = modules[library + '#' + std::to_string(digest)];
  std::shared_ptr<CudaModule> module = entry.lock();
  if (!module)
    entry = module = loadModule(context, library, code);

  const cuda::Driver &driver = context->use();
  cuda::Function function = nullptr;
  cuda::Result result = driver.moduleGetFunction(&function, module->getHandle(), symbol.c_str());
  if (result == cuda::ERROR_NOT_FOUND)
    throw Error(ErrorCode::InvalidPlan, library + " has no kernel " + symbol +
                                            "; the plan is damaged, compile the model again");
  driver.check(result, "cuModuleGetFunction", "looking for kernel", symbol);
  return std::make_unique<CudaKernel>(std::move(module), function, symbol);
}

std::unique_ptr<MatmulPlan> CudaDevice::createMatmul(const MatmulProblem &problem) {
  if (!cublasLt)
    cublasLt = std::make_shared<const CuBlasLt>(context, cublasLtPath);
  return createCuBlasLtMatmul(cublasLt, problem, tuning.get());
}

/// "NVIDIA-H200-sm_90-13000": without the number of the GPU, which others are alike.
std::string CudaDevice::getTuningName() const {
  std::string name = getName();
  name.erase(0, name.find(' ') + 1);
  std::string file;
  for (char c : name + " " + std::to_string(context->use().getVersion()))
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.')
      file += c;
    else if (!file.empty() && file.back() != '-')
      file += '-';
  return file;
}

const std::shared_ptr<const CuDnn> &CudaDevice::getCuDnn() {
  if (!cudnn)
    cudnn = std::make_shared<const CuDnn>(context, cudnnPath);
  return cudnn;
}

std::unique_ptr<LibraryPlan> CudaDevice::createConvolution(const ConvolutionProblem &problem) {
  return createCuDnnConvolution(getCuDnn(), problem, tuning);
}

std::unique_ptr<LibraryPlan> CudaDevice::createAttention(const AttentionProblem &problem) {
  return createCuDnnAttention(getCuDnn(), problem, tuning);
}

void CudaDevice::call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
                      void *out) {
  std::vector<const void *> operands(inputs.begin(), inputs.end());
  operands.push_back(out);
  static_cast<CuDnnCall &>(plan).run(static_cast<CudaStream &>(stream), operands);
}

void CudaDevice::launch(Stream &stream, Kernel &kernel, const LaunchShape &shape,
                        std::span<void *const> pointers) {
  auto &cudaKernel = static_cast<CudaKernel &>(kernel);
  auto &cudaStream = static_cast<CudaStream &>(stream);
  const cuda::Driver &driver = context->use();
  if (shape.sharedBytes > cudaKernel.sharedBytes) {
    driver.check(driver.funcSetAttribute(cudaKernel.function,
                                         cuda::FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         static_cast<int>(shape.sharedBytes)),
                 "cuFuncSetAttribute", "asking for more shared memory for kernel",
                 cudaKernel.symbol);
    cudaKernel.sharedBytes = shape.sharedBytes;
  }

  constexpr size_t inlineCount = 32;
  std::array<void *, inlineCount> few;
  std::vector<void *> many;
  void **parameters = few.data();
  if (pointers.size() > inlineCount) {
    many.resize(pointers.size());
    parameters = many.data();
  }
  for (size_t i = 0; i < pointers.size(); ++i)
    parameters[i] = static_cast<void *>(const_cast<void **>(&pointers[i]));
  driver.check(driver.launchKernel(
                   cudaKernel.function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                   shape.block[1], shape.block[2], shape.sharedBytes,
                   static_cast<cuda::StreamHandle>(cudaStream.getNative()), parameters, nullptr),
               "cuLaunchKernel", "launching kernel", cudaKernel.symbol);
}

void CudaDevice::matmul(Stream &stream, MatmulPlan &plan, const MatmulOperands &operands,
                        void *out) {
  runCuBlasLtMatmul(static_cast<CudaStream &>(stream), plan, operands, out);
}

void CudaDevice::copy(Stream &stream, void *to, const void *from, size_t bytes) {
  if (bytes == 0 || to == from)
    return;
  const cuda::Driver &driver = context->use();
  driver.check(driver.memcpyDtoDAsync(toDevice(to), toDevice(from), bytes,
                                      static_cast<cuda::StreamHandle>(stream.getNative())),
               "cuMemcpyDtoDAsync", "on stream", static_cast<CudaStream &>(stream).getName());
}

void CudaDevice::zero(Stream &stream, void *to, size_t bytes) {
  if (bytes == 0)
    return;
  const cuda::Driver &driver = context->use();
  driver.check(driver.memsetD8Async(toDevice(to), 0, bytes,
                                    static_cast<cuda::StreamHandle>(stream.getNative())),
               "cuMemsetD8Async", "on stream", static_cast<CudaStream &>(stream).getName());
}

void CudaDevice::copyIn(Stream &stream, void *to, const void *from, size_t bytes) {
  static_cast<CudaStream &>(stream).copyIn(to, from, bytes);
}

void CudaDevice::copyOut(Stream &stream, void *to, const void *from, size_t bytes) {
  static_cast<CudaStream &>(stream).copyOut(to, from, bytes);
}

std::optional<DeviceMemory> CudaDevice::getMemory() const {
  const cuda::Driver &driver = context->use();
  size_t free = 0;
  size_t total = 0;
  driver.check(driver.memGetInfo(&free, &total), "cuMemGetInfo", "on", getName());
  return DeviceMemory{free, total};
}

std::string CudaDevice::checkTarget(const std::string &arch, int version) const {
  const std::string own = "sm_" + std::to_string(context->getArchitecture());
  int wanted = 0;
  size_t number = std::min<size_t>(arch.size(), 3); // behind "sm_"
  std::from_chars(arch.data() + number, arch.data() + arch.size(), wanted);
  int present = context->getArchitecture();
  // "sm_90a" is for compute capability 9.0 alone.
  bool isAlone = !arch.empty() && std::isalpha(static_cast<unsigned char>(arch.back()));
  if (wanted > present || (isAlone && wanted != present))
    throw Error(ErrorCode::InvalidPlan,
                "the plan is for " + arch + " GPUs, " + getName() +
                    " is not one; compile the model with --target cuda:" + own);
  const int driver = context->use().getVersion();
  if (version > driver)
    throw Error(ErrorCode::Unavailable,
                "the plan's kernels need a driver for CUDA " + cuda::formatVersion(version) +
                    ", the one of " + getName() + " is for CUDA " + cuda::formatVersion(driver) +
                    "; install a newer NVIDIA driver");
  if (wanted / 10 == present / 10)
    return "";
  return "kernels for " + arch + " are compiled anew for " + own +
         " by the driver, which takes a while; --target cuda:" + own + " spares it";
}

void CudaDevice::beginCapture(std::span<Stream *const> streams) {
  capture = std::make_unique<CudaCapture>(context, streams);
}

std::unique_ptr<WorkGraph> CudaDevice::endCapture() {
  std::unique_ptr<CudaCapture> ending = std::move(capture);
  return ending->end();
}

void CudaDevice::replay(Stream &stream, WorkGraph &graph) {
  static_cast<CudaGraph &>(graph).launch(static_cast<CudaStream &>(stream));
}

std::unique_ptr<Device> createCudaDevice(int ordinal) {
  return std::make_unique<CudaDevice>(ordinal);
}

} // namespace gridloom::rt
