//===- StageEstimate.cpp - memory of a stage's values ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/StageEstimate.h"

#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Control.h"
#include "passes/allocate/Packing.h"
#include "passes/schedule/Deferral.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace gridloom;

namespace {

using Mark = DeviceSketch::Mark;
using Kind = ScheduleNode::Kind;

class StageEstimate {
public:
  using BodyEstimate = llvm::function_ref<Activations(func::FuncOp)>;

  StageEstimate(const DeviceSketch &sketch, int64_t stage, const dist::Mesh &mesh,
                BodyEstimate estimateBody)
      : sketch(sketch), stage(stage), mesh(mesh), estimateBody(estimateBody),
        func(sketch.getFunction()),
        isRepeated(mesh.getSize(StringAttr::get(mesh.getContext(), dist::MeshOp::kMicroAxis)) > 1) {
  }

  Activations run();

private:
  /// What is issued; communication is two steps.
  struct Step {
    Operation *op;
    Kind kind;
    bool sends = false;
  };
  struct Buffer {
    int64_t bytes, first, last;
    bool isRegistered;
    bool isPinned = false; // nothing is written over it
  };

  Value getRoot(Value value) const;
  SmallVector<Value> getReads(const Step &step) const;
  void addSteps();
  unsigned addStep(Operation *op, Kind kind, bool sends = false);
  void addCommunication(Operation *op, bool sends);
  void addEdges();
  double getSeconds(const Step &step) const;
  std::vector<int64_t> getAdded() const;
  void findOutputs();

  Activations place(ArrayRef<unsigned> order);
  void placeStep(const Step &step);
  int addBuffer(Value value, int64_t bytes, bool isRegistered);
  int findBuffer(Value value) const;
  void placeTransfer(Value value);
  void placeControl(Operation *op);
  bool tryInPlace(Operation *root, const FusionGroup &group);
  int64_t pack(bool registered) const;

  const DeviceSketch &sketch;
  int64_t stage;
  const dist::Mesh &mesh;
  BodyEstimate estimateBody;
  func::FuncOp func;
  bool isRepeated; // in micro-batches
  std::vector<Step> steps;
  std::vector<ScheduleNode> nodes;
  llvm::DenseMap<Value, unsigned> producers; // steps after which roots are there
  llvm::DenseSet<Value> outputs;             // computed where an output or state is
  llvm::DenseMap<Operation *, Activations> bodies;
  // Of one order:
  std::vector<Buffer> buffers;
  llvm::DenseMap<Value, int> owners; // of roots
  llvm::DenseMap<Value, int64_t> lastReads;
  int64_t now = 0, end = 0;
};

} // namespace

