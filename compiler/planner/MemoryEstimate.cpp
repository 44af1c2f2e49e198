//===- MemoryEstimate.cpp - memory of a plan before it is made ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/MemoryEstimate.h"

#include "compiler/planner/DeviceSketch.h"
#include "dialects/loom/Control.h"
#include "passes/allocate/Packing.h"
#include "passes/fuse/StridedView.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;
using namespace gridloom;

namespace {

using Mark = DeviceSketch::Mark;

/// Memory of one program's activations.
struct Activations {
  int64_t arena = 0, registered = 0;
};

/// The steps of one stage of a function, and the memory of what they compute.
class StageEstimate {
public:
  StageEstimate(DeviceSketch &sketch, int64_t stage) : sketch(sketch), stage(stage) {}

  /// `estimateBody` gives the memory of a loop's or branch's body.
  Activations run(llvm::function_ref<Activations(func::FuncOp)> estimateBody);

private:
  struct Buffer {
    int64_t bytes, first, last;
    bool isRegistered, isPinned; // pinned: nothing is written over it
    int64_t endsBefore = -1;     // the step that waits for the collective that reads it
  };
  /// A value's memory; -1: none, or not of this program's activations.
  int findBuffer(Value value) const;
  int addBuffer(Value value, int64_t bytes, bool isRegistered);
  void addStep(Operation *op, llvm::function_ref<Activations(func::FuncOp)> estimateBody);
  void addKernel(Operation *root, const FusionGroup &group);
  void addCommunication(Operation *op);
  void addControl(Operation *op, llvm::function_ref<Activations(func::FuncOp)> estimateBody);
  void placeOutputs();
  void read(Value value);
  bool tryInPlace(Operation *root, const FusionGroup &group);
  bool isElementByElement(const FusionGroup &group) const;
  int64_t pack(bool registered) const;

  DeviceSketch &sketch;
  int64_t stage, now = 0;
  std::vector<Buffer> buffers;
  llvm::DenseMap<Value, int> owners;
  llvm::DenseSet<Value> atOutputs; // computed where an output or state is
  llvm::DenseMap<Value, int64_t> lastReads;
};

} // namespace

