//===- GpuLanes.cpp - GPU kernels that walk a dimension -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/GpuLanes.h"
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

using P = arith::CmpIPredicate;

namespace {

//===----------------------------------------------------------------------===//
// Scatter
//===----------------------------------------------------------------------===//

/// A thread owns a piece of a lane: it copies the piece from the input and applies, in order, the
/// updates that fall into it. Each element has one writer, so results are as if updates were
/// applied one after another.
class ScatterKernel : public GpuLaneKernel {
public:
  ScatterKernel(loom::ScatterOp op)
      : op(op), to(op.getInput().getType(), op.getDim()),
        updates(op.getUpdates().getType().getDimSize(op.getDim())) {
    // Each piece reads all indices of its lane, so it has at least kBatch elements per index,
    // unless that leaves too few threads to fill a GPU.
    constexpr int64_t kEnoughThreads = 1 << 16;
    int64_t wanted = llvm::divideCeil(kEnoughThreads, std::max<int64_t>(to.count(), 1));
    int64_t cuts = std::max(wanted, to.size / (kBatch * std::max<int64_t>(updates, 1)));
    cuts = std::clamp<int64_t>(cuts, 1, std::max<int64_t>(to.size, 1));
    piece = std::max<int64_t>(llvm::divideCeil(to.size, cuts), 1);
    pieces = llvm::divideCeil(to.size, piece);
  }

  int64_t getBlocks() const override { return llvm::divideCeil(getItems(), getThreads()); }
  void emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) override;

private:
  /// Elements that a thread loads before it stores them.
  static constexpr int64_t kBatch = 4;

  /// A thread's part of the tensor: places [begin, end) of lane (outer, inner).
  struct Part {
    Value outer, inner, begin, end;
  };

  int64_t getItems() const { return to.count() * pieces; }
  Value locate(LaneBuilder &b, const Part &part, Value place, int64_t size) const {
    return b.add(b.mul(b.add(b.mul(part.outer, size), place), to.inner), part.inner);
  }
  void copy(LaneBuilder &b, ValueRange memories, const Part &part);
  void apply(LaneBuilder &b, ValueRange memories, const Part &part);

  loom::ScatterOp op;
  Lanes to;
  int64_t updates, piece = 1, pieces = 0;
};

void ScatterKernel::emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) {
  Value item = b.add(b.mul(self.block, getThreads()), self.thread);
  b.when(b.compare(P::ult, item, b.index(getItems())), [&] {
    Part part;
    Value rest, number;
    std::tie(rest, part.inner) = b.divide(item, to.inner);
    std::tie(part.outer, number) = b.divide(rest, pieces);
    part.begin = b.mul(number, piece);
    part.end = b.add(part.begin, b.index(piece));
    if (to.size % piece != 0)
      part.end = b.min(part.end, b.index(to.size));
    Value isOther = b.compare(P::ne, b.pointer(memories[0]), b.pointer(memories[3]));
    b.when(isOther, [&] { copy(b, memories, part); });
    apply(b, memories, part);
  });
}

/// Loads of a batch come before its stores: the compiler cannot move loads across stores that may
/// go to the same memory.
void ScatterKernel::copy(LaneBuilder &b, ValueRange memories, const Part &part) {
  Type element = op.getInput().getType().getElementType();
  Value last = b.sub(part.end, b.index(1));
  auto copyBatch = [&](Value first) {
    SmallVector<Value> at, values;
    for (int64_t i = 0; i < std::min(kBatch, piece); ++i) {
      // Indices beyond the end repeat the last element.
      Value place = b.min(b.add(first, b.index(i)), last);
      at.push_back(locate(b, part, place, to.size));
      values.push_back(b.load(memories[0], at.back(), element));
    }
    for (auto [place, value] : llvm::zip_equal(at, values))
      b.store(value, memories[3], place);
  };
  b.loop(part.begin, part.end, copyBatch, kBatch);
}

void ScatterKernel::apply(LaneBuilder &b, ValueRange memories, const Part &part) {
  Type element = op.getInput().getType().getElementType();
  Type indexType = op.getIndices().getType().getElementType();
  b.loop(b.index(0), b.index(updates), [&](Value number) {
    Value source = locate(b, part, number, updates);
    Value index = b.toIndex(b.load(memories[1], op.takesSlices() ? number : source, indexType));
    Value isMine = b.both(b.compare(P::sge, index, part.begin), b.compare(P::slt, index, part.end));
    b.when(isMine, [&] {
      Value target = locate(b, part, index, to.size);
      Value value = b.load(memories[2], source, element);
      b.update(op.getReduction(), value, memories[3], target, element);
    });
  });
}

} // namespace

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

std::unique_ptr<GpuLaneKernel> gridloom::codegen::makeGpuLaneKernel(plan::KernelOp kernel) {
  return llvm::TypeSwitch<Operation *, std::unique_ptr<GpuLaneKernel>>(
             &kernel.getBody().front().front())
      .Case([](loom::CumulativeOp op) { return makeGpuScan(op); })
      .Case([](loom::ScatterOp op) { return std::make_unique<ScatterKernel>(op); })
      .Case([](loom::ArgsortOp op) { return makeGpuSort(op); })
      .Default([](Operation *) { return nullptr; });
}

int64_t gridloom::codegen::emitGpuLaneKernel(gpu::GPUFuncOp function, GpuLaneKernel &kernel) {
  int64_t blocks = kernel.getBlocks();
  if (blocks == 0)
    return blocks;
  OpBuilder builder(function.getBody().front().getTerminator());
  // Large blocks should use registers rather than leave them for a second block.
  if (kernel.getThreads() > 256)
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), builder.getI32IntegerAttr(1));
  LaneBuilder b{builder, function.getLoc()};
  GpuThread self{function, gpu::BlockIdOp::create(builder, b.loc, gpu::Dimension::x),
                 gpu::ThreadIdOp::create(builder, b.loc, gpu::Dimension::x)};
  // Copied, because adding shared memory adds arguments and moves the list.
  SmallVector<Value> memories(function.getArguments());
  kernel.emit(b, memories, self);
  return blocks;
}

ThreadScan gridloom::codegen::scanThreads(LaneBuilder &b, const Combiner &combiner, Value value,
                                          Value lane, int64_t count, Value places) {
  auto shift = [&](Value from, int32_t by) {
    return exchange(b.builder, b.loc, from, by, gpu::ShuffleMode::UP);
  };
  auto [warp, number] = b.divide(lane, kWarp);
  Value all = value;
  for (int32_t by = 1; by < kWarp; by *= 2) {
    Value joined = combiner.combine(shift(all, by), all);
    all = b.select(b.compare(P::uge, number, b.index(by)), joined, all);
  }
  Value isFirst = b.compare(P::eq, number, b.index(0));
  Value before = b.select(isFirst, combiner.neutral, shift(all, 1));
  if (count == kWarp)
    return {before, exchange(b.builder, b.loc, all, kWarp - 1, gpu::ShuffleMode::IDX)};
  Value isLast = b.compare(P::eq, number, b.index(kWarp - 1));
  b.when(isLast, [&] { b.store(all, places, warp); });
  gpu::BarrierOp::create(b.builder, b.loc);
  Value warpsBefore = combiner.neutral;
  Value total = combiner.neutral;
  for (int64_t i = 0; i < count / kWarp; ++i) {
    warpsBefore = b.select(b.compare(P::eq, warp, b.index(i)), total, warpsBefore);
    total = combiner.combine(total, b.load(places, b.index(i), value.getType()));
  }
  gpu::BarrierOp::create(b.builder, b.loc);
  return {combiner.combine(warpsBefore, before), total};
}
