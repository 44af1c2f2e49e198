//===- GpuEmitter.cpp - kernels as GPU functions --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The elementwise skeleton: a thread computes one vector of neighbouring output elements. The row
// skeleton: a warp or a block computes one row, its threads share the loops over it. A kernel's
// blocks are those of its nests one after another.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/BodyEmitter.h"
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

constexpr int64_t kThreads = 256;
/// 128 bits of f32 are the widest access of a thread.
constexpr int64_t kWidth = 4;
constexpr int64_t kMaxBlocks = (int64_t(1) << 31) - 1;

/// From this many vectors on a row is worth a block, below a warp.
constexpr int64_t kBlockRow = 512;
/// Fewer elements than this a thread reduces alone.
constexpr int64_t kWarpRow = 8;

/// The work of one nest: `items` of them, each done by `group` threads, by vectors of `width`.
struct ThreadPlan {
  int64_t width = 1;
  int64_t items = 1;
  int64_t group = 1;
  const Loop *spread = nullptr; // of a row: the loop over its outputs, null for one output
  int64_t itemsPerBlock() const { return kThreads / group; }
  int64_t blocks() const { return llvm::divideCeil(items, itemsPerBlock()); }
};

/// True if vectors of `width` elements along `loop` start at multiples of it.
bool isAligned(const Body &body, const Linear &index, const Loop &loop, int64_t width) {
  auto isMultiple = [&](int64_t value) { return value % width == 0; };
  AtomId last = loop.atoms.back();
  return isMultiple(index.offset) && llvm::all_of(index.terms, [&](const auto &term) {
           if (term.first == last)
             return term.second == 1;
           if (body.atoms[term.first].kind == Atom::Kind::Loop)
             return isMultiple(term.second);
           return isMultiple(term.second) &&
                  llvm::none_of(body.atoms[term.first].free,
                                [&](AtomId atom) { return loop.contains(atom); });
         });
}

bool dependsOn(const Node &node, const Loop &loop) {
  return llvm::any_of(node.free, [&](AtomId atom) { return loop.contains(atom); });
}

/// A thread per vector of outputs.
ThreadPlan planElements(const Nest &nest) {
  ThreadPlan plan;
  for (const Loop &loop : nest.outer)
    plan.items *= loop.extent;
  if (nest.contiguous < 0)
    return plan;
  const Body &body = *nest.body;
  const Loop &loop = nest.outer[nest.contiguous];
  bool fits = loop.extent % kWidth == 0;
  for (const Node &node : body.nodes) {
    if (node.kind == Node::Kind::Choose)
      fits = false;
    if (node.kind == Node::Kind::Load && dependsOn(node, loop))
      fits &= isAligned(body, node.index, loop, kWidth);
  }
  for (const Store &store : body.stores)
    fits &= isAligned(body, store.index, loop, kWidth);
  if (fits) {
    plan.width = kWidth;
    plan.items /= kWidth;
  }
  return plan;
}

/// The innermost loop of a reduction: the one that threads share.
const Loop &innermostLoop(const Nest &nest, const Node &reduce) {
  const Loop *last = nullptr;
  for (AtomId atom : reduce.bound)
    last = &nest.loopOf(atom);
  return *last;
}

/// A group of threads per row, where neighbouring elements of a row are reduced or outputs share
/// reductions; nothing otherwise.
std::optional<ThreadPlan> planRow(const Nest &nest) {
  const Body &body = *nest.body;
  SmallVector<const Loop *> shared;
  const Loop *outputs = nullptr;
  if (nest.contiguous >= 0 && !nest.reducesContiguous)
    outputs = &nest.outer[nest.contiguous];
  for (const Node &node : body.nodes) {
    // Branches may keep some threads from a reduction.
    if (node.kind == Node::Kind::Choose)
      return std::nullopt;
    if (node.kind != Node::Kind::Reduce)
      continue;
    if (node.bound.empty() || (outputs && dependsOn(node, *outputs)))
      return std::nullopt;
    shared.push_back(&innermostLoop(nest, node));
  }
  if (shared.empty())
    return std::nullopt;
  if (outputs)
    shared.push_back(outputs);
  ThreadPlan plan;
  plan.spread = outputs;
  bool fits = true;
  int64_t longest = 1;
  for (const Loop *loop : shared) {
    longest = std::max(longest, loop->extent);
    for (const Node &node : body.nodes)
      if (node.kind == Node::Kind::Load && dependsOn(node, *loop))
        fits &= isAligned(body, node.index, *loop, kWidth);
  }
  if (outputs)
    for (const Store &store : body.stores)
      fits &= isAligned(body, store.index, *outputs, kWidth);
  if (!outputs && longest < kWarpRow)
    return std::nullopt;
  plan.width = fits ? kWidth : 1;
  plan.group = longest / plan.width >= kBlockRow ? kThreads : kWarp;
  for (const Loop &loop : nest.outer)
    if (&loop != outputs)
      plan.items *= loop.extent;
  return plan;
}