/// The value whose memory shows `value` under another shape or in part.
static Value getRoot(Value value, const DeviceSketch &sketch) {
  while (Operation *op = value.getDefiningOp()) {
    bool isSlice = isa<loom::SliceOp>(op) && !sketch.getKernels().contains(op);
    if (!isSlice && !isa<loom::ReshapeOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

int StageEstimate::findBuffer(Value value) const {
  auto it = owners.find(getRoot(value, sketch));
  return it == owners.end() ? -1 : it->second;
}

int StageEstimate::addBuffer(Value value, int64_t bytes, bool isRegistered) {
  buffers.push_back({bytes, now, now, isRegistered, false});
  return owners[value] = static_cast<int>(buffers.size()) - 1;
}

void StageEstimate::read(Value value) {
  if (int buffer = findBuffer(value); buffer >= 0)
    buffers[buffer].last = std::max(buffers[buffer].last, now);
}

/// Results that are computed right where they go; the others are copied there in the end.
void StageEstimate::placeOutputs() {
  func::FuncOp func = sketch.getFunction();
  for (Value result : func.front().getTerminator()->getOperands()) {
    Value root = getRoot(result, sketch);
    Operation *op = root.getDefiningOp();
    bool isComputed = op && (sketch.getKernels().contains(op) || sketch.getMark(op) == Mark::Call);
    bool isWhole = sketch.getBytes(root) == sketch.getBytes(result);
    if (isComputed && isWhole && !sketch.isCommunicated(root) && !loom::isBody(func))
      atOutputs.insert(root);
  }
}

/// True for kernels that compute one element after another: only those write over an input.
bool StageEstimate::isElementByElement(const FusionGroup &group) const {
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
    if (isa<loom::BroadcastOp>(op))
      continue;
    for (Value operand : op->getOperands()) {
      int index = findBuffer(operand);
      if (group.ops.contains(operand.getDefiningOp()) || index < 0)
        continue;
      Buffer &buffer = buffers[index];
      Value owner = getRoot(operand, sketch);
      bool readElsewhere = llvm::any_of(operand.getUsers(), [&](Operation *user) {
        return group.ops.contains(user) && isa<loom::BroadcastOp>(user);
      });
      if (buffer.isPinned || readElsewhere || lastReads.lookup(owner) > now ||
          buffer.bytes != sketch.getBytes(result) || sketch.getBytes(operand) != buffer.bytes ||
          buffer.isRegistered != sketch.isCommunicated(result))
        continue;
      owners[result] = index;
      buffer.last = now;
      return true;
    }
  }
  return false;
}

void StageEstimate::addKernel(Operation *root, const FusionGroup &group) {
  for (Operation *op : group.ops)
    for (Value operand : op->getOperands())
      if (!group.ops.contains(operand.getDefiningOp()))
        read(operand);
  Value result = root->getResult(0);
  if (!atOutputs.contains(result) && !tryInPlace(root, group))
    addBuffer(result, sketch.getBytes(result), sketch.isCommunicated(result));
}

void StageEstimate::addCommunication(Operation *op) {
  Value result = op->getResult(0);
  bool receives = sketch.getMark(op) == Mark::Receive;
  int64_t end = std::max(now, lastReads.lookup(result));
  if (!receives || sketch.getStage(op) == stage) {
    int buffer = addBuffer(result, sketch.getBytes(result), true);
    if (receives) // as soon as the stage begins
      buffers[buffer].first = 0;
  }
  for (Value operand : op->getOperands()) {
    Value root = getRoot(operand, sketch);
    int buffer = findBuffer(operand);
    bool isWeight = isa_and_nonnull<loom::GetWeightOp>(root.getDefiningOp());
    if (buffer < 0 && !isWeight && !receives) // a copy for peers
      buffer = addBuffer(operand, sketch.getBytes(operand), true);
    if (buffer >= 0 && !(receives && sketch.getStage(op) == stage))
      buffers[buffer].last = std::max(buffers[buffer].last, end);
  }
}

/// A loop's values have memory of their own, and so have a branch's results.
void StageEstimate::addControl(Operation *op,
                               llvm::function_ref<Activations(func::FuncOp)> estimateBody) {
  for (Value operand : op->getOperands())
    read(operand);
  if (isa<loom::WhileOp>(op))
    addBuffer(Value(), sketch.getBytes(op->getOperand(0)), false);
  for (Value result : op->getResults())
    addBuffer(result, sketch.getBytes(result), false);
  Activations most;
  for (const loom::BodyLink &link : loom::getBodies(sketch.getSource(op))) {
    Activations inner = estimateBody(link.body);
    most.arena = std::max(most.arena, inner.arena);
    most.registered = std::max(most.registered, inner.registered);
  }
  addBuffer(Value(), most.arena, false);
  addBuffer(Value(), most.registered, true);
}

void StageEstimate::addStep(Operation *op,
                            llvm::function_ref<Activations(func::FuncOp)> estimateBody) {
  std::optional<Mark> mark = sketch.getMark(op);
  auto kernel = sketch.getKernels().find(op);
  if (mark == Mark::Collective || mark == Mark::Receive) {
    addCommunication(op);
  } else if (mark) {
    for (Value operand : op->getOperands())
      read(operand);
    Value result = op->getResult(0);
    if (!atOutputs.contains(result))
      addBuffer(result, sketch.getBytes(result), sketch.isCommunicated(result));
  } else if (loom::isControl(op)) {
    addControl(op, estimateBody);
  } else if (kernel != sketch.getKernels().end()) {
    addKernel(op, kernel->second);
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
    for (auto [end, other] : live) {
      blocks[i].conflicts.push_back(other);
      blocks[other].conflicts.push_back(i);
    }
    live.insert({buffer->last, i});
  }
  return packBlocks(blocks).bytes;
}

Activations StageEstimate::run(llvm::function_ref<Activations(func::FuncOp)> estimateBody) {
  func::FuncOp func = sketch.getFunction();
  placeOutputs();
  // Receives stand first, and concern the sender too.
  std::vector<Operation *> steps;
  for (Operation &op : func.front().without_terminator()) {
    bool sends = sketch.getMark(&op) == Mark::Receive && op.getOperand(0).getDefiningOp() &&
                 sketch.getStage(op.getOperand(0).getDefiningOp()) == stage;
    if (sketch.getStage(&op) == stage || sends)
      steps.push_back(&op);
  }
  auto note = [&](Value value, int64_t at) {
    int64_t &last = lastReads[getRoot(value, sketch)];
    last = std::max(last, at);
  };
  for (auto [i, op] : llvm::enumerate(steps)) {
    auto at = static_cast<int64_t>(i);
    if (auto kernel = sketch.getKernels().find(op); kernel != sketch.getKernels().end()) {
      for (Operation *part : kernel->second.ops)
        for (Value operand : part->getOperands())
          note(operand, at);
    } else if (sketch.getMark(op) || loom::isControl(op)) {
      for (Value operand : op->getOperands())
        note(operand, at);
    }
  }
  auto end = static_cast<int64_t>(steps.size());
  for (Value result : func.front().getTerminator()->getOperands())
    note(result, end);
  // What is sent stays until the end, for nothing waits for it; a collective's operand until its
  // result is read.
  for (Operation *op : steps) {
    std::optional<Mark> mark = sketch.getMark(op);
    if (mark == Mark::Receive && sketch.getStage(op) != stage)
      note(op->getOperand(0), end);
    else if (mark == Mark::Collective)
      note(op->getOperand(0), lastReads.lookup(op->getResult(0)));
  }
  for (auto [i, op] : llvm::enumerate(steps)) {
    now = static_cast<int64_t>(i);
    addStep(op, estimateBody);
  }
  for (auto &[value, buffer] : owners)
    if (auto it = lastReads.find(value); it != lastReads.end())
      buffers[buffer].last = std::max(buffers[buffer].last, it->second);
  return {pack(false), pack(true)};
}

namespace {

/// Estimates all stages of a module.
class ModuleEstimate {
public:
  ModuleEstimate(ModuleOp module, const LayoutOptions &layout)
      : module(module), mesh(dist::Mesh::get(module)), layout(layout) {}
  std::vector<StageMemory> run();

private:
  struct WeightUse {
    int64_t bytes = 0, row = 0;
    bool onlyRight = true;
  };

  void addFunction(func::FuncOp func);
  void addWeights(DeviceSketch &sketch, int64_t stage);
  void addBindings(DeviceSketch &sketch);
  Activations estimateBody(func::FuncOp body, int64_t stage);
  int64_t getBound(RankedTensorType local, dist::ShardingAttr sharding) const;
  StageMemory &getStage(int64_t stage) {
    stages[stage].stage = stage;
    return stages[stage];
  }

  ModuleOp module;
  dist::Mesh mesh;
  const LayoutOptions &layout;
  std::map<int64_t, StageMemory> stages;
  std::map<int64_t, llvm::MapVector<std::pair<Attribute, Attribute>, WeightUse>> weights;
  std::map<int64_t, llvm::DenseSet<Attribute>> states;
};

} // namespace

void ModuleEstimate::addWeights(DeviceSketch &sketch, int64_t stage) {
  for (auto weight : sketch.getFunction().front().getOps<loom::GetWeightOp>()) {
    if (!loom::isBody(sketch.getFunction()) && sketch.getStage(weight) != stage)
      continue;
    Value value = weight.getOutput();
    WeightUse &use = weights[stage][{weight.getNameAttr(), sketch.getSharding(value)}];
    RankedTensorType local = sketch.getLocalType(value);
    use.bytes = sketch.getBytes(value);
    use.row = local.getRank() ? local.getShape().back() : 0;
    use.onlyRight &= sketch.isRightOperand(value);
  }
}

/// Bytes of an input or output, for all micro-batches.
int64_t ModuleEstimate::getBound(RankedTensorType local, dist::ShardingAttr sharding) const {
  int64_t bytes = loom::getByteSize(local);
  if (sharding && dist::Sharding(sharding).getMicroDim() == 0)
    bytes *= mesh.getSize(StringAttr::get(mesh.getContext(), dist::MeshOp::kMicroAxis));
  return bytes;
}

void ModuleEstimate::addBindings(DeviceSketch &sketch) {
  func::FuncOp func = sketch.getFunction();
  Operation *terminator = func.front().getTerminator();
  int64_t last = stages.empty() ? 0 : stages.rbegin()->first;
  auto stageOfResult = [&](Value value) {
    if (Operation *op = value.getDefiningOp())
      return sketch.getStage(op);
    auto owner =
        func.getArgAttrOfType<IntegerAttr>(cast<BlockArgument>(value).getArgNumber(), dist::kStage);
    return owner ? owner.getInt() : last;
  };
  auto add = [&](int64_t stage, StringAttr state, RankedTensorType local,
                 dist::ShardingAttr sharding) {
    rt::MemoryNeeds &needs = getStage(stage).needs;
    if (!state)
      needs.bindings += getBound(local, sharding);
    else if (states[stage].insert(state).second)
      needs.states += loom::getByteSize(local);
  };
  for (BlockArgument argument : func.getArguments()) {
    llvm::SmallDenseSet<int64_t> readers;
    for (Operation *user : argument.getUsers())
      readers.insert(user == terminator ? stageOfResult(argument) : sketch.getStage(user));
    for (int64_t stage : readers)
      add(stage, func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState),
          sketch.getLocalType(argument), dist::getSharding(argument));
  }
  for (auto [i, result] : llvm::enumerate(terminator->getOperands()))
    add(stageOfResult(result), func.getResultAttrOfType<StringAttr>(i, loom::kState),
        sketch.getLocalType(result),
        func.getResultAttrOfType<dist::ShardingAttr>(i, dist::kSharding));
}

Activations ModuleEstimate::estimateBody(func::FuncOp body, int64_t stage) {
  DeviceSketch sketch(body, mesh, layout);
  addWeights(sketch, stage);
  int64_t own = 0;
  for (Operation &op : sketch.getFunction().front())
    own = sketch.getStage(&op);
  return StageEstimate(sketch, own).run([&](func::FuncOp inner) {
    return estimateBody(inner, stage);
  });
}

void ModuleEstimate::addFunction(func::FuncOp func) {
  DeviceSketch sketch(func, mesh, layout);
  std::set<int64_t> present;
  for (Operation &op : sketch.getFunction().front().without_terminator())
    present.insert(sketch.getStage(&op));
  if (present.empty())
    present.insert(0);
  for (int64_t stage : present) {
    rt::MemoryNeeds &needs = getStage(stage).needs;
    addWeights(sketch, stage);
    Activations activations = StageEstimate(sketch, stage).run([&](func::FuncOp body) {
      return estimateBody(body, stage);
    });
    needs.arena = std::max<uint64_t>(needs.arena, activations.arena);
    needs.registered = std::max<uint64_t>(needs.registered, activations.registered);
  }
  addBindings(sketch);
}

std::vector<StageMemory> ModuleEstimate::run() {
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func) && !func.isDeclaration())
      addFunction(func);
  for (auto &[stage, uses] : weights)
    for (auto &[key, use] : uses) {
      int64_t bytes = use.bytes;
      if (use.onlyRight && layout.padMultiple > 0 && use.row > 0 &&
          use.row % layout.padMultiple == 0)
        bytes = bytes / use.row * (use.row + layout.padElements);
      getStage(stage).needs.weights += static_cast<uint64_t>(bytes);
    }
  std::vector<StageMemory> list;
  for (auto &[stage, memory] : stages)
    list.push_back(memory);
  return list;
}

std::vector<StageMemory> gridloom::estimateMemory(ModuleOp module, const LayoutOptions &layout) {
  return ModuleEstimate(module, layout).run();
}
