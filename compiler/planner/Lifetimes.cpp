//===- Lifetimes.cpp - when the buffers of a program are in use -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Lifetimes.h"

#include "passes/allocate/Interference.h"
#include "passes/allocate/Packing.h"
#include "passes/schedule/InsertEvents.h"

using namespace mlir;
using namespace gridloom;

static bool isTransfer(plan::GroupOp group) {
  return group.getKind() == plan::GroupKind::Send || group.getKind() == plan::GroupKind::Recv;
}

void Lifetimes::addSlots(plan::ProgramOp program) {
  program.walk([&](plan::GroupOp group) {
    if (!isTransfer(group) || getRepeatCount(group) == 1)
      return;
    for (Value value : group->getOperands())
      if (auto buffer = getRootBuffer(value).getDefiningOp<plan::BufferOp>();
          buffer && buffer.getSpace() == plan::Space::Registered && !hasParts(buffer.getBuffer()))
        buffer.setSlots(kSlots);
  });
}

Lifetimes::Lifetimes(plan::ProgramOp program) {
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    if (buffer.getSpace() != plan::Space::Arena && buffer.getSpace() != plan::Space::Registered)
      continue;
    owners[buffer.getBuffer()] = lives.size();
    int64_t slots = buffer.getSlots();
    lives.push_back({buffer.getSpace(), static_cast<int64_t>(*buffer.getBytes()) * slots, -1, -1,
                     -1, slots > 1});
  }
  visit(program.getBody().front());
  now += kStep;
  finishAll();
  for (Life &life : lives)
    if (life.isPinned) {
      life.first = 0;
      life.last = life.lastForCompute = now;
    }
  extendOverLoops();
  mergeInPlace(program);
}

Lifetimes::Life *Lifetimes::find(Value buffer) {
  auto it = owners.find(getRootBuffer(buffer));
  return it == owners.end() ? nullptr : &lives[it->second];
}

void Lifetimes::use(Value buffer, int64_t time, bool forComputeAlone) {
  Life *life = find(buffer);
  if (!life)
    return;
  life->first = life->first < 0 ? time : std::min(life->first, time);
  life->lastForCompute = std::max(life->lastForCompute, time);
  if (!forComputeAlone)
    life->last = std::max(life->last, time);
}

void Lifetimes::finishFor(plan::StreamAttr stream, int64_t last, const OpenGroup &next) {
  for (OpenGroup &each : open) {
    if (each.group.getStream() != stream || each.begin > last || each.next)
      continue;
    for (Value buffer : each.group->getOperands())
      use(buffer, next.begin - 1);
    each.next = next.group;
  }
}

void Lifetimes::finishForCompute(plan::StreamAttr stream, int64_t last, int64_t time) {
  auto isOver = [&](OpenGroup &each) {
    return each.group.getStream() == stream && each.begin <= last;
  };
  SmallVector<plan::GroupOp> over;
  for (OpenGroup &each : open)
    if (isOver(each)) {
      over.push_back(each.group);
      for (Value buffer : each.group->getOperands())
        use(buffer, time - 1, /*forComputeAlone=*/each.next != nullptr);
    }
  llvm::erase_if(open, isOver);
  // The groups that these waited for are over, too.
  for (plan::GroupOp group : over) {
    auto isBefore = [&](OpenGroup &each) { return each.next == group; };
    for (auto it = llvm::find_if(open, isBefore); it != open.end();
         it = llvm::find_if(open, isBefore))
      finishForCompute(it->group.getStream(), it->begin, time);
  }
}

void Lifetimes::finishAll() {
  while (!open.empty())
    finishForCompute(open.front().group.getStream(), open.front().begin, now);
}

Lifetimes::OpenGroup *Lifetimes::findWriter(Value buffer) {
  auto writes = [&](OpenGroup &each) {
    return llvm::any_of(each.group.getOutputs(), [&](Value output) {
      return getRootBuffer(output) == getRootBuffer(buffer);
    });
  };
  auto it = llvm::find_if(open, writes);
  return it == open.end() ? nullptr : &*it;
}

