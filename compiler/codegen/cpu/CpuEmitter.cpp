//===- CpuEmitter.cpp - kernels as functions for the CPU ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A kernel's rows are those of its nests, one nest after another. A row of a nest is one iteration
// of its outermost loops or, where these are too few, a piece of the contiguous loop.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/CpuEmitter.h"
#include "compiler/codegen/BodyEmitter.h"
#include "compiler/codegen/cpu/LaneKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

/// 16 f32 are two registers of AVX2: enough independent work to hide latencies.
constexpr int64_t kWidth = 16;
/// Elements in a piece of the contiguous loop; fewer if each is a reduction.
constexpr int64_t kChunk = 1024;
constexpr int64_t kReductionChunk = 64;
/// Iterations of a tiled loop: the f32 of a cache line.
constexpr int64_t kTile = 16;
/// With this many rows no thread waits long for another.
constexpr int64_t kEnoughRows = 64;
/// Cycles of work worth handing to a thread.
constexpr double kThreadCycles = 20000;

/// The mapping of the loops of a nest to rows.
struct RowPlan {
  size_t prefix = 0;  // this many outer loops are in the row index
  int64_t chunks = 1; // pieces of the contiguous loop, minor in the row index
  int64_t chunk = 0;  // elements of a piece
  int64_t rows = 1;
  /// The loop that runs innermost in tiles, so that strided reads use whole cache lines; -1 for
  /// none.
  int tiled = -1;
  bool hasLanes = false; // the contiguous loop is vectorised
};

/// The longest outer loop along which a load is contiguous that the contiguous loop reads with a
/// stride; -1 if none, or if there are reductions.
int findTiledLoop(const Nest &nest) {
  const Loop &lanes = nest.outer[nest.contiguous];
  double most = 0;
  int tiled = -1;
  for (const Node &node : nest.body->nodes) {
    if (node.kind == Node::Kind::Reduce)
      return -1;
    int64_t stride = node.index.coefficient(lanes.atoms.back());
    if (node.kind != Node::Kind::Load || stride == 0 || stride == 1)
      continue;
    for (int i = 0; i < nest.contiguous; ++i)
      if (node.index.coefficient(nest.outer[i].atoms.back()) == 1 && nest.outer[i].extent > most) {
        most = static_cast<double>(nest.outer[i].extent);
        tiled = i;
      }
  }
  return tiled;
}

RowPlan planRows(const Nest &nest) {
  RowPlan plan;
  plan.hasLanes = nest.contiguous >= 0 && !nest.reducesContiguous;
  size_t contiguous = plan.hasLanes ? nest.contiguous : nest.outer.size();
  if (plan.hasLanes)
    plan.tiled = findTiledLoop(nest);
  while (plan.prefix < contiguous && plan.rows < kEnoughRows) {
    int64_t extent = nest.outer[plan.prefix].extent;
    bool isTiled = static_cast<int>(plan.prefix) == plan.tiled;
    plan.rows *= isTiled ? llvm::divideCeil(extent, kTile) : extent;
    ++plan.prefix;
  }
  bool isNext = plan.prefix == contiguous && contiguous + 1 == nest.outer.size();
  if (!isNext || plan.tiled >= 0 || plan.rows >= kEnoughRows)
    return plan;
  // Don't cut the loop if its iterations share a reduction: each piece would compute it again.
  const Loop &loop = nest.outer[contiguous];
  plan.chunk = kChunk;
  for (const Node &node : nest.body->nodes) {
    if (node.kind != Node::Kind::Reduce)
      continue;
    if (!contains(node.free, loop.atoms.back()))
      return plan;
    plan.chunk = kReductionChunk;
  }
  plan.chunks = llvm::divideCeil(loop.extent, plan.chunk);
  plan.rows *= plan.chunks;
  return plan;
}

/// Cycles of a whole nest, roughly.
double nestCycles(const Nest &nest) {
  double cycles = 0;
  for (const Node &node : nest.body->nodes) {
    double times = 1;
    for (AtomId atom : node.free)
      times *= static_cast<double>(nest.body->atoms[atom].size);
    cycles += node.own * std::max(1.0, times / kWidth);
  }
  double walked = 1;
  for (const Loop &loop : nest.outer)
    walked *= static_cast<double>(loop.extent);
  // Other nests may write the rest of the buffer.
  for (const Store &store : nest.body->stores)
    cycles +=
        std::min(walked, static_cast<double>(nest.body->buffers[store.buffer].elements)) / kWidth;
  return cycles;
}

/// Emits the rows of one nest into a function.
class NestEmitter {
public:
  NestEmitter(func::FuncOp function, const Nest &nest, const RowPlan &plan, OpBuilder &builder,
              ArrayRef<Value> memories)
      : function(function), nest(nest), plan(plan), builder(builder), loc(function.getLoc()),
        emitter(nest, memories, builder, loc, kWidth,
                [this](Type element, int64_t elements) { return allocate(element, elements); }) {}