ThreadPlan planThreads(const Nest &nest) {
  std::optional<ThreadPlan> row = planRow(nest);
  return row ? *row : planElements(nest);
}

class KernelEmitter {
public:
  KernelEmitter(gpu::GPUFuncOp function)
      : function(function), builder(function.getContext()), loc(function.getLoc()) {}
  void emit(const Nest &nest, const ThreadPlan &plan, int64_t firstBlock, bool isOnly);

private:
  Value constantIndex(int64_t value) { return arith::ConstantIndexOp::create(builder, loc, value); }
  SmallVector<Value> collectMemories(const Nest &nest);
  void emitElements(const Nest &nest, const ThreadPlan &plan, BodyEmitter &emitter, Context &root,
                    Value item);
  void emitRow(const Nest &nest, const ThreadPlan &plan, BodyEmitter &emitter, Context &root,
               Value item, Value lane);

  gpu::GPUFuncOp function;
  OpBuilder builder;
  Location loc;
  unsigned constants = 0;
};

} // namespace

/// The function's pointers, then globals that hold constants.
SmallVector<Value> KernelEmitter::collectMemories(const Nest &nest) {
  SmallVector<Value> memories(function.getArguments());
  for (const Buffer &buffer : ArrayRef(nest.body->buffers).drop_front(memories.size())) {
    builder.setInsertionPoint(function);
    std::string name = (function.getName() + "_constant" + Twine(constants++)).str();
    Type type = emitConstantGlobal(builder, loc, name, buffer);
    builder.setInsertionPointToStart(&function.getBody().front());
    memories.push_back(memref::GetGlobalOp::create(builder, loc, type, name));
  }
  return memories;
}

void KernelEmitter::emit(const Nest &nest, const ThreadPlan &plan, int64_t firstBlock,
                         bool isOnly) {
  SmallVector<Value> memories = collectMemories(nest);
  BodyEmitter emitter(nest, memories, builder, loc, plan.width, nullptr);
  builder.setInsertionPoint(function.getBody().back().getTerminator());
  Value block = gpu::BlockIdOp::create(builder, loc, gpu::Dimension::x);
  Value thread = gpu::ThreadIdOp::create(builder, loc, gpu::Dimension::x);
  if (firstBlock != 0)
    block = arith::SubIOp::create(builder, loc, block, constantIndex(firstBlock));
  Value item = block, lane = thread;
  if (plan.itemsPerBlock() > 1) {
    Value place = thread;
    if (plan.group > 1) {
      Value size = constantIndex(plan.group);
      place = arith::DivUIOp::create(builder, loc, thread, size);
      lane = arith::RemUIOp::create(builder, loc, thread, size);
    }
    Value first = arith::MulIOp::create(builder, loc, block, constantIndex(plan.itemsPerBlock()));
    item = arith::AddIOp::create(builder, loc, first, place);
  }
  Context root;
  root.block = builder.getInsertionBlock();
  if (!isOnly || plan.items % plan.itemsPerBlock() != 0) {
    // Blocks of the other nests have items that are negative, huge as unsigned, or too large.
    Value inside = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, item,
                                         constantIndex(plan.items));
    auto branch = scf::IfOp::create(builder, loc, inside, /*withElseRegion=*/false);
    root.block = branch.thenBlock();
    emitter.enter(root);
  }
  if (plan.group > 1)
    emitRow(nest, plan, emitter, root, item, lane);
  else
    emitElements(nest, plan, emitter, root, item);
}

/// Loop variables from the item number, the contiguous one minor so that a warp's accesses join.
void KernelEmitter::emitElements(const Nest &nest, const ThreadPlan &plan, BodyEmitter &emitter,
                                 Context &root, Value item) {
  Context outer, lanes;
  outer.parent = &root;
  outer.block = lanes.block = root.block;
  lanes.parent = &outer;
  lanes.width = plan.width;
  root.next = &outer;
  outer.next = &lanes;
  SmallVector<int> order;
  for (int i = 0, e = nest.outer.size(); i < e; ++i)
    if (i != nest.contiguous)
      order.push_back(i);
  if (nest.contiguous >= 0)
    order.push_back(nest.contiguous);
  for (int i : llvm::reverse(order)) {
    const Loop &loop = nest.outer[i];
    bool isContiguous = i == nest.contiguous;
    int64_t extent = isContiguous ? loop.extent / plan.width : loop.extent;
    Value variable = item;
    if (i != order.front()) {
      Value size = constantIndex(extent);
      variable = arith::RemUIOp::create(builder, loc, item, size);
      item = arith::DivUIOp::create(builder, loc, item, size);
    }
    if (isContiguous && plan.width > 1)
      variable = arith::MulIOp::create(builder, loc, variable, constantIndex(plan.width));
    (isContiguous ? lanes : outer).loops.emplace_back(&loop, variable);
  }
  emitter.emitStores(lanes);
}