void Lifetimes::visitGroup(plan::GroupOp group) {
  int64_t &begin = known[group.getStream()];
  for (Value input : group.getInputs())
    begin = std::max(begin, written.lookup(getRootBuffer(input)));
  ++begin;
  OpenGroup opened{group, begin, {}};
  // Groups before it on its stream, and those that wrote its inputs, end before it begins.
  finishFor(group.getStream(), begin, opened);
  for (Value input : group.getInputs()) {
    if (OpenGroup *writer = findWriter(input))
      finishFor(writer->group.getStream(), writer->begin, opened);
    use(input, begin);
  }
  for (Value output : group.getOutputs()) {
    use(output, begin);
    written[getRootBuffer(output)] = begin;
  }
  open.push_back(opened);
}

void Lifetimes::visitCompute(Operation *step) {
  for (Value input : getStepInputs(step)) {
    if (OpenGroup *writer = findWriter(input))
      finishForCompute(writer->group.getStream(), writer->begin, now);
    use(input, now);
  }
  for (Value output : getStepOutputs(step)) {
    use(output, now);
    written[getRootBuffer(output)] = now;
  }
}

/// All streams finish before a condition is read.
void Lifetimes::meet() {
  now += kStep;
  finishAll();
  for (auto &[stream, time] : known)
    time = now;
}

void Lifetimes::visitControl(Operation *op) {
  meet();
  int64_t begin = now;
  for (Value condition : op->getOperands())
    use(condition, now);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      visit(block);
  meet();
  auto loop = dyn_cast<plan::WhileOp>(op);
  if (!loop)
    return;
  use(loop.getCondition(), now); // read after each iteration, too
  loops.push_back({begin, now});
}

void Lifetimes::extendOverLoops() {
  for (auto [begin, end] : loops)
    for (Life &life : lives) {
      bool isInside = life.first >= begin && life.lastForCompute <= end;
      if (life.first < 0 || life.first > end || life.lastForCompute < begin || isInside)
        continue;
      life.first = std::min(life.first, begin);
      life.last = life.lastForCompute = std::max(life.lastForCompute, end);
    }
}

void Lifetimes::visit(Block &block) {
  for (Operation &op : block) {
    if (isa<plan::WhileOp, plan::IfOp>(op)) {
      visitControl(&op);
    } else if (auto wait = dyn_cast<plan::WaitOp>(op)) {
      known[wait.getStream()] = now;
    } else if (auto group = dyn_cast<plan::GroupOp>(op)) {
      visitGroup(group);
    } else if (isStep(&op)) {
      now += kStep;
      times[&op] = now;
      visitCompute(&op);
    } else {
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          visit(inner);
    }
  }
}

/// Lets a kernel write over an input of the same size that nothing uses later.
void Lifetimes::mergeInPlace(plan::ProgramOp program) {
  SymbolTableCollection symbols;
  program.walk([&](plan::LaunchOp launch) {
    int64_t time = times.lookup(launch);
    for (Value output : launch.getOutputs())
      for (Value input : launch.getInputs()) {
        Life *from = find(input), *to = find(output);
        if (!from || !to || from == to || from->isPinned || to->isPinned ||
            from->space != to->space || from->bytes != to->bytes || from->lastForCompute != time ||
            to->first != time || !canWriteOver(launch, input, output, symbols))
          continue;
        from->last = to->last;
        from->lastForCompute = to->lastForCompute;
        to->bytes = 0;
        owners[getRootBuffer(output)] = from - lives.data();
      }
  });
}

int64_t Lifetimes::pack(plan::Space space) const {
  auto placed = llvm::filter_to_vector(llvm::make_pointer_range(lives), [&](const Life *life) {
    return life->space == space && life->bytes > 0 && life->first >= 0;
  });
  llvm::stable_sort(placed, [](const Life *a, const Life *b) { return a->first < b->first; });
  std::vector<MemoryBlock> blocks;
  std::multimap<int64_t, unsigned> live; // by lastForCompute
  for (auto [i, life] : llvm::enumerate(placed)) {
    live.erase(live.begin(), live.lower_bound(life->first));
    blocks.push_back({life->bytes, {}});
    bool isByCompute = life->first % kStep == 0;
    for (auto [last, other] : live) {
      if (!isByCompute && placed[other]->last < life->first)
        continue;
      blocks[i].conflicts.push_back(other);
      blocks[other].conflicts.push_back(i);
    }
    live.insert({life->lastForCompute, i});
  }
  return packBlocks(blocks).bytes;
}