  void emit(int64_t firstRow, bool isOnly);

private:
  Value constantIndex(int64_t value) { return emitter.constantIndex(value); }
  Value allocate(Type element, int64_t elements);
  void emitRows(Context &root, Value lo, Value hi);
  void emitLoops(Context &context, size_t next);
  void emitTile(Context &context);
  void emitChunk(Context &row, Value chunk);

  func::FuncOp function;
  const Nest &nest;
  const RowPlan &plan;
  OpBuilder &builder;
  Location loc;
  BodyEmitter emitter;
  Value tileBegin;
};

} // namespace

Value NestEmitter::allocate(Type element, int64_t elements) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  return memref::AllocaOp::create(builder, loc, MemRefType::get(elements, element),
                                  builder.getI64IntegerAttr(64));
}

void NestEmitter::emit(int64_t firstRow, bool isOnly) {
  Block &entry = function.getBody().front();
  Value lo = entry.getArguments().drop_back(1).back(), hi = entry.getArguments().back();
  builder.setInsertionPoint(entry.getTerminator());
  if (!isOnly) {
    Value first = constantIndex(firstRow), end = constantIndex(firstRow + plan.rows);
    lo =
        arith::SubIOp::create(builder, loc, arith::MaxSIOp::create(builder, loc, lo, first), first);
    hi = arith::SubIOp::create(builder, loc, arith::MinSIOp::create(builder, loc, hi, end), first);
  }
  // Row-invariant values are computed once, but only if there are rows.
  Value any = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, lo, hi);
  auto branch = scf::IfOp::create(builder, loc, any, /*withElseRegion=*/false);
  Context root;
  root.block = branch.thenBlock();
  if (plan.rows == 1 && plan.prefix == 0)
    emitLoops(root, 0);
  else
    emitRows(root, lo, hi);
}

/// Emits the loop over rows and computes the loop variables from the row number.
void NestEmitter::emitRows(Context &root, Value lo, Value hi) {
  emitter.emitPasses(root, nullptr);
  emitter.enter(root);
  auto rows = scf::ForOp::create(builder, loc, lo, hi, constantIndex(1));
  root.anchor = rows;
  Context row;
  row.parent = &root;
  row.block = rows.getBody();
  emitter.enter(row);
  Value index = rows.getInductionVar(), chunk;
  if (plan.chunks > 1)
    chunk = emitter.takeMinor(index, plan.chunks, plan.prefix == 0);
  for (size_t i = plan.prefix; i-- > 0;) {
    const Loop &loop = nest.outer[i];
    if (static_cast<int>(i) != plan.tiled) {
      row.loops.emplace_back(&loop, emitter.takeMinor(index, loop.extent, i == 0));
      continue;
    }
    Value tile = emitter.takeMinor(index, llvm::divideCeil(loop.extent, kTile), i == 0);
    tileBegin = arith::MulIOp::create(builder, loc, tile, constantIndex(kTile));
  }
  if (chunk)
    emitChunk(row, chunk);
  else
    emitLoops(row, plan.prefix);
}

/// The loops from `next` on.
void NestEmitter::emitLoops(Context &context, size_t next) {
  if (next == nest.outer.size()) {
    if (plan.tiled >= 0)
      return emitTile(context);
    emitter.emitPasses(context, nullptr);
    emitter.emitStores(context);
    return;
  }
  const Loop &loop = nest.outer[next];
  if (static_cast<int>(next) == plan.tiled) {
    emitter.enter(context);
    auto tiles = scf::ForOp::create(builder, loc, constantIndex(0), constantIndex(loop.extent),
                                    constantIndex(kTile));
    Context inside;
    inside.parent = &context;
    inside.block = tiles.getBody();
    context.getAnchor() = tiles;
    tileBegin = tiles.getInductionVar();
    emitLoops(inside, next + 1);
    context.getAnchor() = nullptr;
    return;
  }
  bool isContiguous = plan.hasLanes && static_cast<int>(next) == nest.contiguous;
  bool isLast = next + 1 == nest.outer.size() && plan.tiled < 0;
  int pass = emitter.emitPasses(context, isContiguous && isLast ? &loop : nullptr);
  int64_t width = isContiguous ? emitter.widthFor(loop) : 1;
  for (const Segment &segment : cutInSegments(loop.extent, width))
    emitter.emitLoop(context, loop, segment, pass, {},
                     [&](Context &inside, ValueRange) -> SmallVector<Value> {
                       emitLoops(inside, next + 1);
                       return {};
                     });
}

/// The iterations of the tiled loop from `tileBegin` on.
void NestEmitter::emitTile(Context &context) {
  const Loop &loop = nest.outer[plan.tiled];
  emitter.enter(context);
  Value end = arith::AddIOp::create(builder, loc, tileBegin, constantIndex(kTile));
  if (loop.extent % kTile != 0)
    end = arith::MinSIOp::create(builder, loc, end, constantIndex(loop.extent));
  emitter.emitLoop(context, loop, tileBegin, end, 1, -1, {},
                   [&](Context &inside, ValueRange) -> SmallVector<Value> {
                     emitter.emitStores(inside);
                     return {};
                   });
}

