//===- GpuEmitter.cpp - kernels as GPU functions --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A kernel's blocks are those of its nests one after another; ThreadPlan.h says what a block does.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/BodyEmitter.h"
#include "compiler/codegen/gpu/GpuLanes.h"
#include "compiler/codegen/gpu/NestEmitter.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

static constexpr int64_t kMaxBlocks = (int64_t(1) << 31) - 1;

static gpu::GPUFuncOp createFunction(plan::KernelOp kernel, const KernelInfo &info,
                                     int64_t threads) {
  OpBuilder builder(kernel);
  Location loc = kernel.getLoc();
  auto module = gpu::GPUModuleOp::create(builder, loc, kernel.getSymName());
  builder.setInsertionPointToStart(module.getBody());
  Block &block = kernel.getBody().front();
  SmallVector<Type> types;
  auto add = [&](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    types.push_back(MemRefType::get(tensor.getNumElements(), memoryType(tensor.getElementType())));
  };
  llvm::for_each(block.getArgumentTypes(), add);
  llvm::for_each(block.getTerminator()->getOperandTypes(), add);
  auto function =
      gpu::GPUFuncOp::create(builder, loc, kernel.getSymName(), builder.getFunctionType(types, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  function.setKnownBlockSizeAttr(
      builder.getDenseI32ArrayAttr({static_cast<int32_t>(threads), 1, 1}));
  SmallVector<bool> mayOverlap(types.size(), false);
  for (auto [output, input] : info.inPlace)
    mayOverlap[block.getNumArguments() + output] = mayOverlap[input] = true;
  for (unsigned i = 0; i < types.size(); ++i) {
    if (mayOverlap[i])
      continue;
    function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), builder.getUnitAttr());
    if (i < block.getNumArguments())
      function.setArgAttr(i, LLVM::LLVMDialect::getReadonlyAttrName(), builder.getUnitAttr());
  }
  builder.setInsertionPointToEnd(&function.getBody().front());
  gpu::ReturnOp::create(builder, loc);
  return function;
}

/// The function's pointers, then globals that hold the body's constants. `constants` numbers the
/// globals.
static SmallVector<Value> collectMemories(gpu::GPUFuncOp function, const Nest &nest,
                                          unsigned &constants) {
  OpBuilder builder(function);
  SmallVector<Value> memories(function.getArguments());
  memories.truncate(function.getNumArguments());
  for (const Buffer &buffer : ArrayRef(nest.body->buffers).drop_front(memories.size())) {
    builder.setInsertionPoint(function);
    std::string name = (function.getName() + "_constant" + Twine(constants++)).str();
    Type type = emitConstantGlobal(builder, function.getLoc(), name, buffer);
    builder.setInsertionPointToStart(&function.getBody().front());
    memories.push_back(memref::GetGlobalOp::create(builder, function.getLoc(), type, name));
  }
  return memories;
}

/// Emits all nests; the grid has the blocks of one nest after those of another.
static void emitNests(gpu::GPUFuncOp function, ArrayRef<Nest> nests, ArrayRef<ThreadPlan> plans) {
  OpBuilder builder(function);
  int64_t blocks = 0;
  unsigned constants = 0;
  for (auto [nest, plan] : llvm::zip_equal(nests, plans)) {
    SmallVector<Value> memories = collectMemories(function, nest, constants);
    NestEmitter(function, nest, plan, builder, memories, blocks, nests.size() == 1).emit();
    blocks += plan.blocks();
  }
}

FailureOr<std::vector<CompiledGpuKernel>> gridloom::codegen::emitGpuKernels(ModuleOp module,
                                                                            int64_t processors) {
  std::vector<CompiledGpuKernel> results;
  for (auto kernel : llvm::make_early_inc_range(module.getOps<plan::KernelOp>())) {
    FailureOr<plan::KernelOp> prepared = prepareKernel(kernel);
    if (failed(prepared))
      return failure();
    std::unique_ptr<GpuLaneKernel> lanes = makeGpuLaneKernel(*prepared);
    SmallVector<Nest> nests;
    if (!lanes)
      nests = buildNests(*prepared);
    CompiledGpuKernel result;
    result.info = describeKernel(kernel, nests);
    if (lanes)
      result.info.skeleton = plan::Skeleton::Lanes;
    SmallVector<ThreadPlan> plans;
    for (const Nest &nest : nests)
      plans.push_back(planThreads(nest, nests.size() == 1, processors));
    auto hasKind = [&](ThreadPlan::Kind kind) {
      return llvm::any_of(plans, [=](const ThreadPlan &plan) { return plan.kind == kind; });
    };
    if (hasKind(ThreadPlan::Kind::Column))
      result.info.skeleton = plan::Skeleton::Column;
    else if (hasKind(ThreadPlan::Kind::Product))
      result.info.skeleton = plan::Skeleton::Product;
    int64_t threads = lanes ? lanes->getThreads() : plans.empty() ? kThreads : plans[0].threads;
    std::array<int64_t, 3> grid{0, 1, 1};
    if (plans.size() == 1)
      grid = plans[0].grid;
    else
      for (const ThreadPlan &plan : plans)
        grid[0] += plan.blocks();
    gpu::GPUFuncOp function = createFunction(kernel, result.info, threads);
    if (lanes)
      grid[0] = emitGpuLaneKernel(function, *lanes);
    else
      emitNests(function, nests, plans);
    if (grid[0] > kMaxBlocks)
      return kernel.emitError() << kernelTitle(kernel) << " needs " << grid[0]
                                << " blocks, more than a grid's " << kMaxBlocks;
    for (auto [size, blocks] : llvm::zip_equal(result.grid, grid))
      size = static_cast<uint32_t>(std::max<int64_t>(blocks, 1));
    result.block = {static_cast<uint32_t>(threads), 1, 1};
    results.push_back(std::move(result));
    lanes.reset();
    nests.clear();
    prepared->erase();
    kernel.erase();
  }
  return results;
}
