//===- GpuScan.cpp - cumulative operations on GPUs ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Many adjacent lanes, or short ones, take a thread each. Otherwise a warp or a block handles a
// lane: its threads take a few neighbouring elements each, scan their totals, and carry the lane's
// running value to the next such tile.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/GpuLanes.h"
#include "compiler/codegen/gpu/ThreadGroups.h"
#include "dialects/loom/Padding.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

using P = arith::CmpIPredicate;

namespace {

class ScanKernel : public GpuLaneKernel {
public:
  ScanKernel(loom::CumulativeOp op)
      : op(op), lanes(op.getInput().getType(), op.getDim()),
        element(op.getInput().getType().getElementType()), wide(getWideType(element)) {
    constexpr int64_t kShort = 8, kManyLanes = 8192, kWarpLane = 1024;
    bool isMany = lanes.inner > 1 && lanes.count() >= kManyLanes;
    if (lanes.size > kShort && !isMany)
      group = lanes.size <= kWarpLane ? kWarp : getThreads();
  }

  int64_t getBlocks() const override {
    return lanes.size == 0 ? 0 : llvm::divideCeil(lanes.count(), getThreads() / group);
  }
  void emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) override;

private:
  /// Elements of a tile per thread.
  static constexpr int64_t kItems = 4;
  /// Steps that a thread loads at once when it walks a lane alone.
  static constexpr int64_t kBatch = 8;

  /// One lane: its outer and inner index, and its memories.
  struct Lane {
    Value outer, inner, input, output;
  };

  Value combine(LaneBuilder &b, Value x, Value y) { return b.combine(op.getKind(), x, y, wide); }
  /// The index of the element of step `step`.
  Value locate(LaneBuilder &b, const Lane &lane, Value step) {
    Value place = op.getReverse() ? b.sub(b.index(lanes.size - 1), step) : step;
    return b.add(b.mul(b.add(b.mul(lane.outer, lanes.size), place), lanes.inner), lane.inner);
  }
  bool hasVectors() const { return lanes.inner == 1 && lanes.size % kItems == 0; }
  SmallVector<Value> loadItems(LaneBuilder &b, const Lane &lane, Value step, Value neutral);
  void storeItems(LaneBuilder &b, const Lane &lane, Value step, ArrayRef<Value> values);
  Value emitSteps(LaneBuilder &b, const Lane &lane, Value first, int64_t count, Value running);
  void emitWalk(LaneBuilder &b, const Lane &lane, Value neutral);
  Value emitTile(LaneBuilder &b, const Lane &lane, Value first, Value carry,
                 const Combiner &combiner, Value thread, Value places);

  loom::CumulativeOp op;
  Lanes lanes;
  Type element, wide;
  int64_t group = 1; // threads of a lane
};

} // namespace

void ScanKernel::emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) {
  auto [place, thread] = b.divide(self.thread, group);
  Value item = b.add(b.mul(self.block, getThreads() / group), place), number = thread;
  Value places;
  if (group > kWarp)
    places = addSharedMemory(self.function, wide, group / kWarp);
  b.when(b.compare(P::ult, item, b.index(lanes.count())), [&] {
    auto [outer, inner] = b.divide(item, lanes.inner);
    Lane lane{outer, inner, memories[0], memories[1]};
    Value neutral = b.literal(cast<TypedAttr>(loom::getNeutralElement(wide, op.getKind())));
    if (group == 1)
      return emitWalk(b, lane, neutral);
    Combiner combiner{neutral, [&](Value x, Value y) { return combine(b, x, y); }};
    b.fold(b.index(0), b.index(lanes.size), group * kItems, neutral,
           [&](Value first, ValueRange carried) -> SmallVector<Value> {
             return {emitTile(b, lane, first, carried[0], combiner, number, places)};
           });
  });
}

//===----------------------------------------------------------------------===//
// A thread per lane
//===----------------------------------------------------------------------===//

/// Steps [first, first + count); all loads come before the stores.
Value ScanKernel::emitSteps(LaneBuilder &b, const Lane &lane, Value first, int64_t count,
                            Value running) {
  SmallVector<Value> at, values;
  for (int64_t i = 0; i < count; ++i) {
    at.push_back(locate(b, lane, b.add(first, b.index(i))));
    values.push_back(b.widen(b.load(lane.input, at.back(), element)));
  }
  for (auto [place, value] : llvm::zip_equal(at, values)) {
    Value after = combine(b, running, value);
    b.store(b.narrow(op.getExclusive() ? running : after, element), lane.output, place);
    running = after;
  }
  return running;
}

