//===- GpuSort.cpp - argsort on GPUs --------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A block sorts words (see SortWords.h) in shared memory by a bitonic network whose comparators all
// put the smaller word first, so that missing words at the end never move. A block sorts several
// short lanes.
//
// If few elements of a long lane are taken, shared memory keeps the best so far; elements better
// than the worst of them are collected behind them until the room is full, then sorted in. If many
// are taken, the best are kept in the output, which is sorted in place: parts in shared memory, and
// across parts by comparators on global memory.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/SortWords.h"
#include "compiler/codegen/gpu/GpuLanes.h"
#include "compiler/codegen/gpu/ThreadGroups.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

using P = arith::CmpIPredicate;

namespace {

/// The common part of the sorting kernels.
class SortKernel : public GpuLaneKernel {
public:
  SortKernel(loom::ArgsortOp op)
      : op(op), lanes(op.getInput().getType(), op.getDim()),
        taken(op.getOutput().getType().getDimSize(op.getDim())),
        element(op.getInput().getType().getElementType()), words{element, op.getDescending()} {}

protected:
  /// Words that shared memory of 32 KiB holds.
  int64_t getRoom() const { return (32 << 10) * 8 / words.getType().getWidth(); }
  /// One thread per comparator, up to 1024 per block; large words leave registers for half as many.
  int64_t threadsFor(int64_t count) const {
    int64_t most = words.getType().getWidth() == 64 ? 1024 : 512;
    return std::clamp<int64_t>(count / 2, 256, most);
  }

  /// A lane and the thread that is at work on it.
  struct Lane {
    Value outer, inner, input, output, thread;
  };

  Value ones(LaneBuilder &b) const {
    return b.literal(
        b.builder.getIntegerAttr(words.getType(), APInt::getAllOnes(words.getType().getWidth())));
  }
  Value loadWord(LaneBuilder &b, Value memory, Value at) const {
    return b.load(memory, at, words.getType());
  }
  Value locate(LaneBuilder &b, const Lane &lane, Value place, int64_t size) const {
    return b.add(b.mul(b.add(b.mul(lane.outer, size), place), lanes.inner), lane.inner);
  }
  Value makeWord(LaneBuilder &b, const Lane &lane, Value place) const {
    return words.make(b, b.load(lane.input, locate(b, lane, place, lanes.size), element), place);
  }
  /// Loops over this thread's numbers of [begin, end), every getThreads()-th from its own on.
  void share(LaneBuilder &b, Value thread, Value begin, Value end,
             function_ref<void(Value)> body) const {
    b.loop(b.add(begin, thread), end, body, getThreads());
  }
  Value emitGather(LaneBuilder &b, const Lane &lane, Value shared, Value counts, Value from,
                   Value threshold, int64_t begin, int64_t end) const;
  void emitNetwork(LaneBuilder &b, Value shared, Value thread, int64_t count, Value size,
                   Value stride, Value lastSize) const;

