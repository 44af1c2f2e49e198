//===- AllocateBuffers.cpp - place buffers in memory ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/BufferSizes.h"
#include "passes/allocate/Interference.h"
#include "passes/allocate/Packing.h"
#include "passes/allocate/Passes.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_ALLOCATEBUFFERS
#include "passes/allocate/Passes.h.inc"

namespace {

/// Bytes of one slot; for a weight with its padded rows.
int64_t getSlotBytes(plan::BufferOp buffer) {
  RankedTensorType type = buffer.getBuffer().getType().getTensor();
  int64_t bytes = loom::getByteSize(type);
  std::optional<loom::LayoutAttr> layout = buffer.getLayout();
  if (!layout || layout->getPad() == 0 || type.getRank() == 0 || type.getShape().back() == 0)
    return bytes;
  return bytes / type.getShape().back() * (type.getShape().back() + layout->getPad());
}

/// Buffers that share the same bytes: a value, and those computed in its place.
using Class = SmallVector<plan::BufferOp, 1>;

class Allocator {
public:
  Allocator(plan::ProgramOp program, plan::Space space)
      : program(program), space(space), timeline(program, kInterferenceIterations) {}

  /// Sets the offsets of all buffers of the space; returns its size in bytes.
  int64_t run();

private:
  bool conflict(plan::BufferOp a, plan::BufferOp b) {
    return a.getSlots() > 1 || b.getSlots() > 1 ||
           !canShareMemory(timeline, a.getBuffer(), b.getBuffer(), /*inPlace=*/false, symbols);
  }
  void mergeInPlace();
  bool canMerge(const Class &a, const Class &b);

  plan::ProgramOp program;
  plan::Space space;
  ProgramTimeline timeline;
  SymbolTableCollection symbols;
  std::vector<Class> classes;
};

bool Allocator::canMerge(const Class &a, const Class &b) {
  return llvm::all_of(a, [&](plan::BufferOp x) {
    return llvm::all_of(b, [&](plan::BufferOp y) {
      return x.getSlots() == 1 && y.getSlots() == 1 && x.getBytes() == y.getBytes() &&
             canShareMemory(timeline, x.getBuffer(), y.getBuffer(), /*inPlace=*/true, symbols);
    });
  });
}

/// Lets kernels write over inputs if that needs no copy and no other buffer's memory.
void Allocator::mergeInPlace() {
  llvm::DenseMap<Value, unsigned> classOf;
  for (auto [i, members] : llvm::enumerate(classes))
    classOf[members.front().getBuffer()] = i;
  program.walk([&](plan::LaunchOp launch) {
    for (Value output : launch.getOutputs()) {
      for (Value input : launch.getInputs()) {
        auto to = classOf.find(getRootBuffer(output)), from = classOf.find(getRootBuffer(input));
        if (to == classOf.end() || from == classOf.end() || to->second == from->second ||
            !canWriteOver(launch, input, output, symbols) ||
            !canMerge(classes[from->second], classes[to->second]))
          continue;
        unsigned source = to->second, target = from->second;
        for (plan::BufferOp member : classes[source])
          classOf[member.getBuffer()] = target;
        llvm::append_range(classes[target], classes[source]);
        classes[source].clear();
      }
    }
  });
  llvm::erase_if(classes, [](const Class &members) { return members.empty(); });
}

/// When any of the buffers is in use; those of several slots always are.
static UseTimes::Stretch getStretch(const UseTimes &times, const Class &members) {
  UseTimes::Stretch all = times.getAll(), stretch{all.end, 0};
  for (plan::BufferOp buffer : members) {
    UseTimes::Stretch own = buffer.getSlots() > 1 ? all : times.get(buffer.getBuffer());
    stretch = {std::min(stretch.begin, own.begin), std::max(stretch.end, own.end)};
  }
  return stretch;
}

int64_t Allocator::run() {
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
    if (buffer.getSpace() == space)
      classes.push_back({buffer});
  mergeInPlace();
  SmallVector<MemoryBlock> blocks;
  for (Class &members : classes)
    blocks.push_back(
        {static_cast<int64_t>(*members.front().getBytes() * members.front().getSlots()), {}});
  UseTimes times(program, timeline);
  std::vector<UseTimes::Stretch> stretches;
  for (const Class &members : classes)
    stretches.push_back(getStretch(times, members));
  forEachOverlap(stretches, [&](unsigned i, unsigned j) {
    bool disjoint = llvm::any_of(classes[i], [&](plan::BufferOp a) {
      return llvm::any_of(classes[j], [&](plan::BufferOp b) { return conflict(a, b); });
    });
    if (!disjoint)
      return;
    blocks[i].conflicts.push_back(j);
    blocks[j].conflicts.push_back(i);
  });
  Packing packing = packBlocks(blocks);
  for (auto [members, offset] : llvm::zip_equal(classes, packing.offsets))
    for (plan::BufferOp buffer : members)
      buffer.setOffset(offset);
  return packing.bytes;
}

struct AllocateBuffers : impl::AllocateBuffersBase<AllocateBuffers> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      setBufferBytes(program);
      program.setArenaBytes(Allocator(program, plan::Space::Arena).run());
      program.setRegisteredBytes(Allocator(program, plan::Space::Registered).run());
    }
  }
};

} // namespace

void setBufferBytes(plan::ProgramOp program) {
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    int64_t bytes = getSlotBytes(buffer);
    bool placed =
        buffer.getSpace() == plan::Space::Arena || buffer.getSpace() == plan::Space::Registered;
    // Each slot starts aligned.
    buffer.setBytes(placed ? llvm::alignTo(bytes, buffer.getSlots() > 1 ? kBufferAlignment : 1)
                           : bytes);
  }
}

} // namespace gridloom