void ScanKernel::emitWalk(LaneBuilder &b, const Lane &lane, Value neutral) {
  int64_t whole = lanes.size / kBatch * kBatch;
  SmallVector<Value> running = b.fold(b.index(0), b.index(whole), kBatch, neutral,
                                      [&](Value first, ValueRange carried) -> SmallVector<Value> {
                                        return {emitSteps(b, lane, first, kBatch, carried[0])};
                                      });
  emitSteps(b, lane, b.index(whole), lanes.size - whole, running[0]);
}

//===----------------------------------------------------------------------===//
// A warp or a block per lane
//===----------------------------------------------------------------------===//

/// The elements from `step` on, widened. Those beyond the end are `neutral` and not read, because
/// other threads may be writing the output to the same memory.
SmallVector<Value> ScanKernel::loadItems(LaneBuilder &b, const Lane &lane, Value step,
                                         Value neutral) {
  bool isWhole = lanes.size % (group * kItems) == 0;
  SmallVector<Value> values;
  if (!hasVectors()) {
    for (int64_t i = 0; i < kItems; ++i) {
      Value place = b.add(step, b.index(i));
      auto load = [&] { return b.widen(b.load(lane.input, locate(b, lane, place), element)); };
      Value isInside = b.compare(P::ult, place, b.index(lanes.size));
      values.push_back(isWhole ? load() : b.whenElse(isInside, load, neutral));
    }
    return values;
  }
  auto type = VectorType::get(kItems, memoryType(element));
  auto load = [&]() -> Value {
    Value first = op.getReverse() ? b.add(step, b.index(kItems - 1)) : step;
    return vector::LoadOp::create(b.builder, b.loc, type, lane.input, locate(b, lane, first));
  };
  Value isInside = b.compare(P::ult, step, b.index(lanes.size)), vector;
  if (isWhole)
    vector = load();
  else
    vector = b.whenElse(isInside, load,
                        arith::ConstantOp::create(b.builder, b.loc, b.builder.getZeroAttr(type)));
  for (int64_t i = 0; i < kItems; ++i) {
    int64_t place = op.getReverse() ? kItems - 1 - i : i;
    Value value = vector::ExtractOp::create(b.builder, b.loc, vector, place);
    value = b.widen(b.fromMemory(value, element));
    values.push_back(isWhole ? value : b.select(isInside, value, neutral));
  }
  return values;
}

void ScanKernel::storeItems(LaneBuilder &b, const Lane &lane, Value step, ArrayRef<Value> values) {
  if (!hasVectors()) {
    for (auto [i, value] : llvm::enumerate(values)) {
      Value place = b.add(step, b.index(i)), stored = value;
      b.when(b.compare(P::ult, place, b.index(lanes.size)),
             [&] { b.store(stored, lane.output, locate(b, lane, place)); });
    }
    return;
  }
  SmallVector<Value> stored;
  for (Value value : values)
    stored.push_back(b.toMemory(value));
  if (op.getReverse())
    std::reverse(stored.begin(), stored.end());
  auto type = VectorType::get(kItems, memoryType(element));
  Value vector = vector::FromElementsOp::create(b.builder, b.loc, type, stored);
  Value last = op.getReverse() ? b.add(step, b.index(kItems - 1)) : step;
  vector::StoreOp::create(b.builder, b.loc, vector, lane.output, locate(b, lane, last));
}

/// Emits the tile from step `first` on, kItems steps per thread of the group. Returns the new
/// carry.
Value ScanKernel::emitTile(LaneBuilder &b, const Lane &lane, Value first, Value carry,
                           const Combiner &combiner, Value thread, Value places) {
  bool isWhole = lanes.size % (group * kItems) == 0;
  Value step = b.add(first, b.mul(thread, kItems)), end = b.index(lanes.size);
  SmallVector<Value> values = loadItems(b, lane, step, combiner.neutral);
  Value total = values[0];
  for (Value value : ArrayRef(values).drop_front())
    total = combine(b, total, value);
  ThreadScan scan = scanThreads(b, combiner, total, thread, group, places);
  Value running = combine(b, carry, scan.before);
  SmallVector<Value> results;
  for (Value value : values) {
    Value after = combine(b, running, value);
    results.push_back(b.narrow(op.getExclusive() ? running : after, element));
    running = after;
  }
  if (isWhole || !hasVectors())
    storeItems(b, lane, step, results);
  else
    b.when(b.compare(P::ult, step, end), [&] { storeItems(b, lane, step, results); });
  return combine(b, carry, scan.all);
}

std::unique_ptr<GpuLaneKernel> gridloom::codegen::makeGpuScan(loom::CumulativeOp op) {
  return std::make_unique<ScanKernel>(op);
}