  loom::ArgsortOp op;
  Lanes lanes;
  int64_t taken;
  Type element;
  SortWords words;
};

void barrier(LaneBuilder &b) { gpu::BarrierOp::create(b.builder, b.loc); }

/// The lower of the two indices that comparator `number` compares at `stride`, a power of two.
Value firstOfPair(LaneBuilder &b, Value number, Value stride) {
  Value below = b.sub(stride, b.index(1));
  Value low = arith::AndIOp::create(b.builder, b.loc, number, below);
  return b.add(b.mul(b.sub(number, low), 2), low);
}

/// Emits the network's phases from (size, stride) to (lastSize, 1) on the `count` words of
/// `shared`. The first phase of a size has a stride of half the size and compares mirror images;
/// the others halve the stride. Synchronises the block before and after.
void SortKernel::emitNetwork(LaneBuilder &b, Value shared, Value thread, int64_t count, Value size,
                             Value stride, Value lastSize) const {
  auto goesOn = [&](ValueRange phase) { return b.compare(P::ule, phase[0], lastSize); };
  b.repeat({size, stride}, goesOn, [&](ValueRange phase) -> SmallVector<Value> {
    Value size = phase[0], stride = phase[1];
    barrier(b);
    Value isMirror = b.compare(P::eq, b.mul(stride, 2), size);
    Value flips = b.select(isMirror, b.sub(size, b.index(1)), stride);
    share(b, thread, b.index(0), b.index(count / 2), [&](Value number) {
      Value first = firstOfPair(b, number, stride);
      Value second = arith::XOrIOp::create(b.builder, b.loc, first, flips);
      Value x = loadWord(b, shared, first), y = loadWord(b, shared, second);
      b.when(b.compare(P::ugt, x, y), [&] {
        b.store(y, shared, first);
        b.store(x, shared, second);
      });
    });
    Value isLast = b.compare(P::eq, stride, b.index(1));
    Value half = arith::ShRUIOp::create(b.builder, b.loc, stride, b.index(1));
    return {b.select(isLast, b.mul(size, 2), size), b.select(isLast, size, half)};
  });
  barrier(b);
}

/// Collects in [begin, end) of `shared` the words below `threshold` of the lane's elements from
/// place `from` on, until the lane ends or the room is full. Returns the place it reached.
/// Synchronises the block before; `counts` is shared memory for one number per warp.
Value SortKernel::emitGather(LaneBuilder &b, const Lane &lane, Value shared, Value counts,
                             Value from, Value threshold, int64_t begin, int64_t end) const {
  int64_t threads = getThreads();
  barrier(b);
  share(b, lane.thread, b.index(begin), b.index(end),
        [&](Value at) { b.store(ones(b), shared, at); });
  barrier(b);
  Value size = b.index(lanes.size);
  Value zero = b.literal(b.builder.getI32IntegerAttr(0));
  Value one = b.literal(b.builder.getI32IntegerAttr(1));
  auto load = [&](Value first) {
    Value place = b.min(b.add(first, lane.thread), b.index(lanes.size - 1));
    return b.load(lane.input, locate(b, lane, place, lanes.size), element);
  };
  auto goesOn = [&](ValueRange values) {
    Value hasRoom = b.compare(P::ule, values[1], b.index(end - begin - threads));
    return b.both(b.compare(P::ult, values[0], size), hasRoom);
  };
  Combiner sum{zero, [&](Value x, Value y) { return b.add(x, y); }};
  SmallVector<Value> last = b.repeat(
      {from, b.index(0), load(from)}, goesOn, [&](ValueRange values) -> SmallVector<Value> {
        // Load the next elements while these are compared.
        Value first = values[0], count = values[1], next = b.add(first, b.index(threads));
        Value following = load(next), place = b.add(first, lane.thread);
        Value word = words.make(b, values[2], place);
        Value isBetter = b.both(b.compare(P::ult, place, size), b.compare(P::ult, word, threshold));
        ThreadScan scan =
            scanThreads(b, sum, b.select(isBetter, one, zero), lane.thread, threads, counts);
        b.when(isBetter, [&] {
          b.store(word, shared, b.add(b.index(begin), b.add(count, b.toIndex(scan.before))));
        });
        return {next, b.add(count, b.toIndex(scan.all)), following};
      });
  return last[0];
}

//===----------------------------------------------------------------------===//
// In shared memory
//===----------------------------------------------------------------------===//

/// Sorts lanes that fit in shared memory, several per block if short. Of longer lanes it keeps the
/// best words, with room for at least one candidate per thread.
class SharedSort : public SortKernel {
public:
  SharedSort(loom::ArgsortOp op) : SortKernel(op) {
    constexpr int64_t kMinWords = 512, kMaxTaken = 512;
    int64_t room = getRoom();
    fits = lanes.size <= room;
    size = fits                 ? llvm::PowerOf2Ceil(std::max<int64_t>(lanes.size, 1))
           : taken <= kMaxTaken ? room / 2
                                : room;
    perBlock = std::max<int64_t>(kMinWords / size, 1);
  }
  /// True if this kernel can sort `op`.
  static bool isEnough(loom::ArgsortOp op) {
    SharedSort sort(op);
    return sort.fits || sort.taken + sort.getThreads() <= sort.size;
  }

  int64_t getBlocks() const override {
    return taken == 0 ? 0 : llvm::divideCeil(lanes.count(), perBlock);
  }
  int64_t getThreads() const override { return threadsFor(perBlock * size); }
  void emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) override;

private:
  void emitSlots(LaneBuilder &b, ValueRange memories, const GpuThread &self, int64_t count,
                 function_ref<void(const Lane &, Value, Value)> body) const;

  bool fits;
  int64_t size;     // words of a lane in shared memory, a power of two
  int64_t perBlock; // lanes
};

