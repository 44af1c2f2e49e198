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
  uint32_t sharedBytes = 48 * 1024; // the limit without cuFuncSetAttribute
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
  // The driver needs PTX to end with a zero byte.
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
  // pool memory does not support.
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

/// A cubin runs on its GPU architecture and later minor versions; on other newer GPUs the driver
/// compiles the PTX beside it.
std::vector<std::string> CudaDevice::listLibraries(const std::string &library) const {
  constexpr std::string_view binary = ".cubin";
  if (!library.ends_with(binary))
    return {library};
  return {library, library.substr(0, library.size() - binary.size()) + ".ptx"};
}

std::unique_ptr<Kernel> CudaDevice::loadKernel(const std::string &library,
                                               std::span<const std::byte> code,
                                               const std::string &symbol) {
  // Two plans may have different code under the same file name.
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

//===----------------------------------------------------------------------===//
// Libraries
//===----------------------------------------------------------------------===//

Kernel &CudaDevice::getMap(MapKind kind, DataType type) {
  std::unique_ptr<Kernel> &kernel = maps[getMapName(kind, type)];
  if (kernel)
    return *kernel;
  // A capture in progress on this thread forbids loading code except in relaxed mode.
  const cuda::Driver &driver = context->use();
  int mode = cuda::STREAM_CAPTURE_MODE_RELAXED;
  if (capture)
    driver.check(driver.threadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode",
                 "on", getName());
  std::string code = makeMapPtx(kind, type);
  try {
    kernel = loadKernel("map.ptx", std::as_bytes(std::span(code)), getMapName(kind, type));
  } catch (...) {
    if (capture)
      driver.threadExchangeStreamCaptureMode(&mode);
    throw;
  }
  if (capture)
    driver.threadExchangeStreamCaptureMode(&mode);
  return *kernel;
}

void CudaDevice::map(CudaStream &stream, MapKind kind, DataType type, const void *in, void *out,
                     size_t count, size_t columns) {
  if (count == 0)
    return;
  constexpr size_t threads = 256, mostBlocks = 4096;
  LaunchShape shape;
  shape.grid[0] = uint32_t(std::min(mostBlocks, (count + threads - 1) / threads));
  shape.block[0] = threads;
  // Parameters of a map have 8 bytes; the last two are numbers.
  void *parameters[] = {const_cast<void *>(in), out, reinterpret_cast<void *>(count),
                        reinterpret_cast<void *>(columns)};
  size_t used = kind == MapKind::AddBias ? 4 : 3;
  launch(stream, getMap(kind, type), shape, std::span<void *const>(parameters).first(used));
}

namespace {

/// A library's product, and what kernels of the runtime add to it.
struct CudaMatmul final : MatmulPlan {
  std::unique_ptr<MatmulPlan> product;
  DataType type = DataType::F32;
  size_t count = 0, columns = 0; // of the result
  bool bias = false, relu = false;
};

struct CudaCall final : LibraryPlan {
  std::unique_ptr<CuDnnCall> call;
  DataType type = DataType::F32;
  size_t count = 0;
  bool relu = false;
};

} // namespace

/// The number of elements of a tensor without gaps, in any order of dimensions; nothing if it has
/// gaps.
static std::optional<size_t> countDense(std::span<const int64_t> sizes,
                                        std::span<const int64_t> strides) {
  std::vector<std::pair<int64_t, int64_t>> dims; // stride, size
  for (size_t i = 0; i < strides.size(); ++i)
    if (sizes[i] != 1)
      dims.emplace_back(strides[i], sizes[i]);
  std::sort(dims.begin(), dims.end());
  int64_t count = 1;
  for (auto [stride, size] : dims) {
    if (stride != count)
      return std::nullopt;
    count *= size;
  }
  return static_cast<size_t>(count);
}

static size_t requireDense(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                           const char *what) {
  if (std::optional<size_t> count = countDense(sizes, strides))
    return *count;
  throw Error(ErrorCode::InvalidPlan, std::string(what) + " is computed on dense results only; "
                                                          "compile the model again");
}

std::unique_ptr<MatmulPlan> CudaDevice::createMatmul(const MatmulProblem &problem) {
  if (!cublasLt)
    cublasLt = std::make_shared<const CuBlasLt>(context, cublasLtPath);
  auto made = std::make_unique<CudaMatmul>();
  MatmulProblem rest = problem;
  made->type = problem.getOutType();
  // cuBLASLt has no epilogues for f64.
  made->bias = problem.epilogue.bias && problem.type == DataType::F64;
  made->relu = problem.epilogue.activation == Activation::Relu;
  rest.epilogue.bias = problem.epilogue.bias && !made->bias;
  if (made->relu)
    rest.epilogue.activation = Activation::None;
  if (made->bias || made->relu) {
    std::span<const int64_t> sizes = problem.sizes.first(problem.sizes.size() - 1);
    made->count = requireDense(sizes, problem.out, made->relu ? "relu" : "a bias in f64");
    made->columns = static_cast<size_t>(sizes.back());
    if (made->bias && sizes.back() != 1 && problem.out.back() != 1)
      throw Error(ErrorCode::InvalidPlan,
                  "a bias in f64 is computed on rows only; compile the model again");
  }
  made->product = createCuBlasLtMatmul(cublasLt, rest, tuning.get());
  if (made->bias)
    prepareMap(MapKind::AddBias, made->type);
  if (made->relu)
    prepareMap(MapKind::Relu, made->type);
  return made;
}

/// "NVIDIA-H200-sm_90-13000": without the GPU's number, so that equal GPUs share a file.
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

std::string CudaDevice::getLibraryVersions() const {
  context->use();
  std::string text;
  if (cublasLt)
    text += "cuBLASLt " + std::to_string(cublasLt->getVersion()) + " ";
  if (cudnn)
    text += "cuDNN " + std::to_string(cudnn->getVersion());
  return text;
}

const std::shared_ptr<const CuDnn> &CudaDevice::getCuDnn() {
  if (!cudnn)
    cudnn = std::make_shared<const CuDnn>(context, cudnnPath);
  return cudnn;
}

std::unique_ptr<LibraryPlan> CudaDevice::createConvolution(const ConvolutionProblem &problem) {
  auto made = std::make_unique<CudaCall>();
  ConvolutionProblem rest = problem;
  rest.epilogue.activation = Activation::None;
  made->type = problem.type;
  made->relu = problem.epilogue.activation == Activation::Relu;
  if (made->relu) {
    made->count = requireDense(problem.output, problem.outputStrides, "relu");
    prepareMap(MapKind::Relu, made->type);
  }
  made->call = createCuDnnConvolution(getCuDnn(), rest, tuning);
  return made;
}

std::unique_ptr<LibraryPlan> CudaDevice::createAttention(const AttentionProblem &problem) {
  auto made = std::make_unique<CudaCall>();
  made->call = createCuDnnAttention(getCuDnn(), problem, tuning);
  return made;
}

void CudaDevice::call(Stream &stream, LibraryPlan &plan, std::span<const void *const> inputs,
                      void *out) {
  std::vector<const void *> operands(inputs.begin(), inputs.end());
  operands.push_back(out);
  auto &made = static_cast<CudaCall &>(plan);
  auto &cudaStream = static_cast<CudaStream &>(stream);
  made.call->run(cudaStream, operands);
  if (made.relu)
    map(cudaStream, MapKind::Relu, made.type, out, out, made.count);
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
  auto &made = static_cast<CudaMatmul &>(plan);
  auto &cudaStream = static_cast<CudaStream &>(stream);
  runCuBlasLtMatmul(cudaStream, *made.product, operands, out);
  if (made.bias)
    map(cudaStream, MapKind::AddBias, made.type, operands.bias, out, made.count, made.columns);
  if (made.relu)
    map(cudaStream, MapKind::Relu, made.type, out, out, made.count);
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
  size_t number = std::min<size_t>(arch.size(), 3); // after "sm_"
  std::from_chars(arch.data() + number, arch.data() + arch.size(), wanted);
  int present = context->getArchitecture();
  // "sm_90a" runs on compute capability 9.0 only.
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

int countCudaDevices(const CudaOptions &options) {
  cuda::Driver driver(options.driverPath);
  int count = 0;
  driver.check(driver.deviceGetCount(&count), "cuDeviceGetCount", "counting the GPUs");
  return count;
}

} // namespace gridloom::rt
