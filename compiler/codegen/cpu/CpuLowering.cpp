//===- CpuLowering.cpp - emitted kernels to machine code ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/CpuLowering.h"
#include "compiler/codegen/ContractSums.h"
#include "compiler/codegen/cpu/CpuEmitter.h"
#include "support/CpuLevels.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

//===----------------------------------------------------------------------===//
// To the llvm dialect
//===----------------------------------------------------------------------===//

/// Makes bf16, which by now is only moved, 16-bit integers: x86 has no registers for vectors of it,
/// and LLVM converts those that live on in another block element by element, with a library call.
static void moveAsIntegers(ModuleOp module) {
  Type integer = IntegerType::get(module.getContext(), 16);
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](BFloat16Type) { return integer; });
  replacer.addReplacement([&](FloatAttr number) -> std::optional<Attribute> {
    if (!number.getType().isBF16())
      return std::nullopt;
    return IntegerAttr::get(integer, number.getValue().bitcastToAPInt());
  });
  replacer.addReplacement([&](DenseElementsAttr numbers) -> std::optional<Attribute> {
    if (!numbers.getElementType().isBF16())
      return std::nullopt;
    return numbers.bitcast(integer);
  });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
  module.walk([](arith::BitcastOp op) {
    if (op.getIn().getType() != op.getType())
      return;
    op.replaceAllUsesWith(op.getIn());
    op.erase();
  });
}

/// `extern "C" void NAME(void *const *pointers, int64_t lo, int64_t hi)` around NAME.rows.
static void addWrapper(LLVM::LLVMFuncOp rows) {
  OpBuilder builder(rows);
  Location loc = rows.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()),
                                          {pointer, i64, i64});
  auto wrapper =
      LLVM::LLVMFuncOp::create(builder, loc, rows.getName().drop_back(kBodySuffix.size()), type);
  Block *block = wrapper.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  SmallVector<Value> arguments;
  for (unsigned i = 0; i + 2 < rows.getNumArguments(); ++i) {
    Value slot = LLVM::GEPOp::create(builder, loc, pointer, pointer, block->getArgument(0),
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    arguments.push_back(LLVM::LoadOp::create(builder, loc, pointer, slot));
  }
  arguments.push_back(block->getArgument(1));
  arguments.push_back(block->getArgument(2));
  LLVM::CallOp::create(builder, loc, rows, arguments);
  LLVM::ReturnOp::create(builder, loc, ValueRange());
}

LogicalResult gridloom::codegen::lowerToLlvmDialect(ModuleOp module, bool hasFma) {
  MLIRContext *context = module.getContext();
  if (failed(expandMath(module)) || (hasFma && failed(contractSums(module))))
    return module.emitError("math operations cannot be expanded");
  moveAsIntegers(module);
  PassManager pm(context);
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(createConvertMathToFuncs());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  // Functions without an intrinsic become one call per element, extracted by vector operations.
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  ConvertVectorToLLVMPassOptions vectorOptions;
  vectorOptions.reassociateFPReductions = true;
  pm.addPass(createConvertVectorToLLVMPass(vectorOptions));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  ConvertFuncToLLVMPassOptions functionOptions;
  functionOptions.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(functionOptions));
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
  if (failed(pm.run(module)))
    return failure();
  for (auto function : llvm::make_early_inc_range(module.getOps<LLVM::LLVMFuncOp>()))
    if (function.getName().ends_with(kBodySuffix))
      addWrapper(function);
  return success();
}

//===----------------------------------------------------------------------===//
// To an object
//===----------------------------------------------------------------------===//

static std::unique_ptr<llvm::TargetMachine> makeTarget(StringRef arch, std::string &error) {
  static const bool isInitialised = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    return true;
  }();
  (void)isInitialised;
  llvm::Triple triple("x86_64-unknown-linux-gnu");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  std::unique_ptr<llvm::MCSubtargetInfo> processors(target->createMCSubtargetInfo(triple, "", ""));
  if (!processors->isCPUStringValid(arch)) {
    error = ("unknown CPU '" + arch + "'; use " + listCpuLevels()).str();
    return nullptr;
  }
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, arch, "", {}, llvm::Reloc::PIC_, {}, llvm::CodeGenOptLevel::Aggressive));
}

FailureOr<SmallVector<char, 0>> gridloom::codegen::compileToObject(ModuleOp module,
                                                                   StringRef arch) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTarget(arch, error);
  if (!machine)
    return module.emitError(error);

  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, llvmContext, "gridloom_kernels");
  if (!code)
    return failure();
  code->setDataLayout(machine->createDataLayout());
  code->setTargetTriple(machine->getTargetTriple());
  bool hasWideRegisters = machine->getMCSubtargetInfo()->checkFeatures("+avx512f");
  for (llvm::Function &function : *code) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", arch);
    // Without these LLVM halves vectors of 512 bits, for the sake of code that has few of them.
    if (hasWideRegisters) {
      function.addFnAttr("prefer-vector-width", "512");
      function.addFnAttr("min-legal-vector-width", "512");
    }
    bool isKernel = module.lookupSymbol((function.getName() + kBodySuffix).str()) != nullptr;
    if (!isKernel)
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  auto optimise = makeOptimizingTransformer(3, 0, machine.get());
  if (llvm::Error failed = optimise(code.get()))
    return module.emitError(llvm::toString(std::move(failed)));

  SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager pm;
  if (machine->addPassesToEmitFile(pm, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return module.emitError("LLVM cannot write objects for " + arch);
  pm.run(*code);
  return object;
}

static LogicalResult compileAndLink(ModuleOp module, StringRef arch, std::string &to) {
  FailureOr<SmallVector<char, 0>> object = compileToObject(module, arch);
  if (failed(object))
    return failure();
  FailureOr<std::string> linked =
      linkSharedObject(module.getLoc(), StringRef(object->data(), object->size()));
  if (failed(linked))
    return failure();
  to = std::move(*linked);
  return success();
}

FailureOr<CompiledKernels> gridloom::codegen::compileCpuKernels(ModuleOp module,
                                                                const CpuOptions &options) {
  module.getContext()
      ->loadDialect<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                    math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                    vector::VectorDialect, LLVM::LLVMDialect>();
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  module.getContext()->appendDialectRegistry(registry);
  OwningOpRef<ModuleOp> work = ModuleOp::create(module.getLoc());
  for (auto kernel : module.getOps<plan::KernelOp>())
    work->push_back(kernel->clone());
  CompiledKernels result;
  FailureOr<std::vector<KernelInfo>> infos = emitCpuKernels(*work);
  if (failed(infos))
    return failure();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTarget(options.arch, error);
  if (!machine)
    return module.emitError(error);
  if (failed(lowerToLlvmDialect(*work, machine->getMCSubtargetInfo()->checkFeatures("+fma"))))
    return failure();
  result.kernels = std::move(*infos);
  if (failed(compileAndLink(*work, options.arch, result.sharedObject)) ||
      (!options.wideArch.empty() &&
       failed(compileAndLink(*work, options.wideArch, result.wideObject))))
    return failure();
  return result;
}