/// Calls `body` with lane, place and slot of each word of this thread whose place is below `count`.
void SharedSort::emitSlots(LaneBuilder &b, ValueRange memories, const GpuThread &self,
                           int64_t count,
                           function_ref<void(const Lane &, Value, Value)> body) const {
  share(b, self.thread, b.index(0), b.index(perBlock * size), [&](Value slot) {
    auto [number, place] = b.divide(slot, size);
    Value item = b.add(b.mul(self.block, perBlock), number), at = place;
    Value isThere = b.both(b.compare(P::ult, item, b.index(lanes.count())),
                           b.compare(P::ult, place, b.index(count)));
    b.when(isThere, [&] {
      auto [outer, inner] = b.divide(item, lanes.inner);
      body({outer, inner, memories[0], memories[1], self.thread}, at, slot);
    });
  });
}

void SharedSort::emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) {
  int64_t count = perBlock * size;
  Value shared = addSharedMemory(self.function, words.getType(), count);
  auto sort = [&] {
    emitNetwork(b, shared, self.thread, count, b.index(2), b.index(1), b.index(size));
  };
  share(b, self.thread, b.index(0), b.index(count),
        [&](Value slot) { b.store(ones(b), shared, slot); });
  emitSlots(b, memories, self, std::min(size, lanes.size),
            [&](const Lane &lane, Value place, Value slot) {
              b.store(makeWord(b, lane, place), shared, slot);
            });
  if (fits) {
    sort();
  } else {
    Value counts = addSharedMemory(self.function, b.builder.getI32Type(), getThreads() / kWarp);
    auto [outer, inner] = b.divide(self.block, lanes.inner);
    Lane lane{outer, inner, memories[0], memories[1], self.thread};
    auto goesOn = [&](ValueRange values) {
      sort();
      return b.compare(P::ult, values[0], b.index(lanes.size));
    };
    b.repeat(b.index(size), goesOn, [&](ValueRange values) -> SmallVector<Value> {
      Value worst = loadWord(b, shared, b.index(taken - 1));
      return {emitGather(b, lane, shared, counts, values[0], worst, taken, size)};
    });
  }
  emitSlots(b, memories, self, taken, [&](const Lane &lane, Value place, Value slot) {
    b.store(words.getPlace(b, loadWord(b, shared, slot)), lane.output,
            locate(b, lane, place, taken));
  });
}

//===----------------------------------------------------------------------===//
// In the output
//===----------------------------------------------------------------------===//

/// Keeps the best words in the output: 64-bit words whole, larger ones as their place only.
class GlobalSort : public SortKernel {
public:
  GlobalSort(loom::ArgsortOp op) : SortKernel(op), room(getRoom()) {}
  int64_t getBlocks() const override { return lanes.count(); }
  int64_t getThreads() const override { return threadsFor(room); }
  void emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) override;

private:
  bool keepsWords() const { return words.getType().getWidth() == 64; }
  Value load(LaneBuilder &b, const Lane &lane, Value place) const;
  void store(LaneBuilder &b, const Lane &lane, Value word, Value place) const;
  void emitSort(LaneBuilder &b, const Lane &lane, Value shared) const;
  void emitGlobalPhases(LaneBuilder &b, const Lane &lane, Value size) const;
  void emitParts(LaneBuilder &b, const Lane &lane, Value shared, Value size) const;
  void emitJoin(LaneBuilder &b, const Lane &lane, Value shared) const;

  int64_t room; // words in shared memory
};

Value GlobalSort::load(LaneBuilder &b, const Lane &lane, Value place) const {
  Value kept = b.load(lane.output, locate(b, lane, place, taken), b.builder.getI64Type());
  return keepsWords() ? kept : makeWord(b, lane, b.toIndex(kept));
}

void GlobalSort::store(LaneBuilder &b, const Lane &lane, Value word, Value place) const {
  Value kept = keepsWords() ? word : words.getPlace(b, word);
  b.store(kept, lane.output, locate(b, lane, place, taken));
}

void GlobalSort::emit(LaneBuilder &b, ValueRange memories, const GpuThread &self) {
  Value shared = addSharedMemory(self.function, words.getType(), room);
  auto [outer, inner] = b.divide(self.block, lanes.inner);
  Lane lane{outer, inner, memories[0], memories[1], self.thread};
  Value end = b.index(taken);
  share(b, lane.thread, b.index(0), end,
        [&](Value place) { store(b, lane, makeWord(b, lane, place), place); });
  if (taken == lanes.size) {
    emitSort(b, lane, shared);
  } else {
    Value counts = addSharedMemory(self.function, b.builder.getI32Type(), getThreads() / kWarp);
    auto goesOn = [&](ValueRange values) {
      emitSort(b, lane, shared);
      return b.compare(P::ult, values[0], b.index(lanes.size));
    };
    b.repeat(end, goesOn, [&](ValueRange values) -> SmallVector<Value> {
      Value worst = load(b, lane, b.index(taken - 1));
      Value next = emitGather(b, lane, shared, counts, values[0], worst, 0, room);
      emitJoin(b, lane, shared);
      return {next};
    });
  }
  if (!keepsWords())
    return;
  share(b, lane.thread, b.index(0), end, [&](Value place) {
    Value at = locate(b, lane, place, taken);
    b.store(words.getPlace(b, b.load(lane.output, at, words.getType())), lane.output, at);
  });
}