/// The value whose memory shows `value` under another shape or in part.
Value StageEstimate::getRoot(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    bool isSlice = isa<loom::SliceOp>(op) && !sketch.getKernels().contains(op);
    if (!isSlice && !isa<loom::ReshapeOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

//===----------------------------------------------------------------------===//
// Steps and their order
//===----------------------------------------------------------------------===//

/// The roots that a step reads; of communication, that it needs until it is over.
SmallVector<Value> StageEstimate::getReads(const Step &step) const {
  SmallVector<Value> reads;
  auto kernel = sketch.getKernels().find(step.op);
  if (sketch.getMark(step.op) == Mark::Receive && !step.sends)
    return reads;
  if (kernel == sketch.getKernels().end()) {
    for (Value operand : step.op->getOperands())
      reads.push_back(getRoot(operand));
    return reads;
  }
  for (Operation *op : kernel->second.ops)
    for (Value operand : op->getOperands())
      if (!kernel->second.ops.contains(operand.getDefiningOp()))
        reads.push_back(getRoot(operand));
  return reads;
}

unsigned StageEstimate::addStep(Operation *op, Kind kind, bool sends) {
  steps.push_back({op, kind, sends});
  return steps.size() - 1;
}

void StageEstimate::addCommunication(Operation *op, bool sends) {
  addStep(op, Kind::Start, sends);
  unsigned done = addStep(op, Kind::Done, sends);
  if (!sends)
    producers[op->getResult(0)] = done;
}

/// The stage's steps in program order: receives first, sends where the value is made.
void StageEstimate::addSteps() {
  llvm::DenseMap<Operation *, SmallVector<Operation *>> sends;
  for (Operation &op : func.front().without_terminator())
    if (sketch.getMark(&op) == Mark::Receive)
      if (Operation *source = getRoot(op.getOperand(0)).getDefiningOp();
          source && sketch.getStage(&op) != stage && sketch.getStage(source) == stage)
        sends[source].push_back(&op);
  for (Operation &op : func.front().without_terminator()) {
    if (sketch.getStage(&op) != stage)
      continue;
    std::optional<Mark> mark = sketch.getMark(&op);
    if (mark == Mark::Collective || mark == Mark::Receive) {
      addCommunication(&op, /*sends=*/false);
    } else if (mark || loom::isControl(&op) || sketch.getKernels().contains(&op)) {
      unsigned step = addStep(&op, Kind::Compute);
      for (Value result : op.getResults())
        producers[result] = step;
    }
    for (Operation *send : sends.lookup(&op))
      addCommunication(send, /*sends=*/true);
  }
}

/// By the bytes a step touches; of a product also by its operations, 2 M N K, of which the sizes of
/// its three matrices are M K, K N and M N.
double StageEstimate::getSeconds(const Step &step) const {
  if (step.kind == Kind::Done)
    return 0;
  if (step.kind == Kind::Start)
    return sketch.getSeconds(step.op);
  cluster::Work work;
  double product = 1;
  auto add = [&](Value value, double &bytes) {
    bytes += static_cast<double>(sketch.getBytes(value));
    if (RankedTensorType local = sketch.getLocalType(value))
      product *= std::sqrt(static_cast<double>(local.getNumElements()));
  };
  for (Value value : getReads(step))
    add(value, work.readBytes);
  for (Value result : step.op->getResults()) {
    add(result, work.writtenBytes);
    work.type = dist::getNumberType(getElementTypeOrSelf(result));
  }
  if (sketch.getMark(step.op) == Mark::Call) {
    work.kind = cluster::WorkClass::Contraction;
    work.flops = 2 * product;
  }
  return cluster::getComputeSeconds(mesh.getMachine(), work);
}

void StageEstimate::addEdges() {
  llvm::DenseSet<std::pair<unsigned, unsigned>> edges;
  llvm::DenseMap<Attribute, unsigned> streams;
  nodes.resize(steps.size());
  auto add = [&](unsigned from, unsigned to) {
    if (from == to || !edges.insert({from, to}).second)
      return;
    nodes[from].successors.push_back(to);
    ++nodes[to].numProducers;
  };
  for (auto [i, step] : llvm::enumerate(steps)) {
    nodes[i].op = step.op;
    nodes[i].kind = step.kind;
    nodes[i].seconds = getSeconds(step);
    if (step.kind == Kind::Start)
      nodes[i].stream =
          streams.try_emplace(sketch.getStream(step.op), streams.size()).first->second;
    if (step.kind == Kind::Done) {
      add(i - 1, i);
      continue;
    }
    for (Value value : getReads(step))
      if (auto it = producers.find(value); it != producers.end())
        add(it->second, i);
  }
  measurePaths(nodes);
}

/// What the results of a collective have more than its computed operand; 0 for all else.
std::vector<int64_t> StageEstimate::getAdded() const {
  std::vector<int64_t> added(steps.size(), 0);
  for (auto [i, step] : llvm::enumerate(steps)) {
    if (step.kind != Kind::Start || sketch.getMark(step.op) != Mark::Collective)
      continue;
    Value root = getRoot(step.op->getOperand(0));
    added[i] = sketch.getBytes(step.op->getResult(0)) -
               (producers.contains(root) ? sketch.getBytes(root) : 0);
  }
  return added;
}

//===----------------------------------------------------------------------===//
// Buffers in an order
//===----------------------------------------------------------------------===//

/// Results that are computed right where they go; the others are copied there in the end.
void StageEstimate::findOutputs() {
  if (loom::isBody(func))
    return;
  for (Value result : func.front().getTerminator()->getOperands()) {
    Value root = getRoot(result);
    Operation *op = root.getDefiningOp();
    bool isComputed = op && (sketch.getKernels().contains(op) || sketch.getMark(op) == Mark::Call);
    if (isComputed && sketch.getBytes(root) == sketch.getBytes(result) &&
        !sketch.isCommunicated(root))
      outputs.insert(root);
  }
}

int StageEstimate::findBuffer(Value value) const {
  auto it = owners.find(getRoot(value));
  return it == owners.end() ? -1 : it->second;
}

/// A buffer from now to the last read of the value.
int StageEstimate::addBuffer(Value value, int64_t bytes, bool isRegistered) {
  int64_t last = value ? std::max(now, lastReads.lookup(value)) : now;
  buffers.push_back({bytes, now, last, isRegistered});
  if (value)
    owners[value] = static_cast<int>(buffers.size()) - 1;
  return static_cast<int>(buffers.size()) - 1;
}

/// What peers of another stage read or write: nothing waits for it to be over but, with
/// micro-batches, the next but one.
void StageEstimate::placeTransfer(Value value) {
  int index = findBuffer(value);
  if (index < 0)
    index = addBuffer(value, sketch.getBytes(value), true);
  Buffer &buffer = buffers[index];
  buffer.last = end;
  if (isRepeated && !buffer.isPinned) {
    buffer.bytes = 2 * llvm::alignTo(buffer.bytes, kBufferAlignment);
    buffer.first = 0;
  }
  buffer.isPinned = true;
}

/// A loop's values have memory of their own, and so have a branch's results.
void StageEstimate::placeControl(Operation *op) {
  auto [known, isNew] = bodies.try_emplace(op);
  if (isNew)
    for (const loom::BodyLink &link : loom::getBodies(sketch.getSource(op))) {
      Activations inner = estimateBody(link.body);
      known->second.arena = std::max(known->second.arena, inner.arena);
      known->second.registered = std::max(known->second.registered, inner.registered);
    }
  if (isa<loom::WhileOp>(op))
    addBuffer(Value(), sketch.getBytes(op->getOperand(0)), false);
  for (Value result : op->getResults())
    addBuffer(result, sketch.getBytes(result), false);
  addBuffer(Value(), known->second.arena, false);
  addBuffer(Value(), known->second.registered, true);
}

/// True for kernels that compute one element after another: only those write over an input.
static bool isElementByElement(const FusionGroup &group) {
  return llvm::all_of(group.ops, [](Operation *op) {
    return isa<loom::KernelBodyInterface, loom::ConstantOp, loom::IotaOp, loom::BroadcastOp,
               loom::ScatterOp, loom::CumulativeOp>(op);
  });
}

/// Lets a kernel write over an input of the same size that nothing reads later.
bool StageEstimate::tryInPlace(Operation *root, const FusionGroup &group) {
  Value result = root->getResult(0);
  if (!isElementByElement(group))
    return false;
  for (Operation *op : group.ops) {
    for (Value operand : op->getOperands()) {
      int index = findBuffer(operand);
      if (group.ops.contains(operand.getDefiningOp()) || index < 0)
        continue;
      bool isRepeatedIn = llvm::any_of(operand.getUsers(), [&](Operation *user) {
        return group.ops.contains(user) && isa<loom::BroadcastOp>(user);
      });
      Buffer &buffer = buffers[index];
      if (buffer.isPinned || isRepeatedIn || buffer.last > now ||
          buffer.bytes != sketch.getBytes(result) || sketch.getBytes(operand) != buffer.bytes ||
          buffer.isRegistered != sketch.isCommunicated(result))
        continue;
      owners[result] = index;
      buffer.last = std::max(now, lastReads.lookup(result));
      return true;
    }
  }
  return false;
}

void StageEstimate::placeStep(const Step &step) {
  Value result = step.op->getNumResults() ? step.op->getResult(0) : Value();
  if (step.kind == Kind::Done)
    return;
  if (step.sends)
    return placeTransfer(getRoot(step.op->getOperand(0)));
  if (sketch.getMark(step.op) == Mark::Receive)
    return placeTransfer(result);
  if (step.kind == Kind::Start) {
    Value operand = getRoot(step.op->getOperand(0));
    if (findBuffer(operand) < 0 && !isa_and_nonnull<loom::GetWeightOp>(operand.getDefiningOp()))
      addBuffer(operand, sketch.getBytes(operand), true); // a copy for peers
    addBuffer(result, sketch.getBytes(result), true);
  } else if (loom::isControl(step.op)) {
    placeControl(step.op);
  } else if (!outputs.contains(result)) {
    auto kernel = sketch.getKernels().find(step.op);
    if (kernel == sketch.getKernels().end() || !tryInPlace(step.op, kernel->second))
      addBuffer(result, sketch.getBytes(result), sketch.isCommunicated(result));
  }
}

int64_t StageEstimate::pack(bool registered) const {
  std::vector<const Buffer *> placed;
  for (const Buffer &buffer : buffers)
    if (buffer.isRegistered == registered && buffer.bytes > 0)
      placed.push_back(&buffer);
  llvm::stable_sort(placed, [](const Buffer *a, const Buffer *b) { return a->first < b->first; });
  SmallVector<MemoryBlock> blocks;
  std::multimap<int64_t, unsigned> live; // by their ends
  for (auto [i, buffer] : llvm::enumerate(placed)) {
    live.erase(live.begin(), live.lower_bound(buffer->first));
    blocks.push_back({buffer->bytes, {}});
    for (auto [last, other] : live) {
      blocks[i].conflicts.push_back(other);
      blocks[other].conflicts.push_back(i);
    }
    live.insert({buffer->last, i});
  }
  return packBlocks(blocks).bytes;
}

Activations StageEstimate::place(ArrayRef<unsigned> order) {
  buffers.clear();
  owners.clear();
  lastReads.clear();
  end = static_cast<int64_t>(order.size());
  for (auto [position, index] : llvm::enumerate(order)) {
    auto at = static_cast<int64_t>(position);
    const Step &step = steps[index];
    for (Value value : getReads(step))
      lastReads[value] = std::max(lastReads[value], at);
    if (step.kind == Kind::Done && !step.sends)
      lastReads[step.op->getResult(0)] = std::max(lastReads[step.op->getResult(0)], at);
  }
  for (Value result : func.front().getTerminator()->getOperands())
    lastReads[getRoot(result)] = end;
  for (auto [position, index] : llvm::enumerate(order)) {
    now = static_cast<int64_t>(position);
    placeStep(steps[index]);
  }
  return {pack(false), pack(true)};
}

Activations StageEstimate::run() {
  addSteps();
  addEdges();
  findOutputs();
  ListOrder order = runList(nodes);
  auto getPeak = [&](ArrayRef<unsigned> of) {
    Activations activations = place(of);
    return activations.arena + activations.registered;
  };
  deferStarts(nodes, getAdded(), getPeak, order);
  return place(order.order);
}

Activations gridloom::estimateActivations(const DeviceSketch &sketch, int64_t stage,
                                          const dist::Mesh &mesh,
                                          StageEstimate::BodyEstimate estimateBody) {
  return StageEstimate(sketch, stage, mesh, estimateBody).run();
}