/// One piece of a contiguous loop: vectors, then scalars in the last piece.
void NestEmitter::emitChunk(Context &row, Value chunk) {
  const Loop &loop = nest.outer[nest.contiguous];
  emitter.enter(row);
  int64_t width = emitter.widthFor(loop);
  Value begin = arith::MulIOp::create(builder, loc, chunk, constantIndex(plan.chunk));
  Value end = arith::AddIOp::create(builder, loc, begin, constantIndex(plan.chunk));
  auto build = [&](Context &inside, ValueRange) -> SmallVector<Value> {
    emitter.emitStores(inside);
    return {};
  };
  if (width > 1) {
    Value whole = constantIndex(loop.extent / width * width);
    emitter.emitLoop(row, loop, begin, arith::MinSIOp::create(builder, loc, end, whole), width, -1,
                     {}, build);
    if (loop.extent % width == 0)
      return;
    emitter.enter(row);
    begin = arith::MaxSIOp::create(builder, loc, begin, whole);
  }
  Value last = constantIndex(loop.extent);
  emitter.emitLoop(row, loop, begin, arith::MinSIOp::create(builder, loc, end, last), 1, -1, {},
                   build);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// The function's pointers, then globals that hold constants. `count` numbers the globals.
static SmallVector<Value> collectMemories(func::FuncOp function, const Nest &nest,
                                          OpBuilder &builder, unsigned &count) {
  SmallVector<Value> memories(function.getArguments().drop_back(2));
  for (const Buffer &buffer : ArrayRef(nest.body->buffers).drop_front(memories.size())) {
    std::string name = (function.getName() + ".constant" + Twine(count++)).str();
    builder.setInsertionPoint(function);
    MemRefType type = emitConstantGlobal(builder, function.getLoc(), name, buffer);
    builder.setInsertionPointToStart(&function.getBody().front());
    memories.push_back(memref::GetGlobalOp::create(builder, function.getLoc(), type, name));
  }
  return memories;
}

/// Emits all nests and fills in rows and grain.
static void emitNests(func::FuncOp function, ArrayRef<Nest> nests, KernelInfo &info) {
  OpBuilder builder(function.getContext());
  double cycles = 0;
  unsigned constants = 0;
  info.rows = 0;
  for (const Nest &nest : nests) {
    RowPlan plan = planRows(nest);
    SmallVector<Value> memories = collectMemories(function, nest, builder, constants);
    NestEmitter(function, nest, plan, builder, memories).emit(info.rows, nests.size() == 1);
    info.rows += plan.rows;
    cycles += nestCycles(nest);
  }
  double perRow = cycles / std::max<double>(1, static_cast<double>(info.rows));
  info.grain = std::clamp<int64_t>(static_cast<int64_t>(kThreadCycles / std::max(perRow, 1e-3)), 1,
                                   std::max<int64_t>(info.rows, 1));
}

static func::FuncOp createFunction(plan::KernelOp kernel, const KernelInfo &info) {
  OpBuilder builder(kernel);
  Block &block = kernel.getBody().front();
  SmallVector<Type> types;
  auto add = [&](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    types.push_back(MemRefType::get(tensor.getNumElements(), memoryType(tensor.getElementType())));
  };
  llvm::for_each(block.getArgumentTypes(), add);
  llvm::for_each(block.getTerminator()->getOperandTypes(), add);
  types.append(2, builder.getIndexType());
  auto function =
      func::FuncOp::create(builder, kernel.getLoc(), (kernel.getSymName() + kBodySuffix).str(),
                           builder.getFunctionType(types, {}));
  function.setPrivate();
  unsigned inputs = block.getNumArguments();
  SmallVector<bool> mayOverlap(types.size(), false);
  for (auto [output, input] : info.inPlace)
    mayOverlap[inputs + output] = mayOverlap[input] = true;
  for (unsigned i = 0; i + 2 < types.size(); ++i)
    if (!mayOverlap[i])
      function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), builder.getUnitAttr());
  builder.setInsertionPointToStart(function.addEntryBlock());
  func::ReturnOp::create(builder, kernel.getLoc());
  return function;
}

FailureOr<std::vector<KernelInfo>> gridloom::codegen::emitCpuKernels(ModuleOp module) {
  std::vector<KernelInfo> infos;
  for (auto kernel : llvm::make_early_inc_range(module.getOps<plan::KernelOp>())) {
    FailureOr<plan::KernelOp> prepared = prepareKernel(kernel);
    if (failed(prepared))
      return failure();
    std::unique_ptr<LaneKernel> lanes = makeLaneKernel(*prepared);
    SmallVector<Nest> nests;
    if (!lanes)
      nests = buildNests(*prepared);
    KernelInfo info = describeKernel(kernel, nests);
    if (lanes)
      info.skeleton = plan::Skeleton::Lanes;
    func::FuncOp function = createFunction(kernel, info);
    if (lanes)
      emitLaneKernel(function, *lanes, info);
    else
      emitNests(function, nests, info);
    infos.push_back(std::move(info));
    lanes.reset();
    nests.clear();
    prepared->erase();
    kernel.erase();
  }
  return infos;
}