/// Replaces the worst words of the sorted output by better candidates from shared memory.
void GlobalSort::emitJoin(LaneBuilder &b, const Lane &lane, Value shared) const {
  emitNetwork(b, shared, lane.thread, room, b.index(2), b.index(1), b.index(room));
  share(b, lane.thread, b.index(0), b.index(std::min(room, taken)), [&](Value number) {
    Value place = b.sub(b.index(taken - 1), number);
    Value candidate = loadWord(b, shared, number);
    b.when(b.compare(P::ult, candidate, load(b, lane, place)),
           [&] { store(b, lane, candidate, place); });
  });
}

/// Sorts the output's words: parts in shared memory first, then sizes of two parts, four, ...
void GlobalSort::emitSort(LaneBuilder &b, const Lane &lane, Value shared) const {
  Value last = b.index(static_cast<int64_t>(llvm::PowerOf2Ceil(taken)));
  auto goesOn = [&](ValueRange values) { return b.compare(P::ule, values[0], last); };
  b.repeat(b.index(room), goesOn, [&](ValueRange values) -> SmallVector<Value> {
    emitGlobalPhases(b, lane, values[0]);
    emitParts(b, lane, shared, values[0]);
    return {b.mul(values[0], 2)};
  });
}

/// The phases of `size` whose strides are a part or more.
void GlobalSort::emitGlobalPhases(LaneBuilder &b, const Lane &lane, Value size) const {
  Value one = b.index(1);
  Value half = arith::ShRUIOp::create(b.builder, b.loc, size, one);
  auto goesOn = [&](ValueRange values) { return b.compare(P::uge, values[0], b.index(room)); };
  b.repeat(half, goesOn, [&](ValueRange values) -> SmallVector<Value> {
    Value stride = values[0];
    Value flips = b.select(b.compare(P::eq, stride, half), b.sub(size, one), stride);
    int64_t pairs = llvm::PowerOf2Ceil(taken) / 2;
    barrier(b);
    share(b, lane.thread, b.index(0), b.index(pairs), [&](Value number) {
      Value first = firstOfPair(b, number, stride);
      Value second = arith::XOrIOp::create(b.builder, b.loc, first, flips);
      b.when(b.compare(P::ult, second, b.index(taken)), [&] {
        Value x = load(b, lane, first), y = load(b, lane, second);
        b.when(b.compare(P::ugt, x, y), [&] {
          store(b, lane, y, first);
          store(b, lane, x, second);
        });
      });
    });
    return {arith::ShRUIOp::create(b.builder, b.loc, stride, one)};
  });
}

/// Emits, for each part, all phases if `size` is a part's, else the remaining phases of `size`.
void GlobalSort::emitParts(LaneBuilder &b, const Lane &lane, Value shared, Value size) const {
  Value isFirst = b.compare(P::eq, size, b.index(room));
  Value firstSize = b.select(isFirst, b.index(2), size);
  Value firstStride = b.select(isFirst, b.index(1), b.index(room / 2));
  auto sharePart = [&](Value begin, function_ref<void(Value, Value)> body) {
    share(b, lane.thread, b.index(0), b.min(b.index(room), b.sub(b.index(taken), begin)),
          [&](Value number) { body(number, b.add(begin, number)); });
  };
  b.loop(
      b.index(0), b.index(taken),
      [&](Value begin) {
        barrier(b);
        share(b, lane.thread, b.index(0), b.index(room),
              [&](Value number) { b.store(ones(b), shared, number); });
        sharePart(begin, [&](Value number, Value place) {
          b.store(load(b, lane, place), shared, number);
        });
        emitNetwork(b, shared, lane.thread, room, firstSize, firstStride, size);
        sharePart(begin, [&](Value number, Value place) {
          store(b, lane, loadWord(b, shared, number), place);
        });
      },
      room);
  barrier(b);
}

} // namespace

std::unique_ptr<GpuLaneKernel> gridloom::codegen::makeGpuSort(loom::ArgsortOp op) {
  if (SharedSort::isEnough(op))
    return std::make_unique<SharedSort>(op);
  return std::make_unique<GlobalSort>(op);
}
