//===- CudaTarget.cpp - plans for NVIDIA's GPUs -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt computes matrix multiplications, cuDNN convolutions and attention; all else becomes
// kernels.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/KernelFiles.h"
#include "compiler/target/Target.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
const TargetKind &cudaTargets();
} // namespace gridloom

namespace {

/// GPUs from an architecture on, up to the next line's.
struct Generation {
  unsigned architecture; ///< 90 of sm_90
  StringLiteral machine; ///< the one that is most common
  int64_t processors;    ///< that machine's multiprocessors
};

class CudaTarget final : public Target {
public:
  CudaTarget(std::string name, TargetTraits traits, std::string toolkit)
      : Target(std::move(name), std::move(traits)), toolkit(std::move(toolkit)) {}
  LogicalResult emitKernels(ModuleOp module, KernelFiles &kernels) const override;
  llvm::json::Object describe(const KernelFiles &kernels) const override;

private:
  std::string toolkit;
};

} // namespace

static constexpr Generation generations[] = {
    {80, "A100-80GB", 108}, {90, "H100-80GB", 132}, {100, "B200-180GB", 148}};

LogicalResult CudaTarget::emitKernels(ModuleOp module, KernelFiles &kernels) const {
  codegen::GpuOptions options;
  options.chip = getTraits().arch;
  options.toolkit = toolkit;
  options.processors = getTraits().processors;
  FailureOr<std::vector<codegen::CompiledGpuKernel>> compiled =
      codegen::compileGpuKernels(module, options);
  if (failed(compiled))
    return failure();
  for (codegen::CompiledGpuKernel &kernel : *compiled) {
    const std::string &library = kernel.library;
    // Without an assembler the plan has PTX, which the driver assembles.
    schema::Kernel &proto =
        kernels.add(kernel.info, library + (kernel.cubin.empty() ? ".ptx" : ".cubin"));
    if (kernel.registers > 0) {
      proto.set_registers(kernel.registers);
      proto.set_spill_bytes(kernel.spillBytes);
    }
    for (uint32_t size : kernel.grid)
      proto.add_grid(size);
    for (uint32_t size : kernel.block)
      proto.add_block(size);
    kernels.compiled.push_back(
        {kernel.info.symbol, plan::stringifySkeleton(kernel.info.skeleton).str(), kernel.registers,
         kernel.spillBytes, static_cast<int64_t>(kernel.sharedBytes), kernel.milliseconds.lowering,
         kernel.milliseconds.ptx, kernel.milliseconds.cubin});
    kernels.cudaVersion = std::max(kernels.cudaVersion, kernel.cudaVersion);
    kernels.files["kernels/" + library + ".ptx"] = std::move(kernel.ptx);
    if (!kernel.cubin.empty())
      kernels.files["kernels/" + library + ".cubin"] = std::move(kernel.cubin);
  }
  return success();
}

llvm::json::Object CudaTarget::describe(const KernelFiles &kernels) const {
  llvm::json::Object object = Target::describe(kernels);
  if (kernels.cudaVersion)
    object["cuda"] = kernels.cudaVersion;
  return object;
}

/// 90 for cuda:sm_90 and cuda:sm_90a; 0 if the architecture is unknown or too old.
static unsigned findArchitecture(StringRef name) {
  unsigned architecture = 0;
  if (!name.consume_front("cuda:") || !codegen::isKnownGpu(name) || !name.consume_front("sm_") ||
      name.consumeInteger(10, architecture) || architecture < generations[0].architecture)
    return 0;
  return architecture;
}

static TargetTraits makeTraits(StringRef chip, unsigned architecture, bool cudnn) {
  TargetTraits traits;
  traits.kind = "cuda";
  traits.arch = chip.str();
  for (const Generation &generation : generations)
    if (architecture >= generation.architecture) {
      traits.machine = generation.machine;
      traits.processors = generation.processors;
    }
  traits.generation = architecture / 10 * 10;
  traits.tf32 = true;
  traits.neuralLibrary = "cudnn";
  traits.layout.convolutionLibrary = traits.fuse.attentionLibrary = cudnn;
  traits.layout.mergeMatmuls = true;
  // Rows of a power of two do not conflict in GPU caches, and kernels read dense weights.
  traits.layout.padMultiple = 0;
  traits.fuse.activationEpilogues = traits.fuse.residualEpilogues = true;
  traits.fuse.rowProducts = true;
  return traits;
}

static std::unique_ptr<Target> makeCudaTarget(const TargetOptions &options, std::string &error) {
  unsigned architecture = findArchitecture(options.name);
  if (!architecture)
    return nullptr;
  if (!options.toolkit.empty() && !llvm::sys::fs::exists(options.toolkit + "/bin/ptxas")) {
    error = "--cuda-toolkit " + options.toolkit +
            " has no bin/ptxas; without the option a plan may do without ptxas and keep its PTX";
    return nullptr;
  }
  StringRef chip = StringRef(options.name).split(':').second;
  return std::make_unique<CudaTarget>(options.name, makeTraits(chip, architecture, options.cudnn),
                                      options.toolkit);
}

const TargetKind &gridloom::cudaTargets() {
  static constexpr StringRef spellings[] = {"cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};
  static const TargetFlag flags[] = {
      {"--cuda-toolkit", [](const TargetOptions &options) { return !options.toolkit.empty(); }},
      {"--no-cudnn", [](const TargetOptions &options) { return !options.cudnn; }}};
  static const TargetKind kind{"cuda", spellings, "cuda:sm_90", flags, makeCudaTarget};
  return kind;
}
