//===- GpuLowering.cpp - GPU functions to PTX -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/GpuLowering.h"
#include "compiler/codegen/Body.h"
#include "compiler/codegen/ContractSums.h"
#include "compiler/codegen/gpu/GpuEmitter.h"
#include "dialects/loom/Kernels.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Threading.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <atomic>
#include <ctime>
#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

void gridloom::codegen::registerGpuDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect,
                  math::MathDialect, memref::MemRefDialect, NVVM::NVVMDialect, scf::SCFDialect,
                  vector::VectorDialect, LLVM::LLVMDialect>();
  // convert-gpu-to-nvvm finds each dialect's conversions through these interfaces.
  arith::registerConvertArithToLLVMInterface(registry);
  cf::registerConvertControlFlowToLLVMInterface(registry);
  registerConvertFuncToLLVMInterface(registry);
  NVVM::registerConvertGpuToNVVMInterface(registry);
  index::registerConvertIndexToLLVMInterface(registry);
  registerConvertMathToLLVMInterface(registry);
  registerConvertMemRefToLLVMInterface(registry);
  registerConvertNVVMToLLVMInterface(registry);
  vector::registerConvertVectorToLLVMInterface(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

std::string gridloom::codegen::findToolkit(const GpuOptions &options) {
  if (!options.toolkit.empty())
    return options.toolkit;
  if (const char *home = std::getenv("CUDA_HOME"); home && *home)
    return home;
  return llvm::sys::fs::is_directory("/usr/local/cuda") ? "/usr/local/cuda" : "";
}

/// Replaces math functions without libdevice: polynomials for f32, an error for others that have no
/// instruction.
static LogicalResult expandMath(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  math::populateExpansionPatterns(patterns, {"rsqrt"});
  if (failed(applyPatternsGreedily(module, std::move(patterns))))
    return module.emitError("math operations cannot be expanded");
  WalkResult result = module.walk([](Operation *op) {
    bool isInstruction = isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp,
                             math::FloorOp, math::FmaOp, math::SqrtOp>(op);
    bool isMath = isa_and_present<math::MathDialect>(op->getDialect()) && !isInstruction;
    if (!isMath && !isa<arith::RemFOp>(op))
      return WalkResult::advance();
    op->emitError() << "kernel " << op->getParentOfType<gpu::GPUFuncOp>().getName() << ": "
                    << op->getName() << " of " << getElementTypeOrSelf(op->getResult(0).getType())
                    << " needs libdevice of the CUDA toolkit; set CUDA_HOME";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// Gives shared memory the number of its address space, which the conversion of vector accesses
/// needs.
static void numberSpaces(ModuleOp module) {
  Type type = IntegerType::get(module.getContext(), 64);
  auto space = IntegerAttr::get(type, static_cast<int64_t>(NVVM::NVVMMemorySpace::Shared));
  module.walk([&](gpu::GPUFuncOp function) {
    for (BlockArgument memory : function.getWorkgroupAttributions())
      memory.setType(MemRefType::Builder(cast<MemRefType>(memory.getType())).setMemorySpace(space));
  });
}

/// Claims no more than a view's alignment: chips that access 32 bytes at once would trap on others.
static void limitAlignment(ModuleOp module) {
  static constexpr unsigned most = loom::kViewAlignment;
  module.walk([](Operation *op) {
    if (auto load = dyn_cast<LLVM::LoadOp>(op); load && load.getAlignment().value_or(0) > most)
      load.setAlignment(most);
    else if (auto store = dyn_cast<LLVM::StoreOp>(op);
             store && store.getAlignment().value_or(0) > most)
      store.setAlignment(most);
  });
}

/// Expands absolute values of integers: their conversion supports only 32 bits.
static void expandIntegerAbs(ModuleOp module) {
  module.walk([](math::AbsIOp op) {
    OpBuilder builder(op);
    Value value = op.getOperand();
    Value zero =
        arith::ConstantOp::create(builder, op.getLoc(), builder.getZeroAttr(value.getType()));
    Value negative = arith::SubIOp::create(builder, op.getLoc(), zero, value);
    op.replaceAllUsesWith(
        arith::MaxSIOp::create(builder, op.getLoc(), value, negative).getResult());
    op.erase();
  });
}

LogicalResult gridloom::codegen::lowerToNvvm(ModuleOp module, bool hasLibdevice) {
  MLIRContext *context = module.getContext();
  numberSpaces(module);
  expandIntegerPowers(module);
  expandIntegerAbs(module);
  if (!hasLibdevice && failed(expandMath(module)))
    return failure();
  if (failed(contractSums(module)))
    return module.emitError("sums of products cannot be fused");
  PassManager pm(context);
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  // Vector alignment allows accesses of 128 bits.
  ConvertVectorToLLVMPassOptions vectorOptions;
  vectorOptions.useVectorAlignment = true;
  vectorOptions.reassociateFPReductions = true;
  kernels.addPass(createConvertVectorToLLVMPass(vectorOptions));
  ConvertGpuOpsToNVVMOpsOptions gpuOptions;
  gpuOptions.useBarePtrCallConv = true;
  gpuOptions.indexBitwidth = 64;
  kernels.addPass(createConvertGpuOpsToNVVMOps(gpuOptions));
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  kernels.addPass(createConvertNVVMToLLVMPass());
  if (failed(pm.run(module)))
    return failure();
  limitAlignment(module);
  return success();
}

//===----------------------------------------------------------------------===//
// PTX
//===----------------------------------------------------------------------===//

static const llvm::Target *findTarget(const llvm::Triple &triple, std::string &error) {
  static const bool isInitialised = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)isInitialised;
  return llvm::TargetRegistry::lookupTarget(triple, error);
}

static bool hasChip(const llvm::Target &target, const llvm::Triple &triple, StringRef chip) {
  std::unique_ptr<llvm::MCSubtargetInfo> chips(target.createMCSubtargetInfo(triple, "", ""));
  return chips->isCPUStringValid(chip);
}

static llvm::Triple getTriple() { return llvm::Triple("nvptx64-nvidia-cuda"); }

bool gridloom::codegen::isKnownGpu(StringRef chip) {
  std::string error;
  const llvm::Target *target = findTarget(getTriple(), error);
  return target && hasChip(*target, getTriple(), chip);
}

static std::unique_ptr<llvm::TargetMachine> makeTarget(const std::string &chip,
                                                       std::string &error) {
  const llvm::Target *target = findTarget(getTriple(), error);
  if (!target)
    return nullptr;
  if (!hasChip(*target, getTriple(), chip)) {
    error = "unknown GPU architecture '" + chip + "'; use sm_80, sm_90 or the like";
    return nullptr;
  }
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      getTriple(), chip, "", {}, {}, {}, llvm::CodeGenOptLevel::Aggressive));
}

/// Adds the functions of libdevice that `code` calls.
static LogicalResult linkLibdevice(Operation *op, llvm::Module &code,
                                   const std::string &libdevice) {
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library =
      llvm::getLazyIRFileModule(libdevice, diagnostic, code.getContext());
  if (!library)
    return op->emitError() << "cannot read " << libdevice << ": " << diagnostic.getMessage();
  library->setDataLayout(code.getDataLayout());
  library->setTargetTriple(code.getTargetTriple());
  auto hide = [](llvm::Module &linked, const llvm::StringSet<> &names) {
    for (const auto &name : names)
      if (llvm::Function *function = linked.getFunction(name.getKey()))
        if (!function->isDeclaration())
          function->setLinkage(llvm::GlobalValue::InternalLinkage);
  };
  if (llvm::Linker::linkModules(code, std::move(library), llvm::Linker::LinkOnlyNeeded, hide))
    return op->emitError() << "cannot link " << libdevice;
  code.addModuleFlag(llvm::Module::Override, "nvvm-reflect-ftz", 0U);
  return success();
}

/// Replaces libdevice calls by intrinsics where these are one instruction.
static void replaceSimpleMath(llvm::Module &code) {
  static constexpr std::pair<StringLiteral, llvm::Intrinsic::ID> table[] = {
      {"__nv_fabs", llvm::Intrinsic::fabs},   {"__nv_floor", llvm::Intrinsic::floor},
      {"__nv_ceil", llvm::Intrinsic::ceil},   {"__nv_fma", llvm::Intrinsic::fma},
      {"__nv_sqrt", llvm::Intrinsic::sqrt},   {"__nv_copysign", llvm::Intrinsic::copysign},
      {"__nv_fmax", llvm::Intrinsic::maxnum}, {"__nv_fmin", llvm::Intrinsic::minnum}};
  for (auto [name, intrinsic] : table)
    for (const char *suffix : {"", "f"})
      if (llvm::Function *function = code.getFunction((name + suffix).str())) {
        function->replaceAllUsesWith(
            llvm::Intrinsic::getOrInsertDeclaration(&code, intrinsic, {function->getReturnType()}));
        function->eraseFromParent();
      }
}

/// Translates all `modules` to one LLVM module, without libdevice.
static std::unique_ptr<llvm::Module> translate(ArrayRef<Operation *> modules,
                                               const llvm::TargetMachine &machine,
                                               llvm::LLVMContext &context) {
  std::unique_ptr<llvm::Module> code;
  for (Operation *op : modules) {
    std::unique_ptr<llvm::Module> part = translateModuleToLLVMIR(op, context, "gridloom_kernels");
    if (!part)
      return nullptr;
    part->setDataLayout(machine.createDataLayout());
    part->setTargetTriple(machine.getTargetTriple());
    if (!code) {
      code = std::move(part);
    } else if (llvm::Linker::linkModules(*code, std::move(part))) {
      op->emitError() << "cannot link kernel";
      return nullptr;
    }
  }
  return code;
}

FailureOr<std::string> gridloom::codegen::translateToPtx(ArrayRef<Operation *> modules,
                                                         const std::string &chip,
                                                         const std::string &libdevice) {
  Operation *op = modules.front();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTarget(chip, error);
  if (!machine)
    return op->emitError(error);
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> code = translate(modules, *machine, llvmContext);
  if (!code)
    return failure();
  // libdevice's versions are less exact, or as exact and longer.
  replaceSimpleMath(*code);
  bool needsMath = llvm::any_of(*code, [](const llvm::Function &function) {
    return function.isDeclaration() && function.getName().starts_with("__nv_");
  });
  if (!libdevice.empty() && needsMath && failed(linkLibdevice(op, *code, libdevice)))
    return failure();
  auto optimise = makeOptimizingTransformer(3, 0, machine.get());
  if (llvm::Error failed = optimise(code.get()))
    return op->emitError(llvm::toString(std::move(failed)));
  SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager pm;
  if (machine->addPassesToEmitFile(pm, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return op->emitError("LLVM cannot write PTX for " + chip);
  pm.run(*code);
  return std::string(text.begin(), text.end());
}

//===----------------------------------------------------------------------===//
// Libraries of kernels
//===----------------------------------------------------------------------===//

namespace {

/// Milliseconds of processor time since construction: of this thread, or of all.
class Stopwatch {
public:
  explicit Stopwatch(clockid_t clock) : clock(clock), begin(now()) {}
  double read() const { return now() - begin; }

private:
  double now() const {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  }

  clockid_t clock;
  double begin;
};

/// The first CUDA version, 1000 * major + 10 * minor, whose driver accepts `ptx`. LLVM chooses the
/// PTX version by the chip and states it only in the text.
FailureOr<int64_t> findCudaVersion(Operation *op, StringRef ptx) {
  StringRef version = ptx.split(".version ").second;
  unsigned major, minor;
  if (version.consumeInteger(10, major) || !version.consume_front(".") ||
      version.consumeInteger(10, minor))
    return op->emitError("LLVM wrote PTX without a version");
  // PTX 7, 8 and 9 came with CUDA 11, 12 and 13; CUDA 12.5 and 12.6 share PTX 8.5.
  int64_t release = major == 8 && minor > 5 ? minor + 1 : minor;
  return int64_t(major + 4) * 1000 + release * 10;
}

/// Lets a context use threads while in scope. Elsewhere compilation is single-threaded: passes are
/// short, and code generation takes most of the time.
class ThreadedScope {
public:
  explicit ThreadedScope(MLIRContext *context)
      : context(context), had(context->isMultithreadingEnabled()) {
    context->enableMultithreading();
  }
  ThreadedScope(const ThreadedScope &) = delete;
  ThreadedScope &operator=(const ThreadedScope &) = delete;
  ~ThreadedScope() { context->enableMultithreading(had); }

private:
  MLIRContext *context;
  bool had;
};

/// The tools that turn nvvm modules into machine code.
struct Toolchain {
  std::string chip, libdevice, ptxas; // paths are empty where there is none

  explicit Toolchain(const GpuOptions &options) : chip(options.chip) {
    std::string toolkit = findToolkit(options);
    if (toolkit.empty())
      return;
    libdevice = toolkit + "/nvvm/libdevice/libdevice.10.bc";
    if (!llvm::sys::fs::exists(libdevice))
      libdevice.clear();
    ptxas = toolkit + "/bin/ptxas";
    if (!options.assemble || !llvm::sys::fs::can_execute(ptxas))
      ptxas.clear();
  }

  LogicalResult compile(ArrayRef<Operation *> modules,
                        MutableArrayRef<CompiledGpuKernel> kernels) const {
    auto share = static_cast<double>(kernels.size());
    Stopwatch translation(CLOCK_THREAD_CPUTIME_ID);
    FailureOr<std::string> ptx = translateToPtx(modules, chip, libdevice);
    if (failed(ptx))
      return failure();
    FailureOr<int64_t> version = findCudaVersion(modules.front(), *ptx);
    if (failed(version))
      return failure();
    for (CompiledGpuKernel &kernel : kernels) {
      kernel.ptx = *ptx;
      kernel.cudaVersion = *version;
      kernel.milliseconds.ptx = translation.read() / share;
    }
    if (ptxas.empty())
      return success();
    return assemblePtx(modules.front()->getLoc(), ptxas, chip, kernels);
  }
};

} // namespace

/// The alignment of a pointer to `buffer`, in bytes: micro-batches of inputs and outputs follow
/// each other without gaps.
static int64_t findAlignment(Value buffer) {
  while (auto alias = buffer.getDefiningOp<plan::AliasOp>())
    buffer = alias.getSource();
  auto declared = buffer.getDefiningOp<plan::BufferOp>();
  if (!declared || declared.getSlots() == 1)
    return loom::kViewAlignment;
  auto type = cast<plan::BufferType>(buffer.getType()).getTensor();
  return std::gcd(declared.getBytes().value_or(loom::getByteSize(type)), loom::kViewAlignment);
}

/// Notes on the kernels of `work` how the steps of `module` that launch them align their pointers.
static void noteAlignments(ModuleOp module, ModuleOp work) {
  llvm::StringMap<SmallVector<int64_t>> alignments; // by kernel
  auto note = [&](StringRef kernel, ArrayRef<int64_t> pointers) {
    SmallVector<int64_t> &known = alignments[kernel];
    known.resize(pointers.size(), loom::kViewAlignment);
    for (auto [least, own] : llvm::zip_equal(known, pointers))
      least = std::min(least, own);
  };
  module.walk([&](plan::LaunchOp launch) {
    note(launch.getKernel(), llvm::map_to_vector(launch->getOperands(), findAlignment));
  });
  // A fallback reads the product, which the runtime allocates, and the bias, and writes the output.
  module.walk([&](plan::LibraryOp call) {
    auto matmul = dyn_cast<plan::MatmulAttr>(call.getDescriptor());
    if (!matmul || !call.getFallback())
      return;
    SmallVector<int64_t> pointers{loom::kViewAlignment};
    if (matmul.getEpilogue().getBias())
      pointers.push_back(findAlignment(call.getInputs()[2]));
    pointers.push_back(findAlignment(call.getOutputs()[0]));
    note(*call.getFallback(), pointers);
  });
  for (auto kernel : work.getOps<plan::KernelOp>())
    if (auto found = alignments.find(kernel.getSymName()); found != alignments.end())
      kernel->setAttr(kAlignments, DenseI64ArrayAttr::get(module.getContext(), found->second));
}

FailureOr<std::vector<CompiledGpuKernel>>
gridloom::codegen::compileGpuKernels(ModuleOp module, const GpuOptions &options) {
  MLIRContext *context = module.getContext();
  DialectRegistry registry;
  registerGpuDialects(registry);
  context->appendDialectRegistry(registry);
  for (StringRef name : registry.getDialectNames())
    context->getOrLoadDialect(name);
  Toolchain toolchain(options);
  ThreadedScope threads(context);

  Stopwatch lowering(CLOCK_PROCESS_CPUTIME_ID);
  OwningOpRef<ModuleOp> work = ModuleOp::create(module.getLoc());
  for (auto kernel : module.getOps<plan::KernelOp>())
    work->push_back(kernel->clone());
  noteAlignments(module, *work);
  FailureOr<std::vector<CompiledGpuKernel>> kernels = emitGpuKernels(*work, options.processors);
  if (failed(kernels) || failed(lowerToNvvm(*work, !toolchain.libdevice.empty())))
    return failure();
  SmallVector<Operation *> modules;
  for (auto op : work->getOps<gpu::GPUModuleOp>())
    modules.push_back(op);
  for (auto [i, kernel] : llvm::enumerate(*kernels)) {
    kernel.milliseconds.lowering = lowering.read() / static_cast<double>(kernels->size());
    kernel.library = "cuda" + std::to_string(i / options.kernelsPerLibrary);
  }
  // Starting the assembler is half the cost of assembling one kernel, so it gets several at once.
  // The grouping does not depend on the machine, so equal modules give equal bytes.
  size_t libraries = llvm::divideCeil(modules.size(), options.kernelsPerLibrary);
  // All are compiled even after a failure, and errors come in the order of the libraries, so that
  // the report does not depend on which thread was first.
  std::atomic<bool> hasFailed = false;
  ParallelDiagnosticHandler diagnostics(context);
  parallelFor(context, 0, libraries, [&](size_t library) {
    diagnostics.setOrderIDForThread(library);
    size_t begin = library * options.kernelsPerLibrary;
    size_t count = std::min(options.kernelsPerLibrary, modules.size() - begin);
    if (failed(toolchain.compile(ArrayRef(modules).slice(begin, count),
                                 MutableArrayRef(*kernels).slice(begin, count))))
      hasFailed = true;
    diagnostics.eraseOrderIDForThread();
  });
  if (hasFailed)
    return failure();
  return kernels;
}
