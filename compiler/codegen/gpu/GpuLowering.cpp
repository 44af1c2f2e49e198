//===- GpuLowering.cpp - GPU functions to PTX -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/GpuLowering.h"
#include "compiler/codegen/gpu/GpuEmitter.h"

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
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"
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

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

void gridloom::codegen::registerGpuDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect,
                  math::MathDialect, memref::MemRefDialect, NVVM::NVVMDialect, scf::SCFDialect,
                  vector::VectorDialect, LLVM::LLVMDialect>();
  // convert-gpu-to-nvvm asks the dialects how to convert what is theirs.
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
  if (const char *home = std::getenv("CUDA_HOME"))
    return home;
  return llvm::sys::fs::is_directory("/usr/local/cuda") ? "/usr/local/cuda" : "";
}

/// Without libdevice: polynomials for f32, an error for what else has no instruction.
static LogicalResult expandMath(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  math::populateExpansionPatterns(patterns, {"rsqrt"});
  if (failed(applyPatternsGreedily(module, std::move(patterns))))
    return module.emitError("math operations cannot be expanded");
  WalkResult result = module.walk([](Operation *op) {
    if (!isa_and_present<math::MathDialect>(op->getDialect()) ||
        isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp, math::FloorOp, math::FmaOp,
            math::SqrtOp>(op))
      return WalkResult::advance();
    op->emitError() << "kernel " << op->getParentOfType<gpu::GPUFuncOp>().getName() << ": "
                    << op->getName() << " of " << getElementTypeOrSelf(op->getResult(0).getType())
                    << " needs libdevice of the CUDA toolkit; set CUDA_HOME";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

LogicalResult gridloom::codegen::lowerToNvvm(ModuleOp module, bool hasLibdevice) {
  MLIRContext *context = module.getContext();
  if (!hasLibdevice && failed(expandMath(module)))
    return failure();
  PassManager pm(context);
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  // The alignment of vectors gives accesses of 128 bits.
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
  return pm.run(module);
}

//===----------------------------------------------------------------------===//
// PTX
//===----------------------------------------------------------------------===//

static std::unique_ptr<llvm::TargetMachine> makeTarget(const std::string &chip,
                                                       std::string &error) {
  static const bool isInitialised = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)isInitialised;
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  std::unique_ptr<llvm::MCSubtargetInfo> chips(target->createMCSubtargetInfo(triple, "", ""));
  if (!chips->isCPUStringValid(chip)) {
    error = "unknown GPU architecture '" + chip + "'; use sm_80, sm_90 or the like";
    return nullptr;
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, chip, "", options, {}, {}, llvm::CodeGenOptLevel::Aggressive));
}

/// Adds the functions of libdevice that `code` calls.
static LogicalResult linkLibdevice(Operation *op, llvm::Module &code,
                                   const std::string &libdevice) {
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library =
      llvm::parseIRFile(libdevice, diagnostic, code.getContext());
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

/// Calls of libdevice for what is one instruction become the intrinsics.
static void replaceSimpleMath(llvm::Module &code) {
  static constexpr std::pair<StringLiteral, llvm::Intrinsic::ID> table[] = {
      {"__nv_fabs", llvm::Intrinsic::fabs}, {"__nv_floor", llvm::Intrinsic::floor},
      {"__nv_ceil", llvm::Intrinsic::ceil}, {"__nv_fma", llvm::Intrinsic::fma},
      {"__nv_sqrt", llvm::Intrinsic::sqrt}, {"__nv_copysign", llvm::Intrinsic::copysign}};
  for (auto [name, intrinsic] : table)
    for (const char *suffix : {"", "f"})
      if (llvm::Function *function = code.getFunction((name + suffix).str())) {
        function->replaceAllUsesWith(
            llvm::Intrinsic::getOrInsertDeclaration(&code, intrinsic, {function->getReturnType()}));
        function->eraseFromParent();
      }
}

FailureOr<std::string> gridloom::codegen::translateToPtx(Operation *op, const std::string &chip,
                                                         const std::string &libdevice) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTarget(chip, error);
  if (!machine)
    return op->emitError(error);
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(op, llvmContext, "gridloom_kernel");
  if (!code)
    return failure();
  code->setDataLayout(machine->createDataLayout());
  code->setTargetTriple(machine->getTargetTriple());
  bool needsMath = llvm::any_of(*code, [](const llvm::Function &function) {
    return function.isDeclaration() && function.getName().starts_with("__nv_");
  });
  if (libdevice.empty())
    replaceSimpleMath(*code);
  else if (needsMath && failed(linkLibdevice(op, *code, libdevice)))
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

FailureOr<std::vector<CompiledGpuKernel>>
gridloom::codegen::compileGpuKernels(ModuleOp module, const GpuOptions &options) {
  MLIRContext *context = module.getContext();
  DialectRegistry registry;
  registerGpuDialects(registry);
  context->appendDialectRegistry(registry);
  for (StringRef name : registry.getDialectNames())
    context->getOrLoadDialect(name);
  std::string toolkit = findToolkit(options), libdevice, ptxas;
  if (!toolkit.empty()) {
    libdevice = toolkit + "/nvvm/libdevice/libdevice.10.bc";
    ptxas = toolkit + "/bin/ptxas";
    if (!llvm::sys::fs::exists(libdevice))
      libdevice.clear();
    if (!llvm::sys::fs::can_execute(ptxas))
      ptxas.clear();
  }

  OwningOpRef<ModuleOp> work = ModuleOp::create(module.getLoc());
  for (auto kernel : module.getOps<plan::KernelOp>())
    work->push_back(kernel->clone());
  FailureOr<std::vector<CompiledGpuKernel>> kernels = emitGpuKernels(*work);
  if (failed(kernels) || failed(lowerToNvvm(*work, !libdevice.empty())))
    return failure();
  for (auto [op, kernel] : llvm::zip_equal(work->getOps<gpu::GPUModuleOp>(), *kernels)) {
    FailureOr<std::string> ptx = translateToPtx(op, options.chip, libdevice);
    if (failed(ptx))
      return failure();
    kernel.ptx = std::move(*ptx);
    if (options.assemble && !ptxas.empty() &&
        failed(assemblePtx(op.getLoc(), ptxas, options.chip, kernel)))
      return failure();
  }
  return kernels;
}