/// Reductions and outputs of one row, each loop over it shared by the threads of a group.
void KernelEmitter::emitRow(const Nest &nest, const ThreadPlan &plan, BodyEmitter &emitter,
                            Context &root, Value item, Value lane) {
  emitter.share({lane, plan.group, [&](const Node &reduce, Value value) {
                   return joinThreads(emitter, reduce, value, lane, plan.group, function);
                 }});
  Context row;
  row.parent = &root;
  row.block = root.block;
  root.next = &row;
  SmallVector<const Loop *> loops;
  for (const Loop &loop : nest.outer)
    if (&loop != plan.spread)
      loops.push_back(&loop);
  for (const Loop *loop : llvm::reverse(loops)) {
    Value variable = item;
    if (loop != loops.front()) {
      Value size = constantIndex(loop->extent);
      variable = arith::RemUIOp::create(builder, loc, item, size);
      item = arith::DivUIOp::create(builder, loc, item, size);
    }
    row.loops.emplace_back(loop, variable);
  }
  int pass = emitter.emitPasses(row, plan.spread);
  if (!plan.spread) {
    // All threads have the result; one stores it.
    emitter.enter(row);
    Value isFirst =
        arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, lane, constantIndex(0));
    auto branch = scf::IfOp::create(builder, loc, isFirst, /*withElseRegion=*/false);
    row.anchor = branch;
    Context first;
    first.parent = &row;
    first.block = branch.thenBlock();
    return emitter.emitStores(first);
  }
  for (Segment segment : cutInSegments(plan.spread->extent, emitter.widthFor(*plan.spread))) {
    segment.isSpread = true;
    emitter.emitLoop(row, *plan.spread, segment, pass, {},
                     [&](Context &inside, ValueRange) -> SmallVector<Value> {
                       emitter.emitStores(inside);
                       return {};
                     });
  }
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static gpu::GPUFuncOp createFunction(plan::KernelOp kernel, const KernelInfo &info) {
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
  function.setKnownBlockSizeAttr(builder.getDenseI32ArrayAttr({kThreads, 1, 1}));
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

static LogicalResult checkAvailable(plan::KernelOp kernel, ArrayRef<Nest> nests) {
  for (const Nest &nest : nests)
    for (const Node &node : nest.body->nodes) {
      if (isa_and_present<loom::PowerOp>(node.op) && !isa<FloatType>(node.element))
        return kernel.emitError() << "integer powers are not available for target cuda: "
                                  << kernelTitle(kernel);
    }
  return success();
}

FailureOr<std::vector<CompiledGpuKernel>> gridloom::codegen::emitGpuKernels(ModuleOp module) {
  std::vector<CompiledGpuKernel> results;
  for (auto kernel : llvm::make_early_inc_range(module.getOps<plan::KernelOp>())) {
    FailureOr<plan::KernelOp> prepared = prepareKernel(kernel);
    if (failed(prepared))
      return failure();
    if (Operation &first = (*prepared).getBody().front().front(); loom::isLaneOp(&first))
      return kernel.emitError() << first.getName()
                                << " is not available for target cuda: " << kernelTitle(kernel);
    SmallVector<Nest> nests = buildNests(*prepared);
    if (failed(checkAvailable(kernel, nests)))
      return failure();
    CompiledGpuKernel result;
    result.info = describeKernel(kernel, nests);
    gpu::GPUFuncOp function = createFunction(kernel, result.info);
    KernelEmitter emitter(function);
    int64_t blocks = 0;
    for (const Nest &nest : nests) {
      ThreadPlan plan = planThreads(nest);
      emitter.emit(nest, plan, blocks, nests.size() == 1);
      blocks += plan.blocks();
    }
    if (blocks > kMaxBlocks)
      return kernel.emitError() << kernelTitle(kernel) << " needs " << blocks
                                << " blocks, more than a grid's " << kMaxBlocks;
    result.grid = {static_cast<uint32_t>(std::max<int64_t>(blocks, 1)), 1, 1};
    result.block = {static_cast<uint32_t>(kThreads), 1, 1};
    results.push_back(std::move(result));
    nests.clear();
    prepared->erase();
    kernel.erase();
  }
  return results;
}
