//===- BuildProgram.cpp - from tensors to buffers -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/BuildProgram.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/DrawAttr.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/WeightUse.h"
#include "passes/schedule/Messages.h"
#include "passes/schedule/ProgramTimeline.h"
#include "passes/schedule/StateUpdates.h"

using namespace mlir;

namespace gridloom {
namespace {

bool isCutIntoMicrobatches(dist::ShardingAttr sharding) {
  return sharding && !sharding.getDims().empty() &&
         llvm::any_of(sharding.getDims()[0].getAxes(),
                      [](StringAttr axis) { return axis.getValue() == dist::MeshOp::kMicroAxis; });
}

plan::GroupKind getGroupKind(Operation *communication) {
  using plan::GroupKind;
  return llvm::TypeSwitch<Operation *, GroupKind>(communication)
      .Case([](dist::AllReduceOp) { return GroupKind::AllReduce; })
      .Case([](dist::AllGatherOp) { return GroupKind::AllGather; })
      .Case([](dist::ReduceScatterOp) { return GroupKind::ReduceScatter; })
      .Case([](dist::AllToAllOp) { return GroupKind::AllToAll; })
      .Case([](dist::PermuteOp) { return GroupKind::Permute; })
      .Case([](dist::SendOp) { return GroupKind::Send; })
      .Case([](dist::RecvOp) { return GroupKind::Recv; });
}

/// None of a transfer.
ArrayAttr getGroupAxes(Operation *communication) {
  auto axes = communication->getAttrOfType<ArrayAttr>("axes");
  return axes ? axes : ArrayAttr::get(communication->getContext(), {});
}

/// A state, or a weight whose bytes are those of its shard, without padding: sent from where it
/// lies.
bool isSentInPlace(Value root) {
  if (isState(root))
    return true;
  auto weight = root.getDefiningOp<loom::GetWeightOp>();
  if (!weight)
    return false;
  auto layout = dyn_cast_or_null<loom::LayoutAttr>(weight.getLayoutAttr());
  return !layout || layout.getPad() == 0;
}

bool readsWeights(dist::StartOp start) {
  return llvm::any_of(start.getBody().front().without_terminator(), [](Operation &op) {
    return llvm::any_of(op.getOperands(),
                        [](Value operand) { return isSentInPlace(getRootValue(operand)); });
  });
}

class ProgramBuilder {
public:
  ProgramBuilder(Operation *source, StringRef name, StringRef entry, DictionaryAttr dims,
                 int64_t stage, int64_t microbatches, const DeferredStarts &deferred);

  /// Declares an input buffer for an entry's argument.
  void addInput(Value value, StringRef name, dist::ShardingAttr sharding,
                ArrayRef<NamedAttribute> attributes);
  /// Says where a result goes; before the steps that compute it.
  void addOutput(Value value, StringRef name, dist::ShardingAttr sharding,
                 ArrayRef<NamedAttribute> attributes);
  /// Lets an update write into its state's memory, if nothing reads later what is there; before
  /// outputs are added.
  void updateInPlace(const StateUpdate &update);
  /// Adds the steps of all operations of `block`.
  void addSteps(Block &block, bool overlap);
  plan::ProgramOp finish();

private:
  struct Copies {
    SmallVector<Value> values, buffers;
    void add(Value value, Value buffer) {
      values.push_back(value);
      buffers.push_back(buffer);
    }
  };

  Value getBuffer(Value value);
  Value declare(Location loc, Type type, plan::Space space, StringRef name = {}, int64_t slots = 1);
  Value declareState(Value value, StringAttr name, dist::ShardingAttr sharding);
  Value declareConstant(Location loc, ElementsAttr value);
  Value declareWeight(loom::GetWeightOp op);
  Value declareAlias(Location loc, Type type, Value source, int64_t offset = 0);
  Value declareResult(Value value);
  /// The operand in memory that peers may access.
  Value getRegistered(Value value);
  std::optional<uint64_t> recordCompute(Location loc);
  void waitForCompute(dist::StartOp start);
  Value getMessage(dist::AllReduceOp op);
  /// Where value number `index` of a message lies.
  Value getPlace(dist::AllReduceOp op, unsigned index);
  Value fillMessage(dist::AllReduceOp op);
  void addGroup(Operation *op, ArrayRef<Operation *> others = {});
  void addStart(dist::StartOp start, bool overlap);
  void addCopy(Location loc, Value from, Value to) {
    plan::CopyOp::create(steps, loc, from, to, compute);
  }
  /// Copies values to `targets`, of which some may hold what others get.
  void addCopies(ValueRange values, ArrayRef<Value> targets);
  void addWhile(loom::WhileOp op, bool overlap);
  void addIf(loom::IfOp op, bool overlap);
  /// Adds a body's steps to `region`; its results go to `targets`.
  void addBody(func::FuncOp body, Region &region, ArrayRef<Value> arguments,
               ArrayRef<Value> targets, bool overlap);
  /// Goes on with the steps in a new block, where `control` ends.
  void resumeAfter(Operation *control);
  void addBlockSteps(Block &block, bool overlap);
  int64_t getSlots(dist::ShardingAttr sharding) const {
    return isCutIntoMicrobatches(sharding) ? microbatches : 1;
  }
  bool isComputed(Value root) const {
    return isa_and_nonnull<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp>(
        root.getDefiningOp());
  }

  int64_t microbatches;
  const DeferredStarts &deferred;
  plan::StreamAttr compute;
  plan::ProgramOp program;
  OpBuilder decls, steps;
  llvm::DenseMap<Value, Value> buffers;
  llvm::DenseMap<Value, Value> registeredCopies;
  llvm::DenseMap<std::pair<Attribute, Attribute>, Value>
      shared;                         // weights, constants, rank parameters
  llvm::DenseSet<Value> communicated; // roots
  llvm::DenseMap<Value, std::pair<Operation *, unsigned>>
      messageOf; // roots that are computed there
  llvm::DenseMap<Operation *, Value> messages;
  llvm::DenseMap<Value, Value> outputRoots;  // roots computed right into an output or state
  llvm::DenseMap<Value, StringAttr> updates; // roots computed right into the state of this name
  Copies outputCopies, stateCopies;          // at the end
  int64_t sequence = 0, numEvents = 0;
};

ProgramBuilder::ProgramBuilder(Operation *source, StringRef name, StringRef entry,
                               DictionaryAttr dims, int64_t stage, int64_t microbatches,
                               const DeferredStarts &deferred)
    : microbatches(microbatches), deferred(deferred),
      compute(plan::StreamAttr::getCompute(source->getContext())), decls(source->getContext()),
      steps(source->getContext()) {
  Location loc = source->getLoc();
  decls.setInsertionPoint(source);
  program = plan::ProgramOp::create(decls, loc, name, entry, dims, stage);
  decls.setInsertionPointToEnd(&program.getBody().emplaceBlock());
  Operation *control = nullptr;
  if (microbatches > 1) {
    auto repeat = plan::RepeatOp::create(decls, loc, microbatches);
    steps.setInsertionPointToEnd(&repeat.getBody().emplaceBlock());
    control = repeat;
  } else {
    steps.setInsertionPointToEnd(&program.getBody().front());
  }
  auto block = plan::BlockOp::create(steps, loc);
  steps.setInsertionPointToEnd(&block.getBody().emplaceBlock());
  decls.setInsertionPoint(control ? control : block);

  auto note = [&](dist::StartOp start) {
    for (Operation &op : start.getBody().front())
      for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
        Value root = getRootValue(operand);
        communicated.insert(root);
        if (isMessage(&op) && isComputed(root) && isOfMessageAlone(root))
          messageOf[root] = {&op, i};
      }
  };
  source->walk(note);
  loom::forEachBody(cast<func::FuncOp>(source),
                    [&](Operation *, func::FuncOp body) { body.walk(note); });
}

Value ProgramBuilder::declare(Location loc, Type type, plan::Space space, StringRef name,
                              int64_t slots) {
  auto bufferType = plan::BufferType::get(decls.getContext(), cast<RankedTensorType>(type));
  auto nameAttr = name.empty() ? StringAttr() : decls.getStringAttr(name);
  return plan::BufferOp::create(decls, loc, bufferType, space, nameAttr, slots, IntegerAttr(),
                                IntegerAttr(), ElementsAttr(), dist::ShardingAttr(),
                                loom::LayoutAttr());
}

Value ProgramBuilder::declareAlias(Location loc, Type type, Value source, int64_t offset) {
  auto bufferType = plan::BufferType::get(decls.getContext(), cast<RankedTensorType>(type));
  return source.getType() == bufferType
             ? source
             : plan::AliasOp::create(decls, loc, bufferType, source, offset).getBuffer();
}

static Attribute findAttribute(ArrayRef<NamedAttribute> attributes, StringRef name) {
  for (NamedAttribute attribute : attributes)
    if (attribute.getName() == name)
      return attribute.getValue();
  return {};
}

static StringAttr getState(ArrayRef<NamedAttribute> attributes) {
  return cast_or_null<StringAttr>(findAttribute(attributes, loom::kState));
}

/// The one buffer of a state: an argument reads it, a result is computed right into it or copied
/// there in the end.
Value ProgramBuilder::declareState(Value value, StringAttr name, dist::ShardingAttr sharding) {
  Value &buffer = shared[{name, UnitAttr::get(name.getContext())}];
  if (!buffer) {
    buffer = declare(value.getLoc(), value.getType(), plan::Space::State, name);
    if (sharding)
      buffer.getDefiningOp<plan::BufferOp>().setShardingAttr(sharding);
  }
  return buffer;
}

void ProgramBuilder::addInput(Value value, StringRef name, dist::ShardingAttr sharding,
                              ArrayRef<NamedAttribute> attributes) {
  if (StringAttr state = getState(attributes)) {
    Value buffer = buffers[value] = declareState(value, state, sharding);
    for (StringRef name : {StringRef(loom::kGlobalType), StringRef(loom::kInit),
                           StringRef(loom::kDraw), StringRef(loom::kTied), StringRef(loom::kRole)})
      if (Attribute attribute = findAttribute(attributes, name))
        buffer.getDefiningOp()->setAttr(name, attribute);
    return;
  }
  Value buffer =
      declare(value.getLoc(), value.getType(), plan::Space::Input, name, getSlots(sharding));
  auto op = buffer.getDefiningOp<plan::BufferOp>();
  if (sharding)
    op.setShardingAttr(sharding);
  for (NamedAttribute attribute : attributes)
    op->setAttr(attribute.getName(), attribute.getValue());
  buffers[value] = buffer;
}

void ProgramBuilder::addOutput(Value value, StringRef name, dist::ShardingAttr sharding,
                               ArrayRef<NamedAttribute> attributes) {
  if (StringAttr state = getState(attributes)) {
    Value buffer = declareState(value, state, sharding), root = getRootValue(value);
    if (updates.lookup(root) == state)
      outputRoots[root] = buffer;
    else
      stateCopies.add(value, buffer);
    return;
  }
  Value buffer =
      declare(value.getLoc(), value.getType(), plan::Space::Output, name, getSlots(sharding));
  auto op = buffer.getDefiningOp<plan::BufferOp>();
  if (sharding)
    op.setShardingAttr(sharding);
  for (NamedAttribute attribute : attributes)
    op->setAttr(attribute.getName(), attribute.getValue());
  Value root = getRootValue(value);
  // A view of an output with a slot per micro-batch would have no end.
  bool isViewed = microbatches > 1 && llvm::any_of(root.getUsers(), [](Operation *user) {
                    return isa<loom::ReshapeOp, loom::SliceOp>(user);
                  });
  if (isComputed(root) && !communicated.contains(root) && !outputRoots.contains(root) &&
      !updates.contains(root) && !isViewed)
    outputRoots[root] = buffer;
  else
    outputCopies.add(value, buffer);
}

void ProgramBuilder::updateInPlace(const StateUpdate &update) {
  bool isLast = llvm::all_of(
      update.readers, [&](Operation *reader) { return reader->isBeforeInBlock(update.writer); });
  if (isLast && !communicated.contains(update.next))
    updates.try_emplace(update.next, update.state);
}

Value ProgramBuilder::declareConstant(Location loc, ElementsAttr value) {
  Value &buffer = shared[{value, Attribute()}];
  if (!buffer) {
    buffer = declare(loc, value.getType(), plan::Space::Constant);
    buffer.getDefiningOp<plan::BufferOp>().setValueAttr(value);
  }
  return buffer;
}

Value ProgramBuilder::declareWeight(loom::GetWeightOp op) {
  Value &buffer = shared[{op.getNameAttr(), op.getShardingAttr()}];
  if (!buffer) {
    buffer = declare(op.getLoc(), op.getType(), plan::Space::Weight, op.getName());
    auto declaration = buffer.getDefiningOp<plan::BufferOp>();
    if (auto sharding = dyn_cast_or_null<dist::ShardingAttr>(op.getShardingAttr()))
      declaration.setShardingAttr(sharding);
    if (op.getLayoutAttr())
      declaration.setLayoutAttr(op.getLayoutAttr());
  }
  return buffer;
}

/// A buffer for what a step computes: the output it is, memory peers may access, or the arena.
Value ProgramBuilder::declareResult(Value value) {
  if (Value output = outputRoots.lookup(value))
    return buffers[value] = declareAlias(value.getLoc(), value.getType(), output);
  if (auto it = messageOf.find(value); it != messageOf.end()) {
    auto [message, index] = it->second;
    return buffers[value] = declareAlias(value.getLoc(), value.getType(),
                                         getPlace(cast<dist::AllReduceOp>(message), index));
  }
  auto space = communicated.contains(value) ? plan::Space::Registered : plan::Space::Arena;
  return buffers[value] = declare(value.getLoc(), value.getType(), space);
}

/// The buffer of a value that is declared or computed by now.
Value ProgramBuilder::getBuffer(Value value) {
  if (Value buffer = buffers.lookup(value))
    return buffer;
  Operation *op = value.getDefiningOp();
  Value buffer =
      llvm::TypeSwitch<Operation *, Value>(op)
          .Case([&](loom::GetWeightOp weight) { return declareWeight(weight); })
          .Case([&](loom::ConstantOp constant) {
            return declareConstant(constant.getLoc(), constant.getValue());
          })
          .Case([&](loom::ReshapeOp reshape) {
            return declareAlias(reshape.getLoc(), reshape.getType(), getBuffer(reshape.getInput()));
          })
          .Case([&](loom::SliceOp slice) {
            int64_t offset = 0;
            for (auto [start, stride] :
                 llvm::zip_equal(slice.getStarts(),
                                 loom::getRowMajorStrides(slice.getInput().getType().getShape())))
              offset += start * stride;
            return declareAlias(slice.getLoc(), slice.getType(), getBuffer(slice.getInput()),
                                offset);
          })
          .Case([&](dist::AxisIndexOp index) {
            Value &parameter = shared[{index.getAxes(), Attribute()}];
            if (!parameter)
              parameter = plan::RankParamOp::create(
                  decls, index.getLoc(), plan::BufferType::get(decls.getContext(), index.getType()),
                  index.getAxes());
            return parameter;
          })
          .Default([](Operation *) { return Value(); });
  assert(buffer && "value used before the step that computes it");
  return buffers[value] = buffer;
}

Value ProgramBuilder::getRegistered(Value value) {
  Value buffer = getBuffer(value);
  Value root = getRootValue(value);
  bool isReachable = isComputed(root) || root.getDefiningOp<dist::DoneOp>();
  if (isReachable || isSentInPlace(root))
    return buffer;
  // Inputs and literals are where the caller or the loader put them.
  Value &copy = registeredCopies[value];
  if (!copy) {
    copy = declare(value.getLoc(), value.getType(), plan::Space::Registered);
    plan::CopyOp::create(steps, value.getLoc(), buffer, copy, compute);
  }
  return copy;
}

/// Where the last compute step of the block is recorded; nullopt where there is none to wait for.
std::optional<uint64_t> ProgramBuilder::recordCompute(Location loc) {
  for (Operation &op : llvm::reverse(*steps.getInsertionBlock())) {
    plan::StreamAttr stream = getStepStream(&op);
    if (auto record = dyn_cast<plan::RecordOp>(op); record && stream == compute)
      return record.getEvent();
    if (isStep(&op) && stream == compute) {
      plan::RecordOp::create(steps, loc, numEvents, compute);
      return numEvents++;
    }
  }
  if (microbatches == 1)
    return std::nullopt;
  // The last iteration's.
  plan::RecordOp::create(steps, loc, numEvents, compute);
  return numEvents++;
}

/// Lets the streams of a group wait for all compute so far: its results may then lie where that
/// worked.
void ProgramBuilder::waitForCompute(dist::StartOp start) {
  std::optional<uint64_t> event = recordCompute(start.getLoc());
  if (!event)
    return;
  llvm::SmallDenseSet<plan::StreamAttr> waiting;
  for (Operation &op : llvm::reverse(*steps.getInsertionBlock())) {
    if (auto wait = dyn_cast<plan::WaitOp>(op); wait && wait.getEvent() == *event)
      waiting.insert(wait.getStream());
    else if (auto record = dyn_cast<plan::RecordOp>(op); record && record.getEvent() == *event)
      break;
  }
  for (Operation &op : start.getBody().front().without_terminator())
    if (waiting.insert(getStream(&op)).second)
      plan::WaitOp::create(steps, start.getLoc(), *event, getStream(&op));
}

Value ProgramBuilder::getMessage(dist::AllReduceOp op) {
  Value &buffer = messages[op];
  if (!buffer)
    buffer = declare(op.getLoc(), layOutMessage(op).type, plan::Space::Registered);
  return buffer;
}

Value ProgramBuilder::getPlace(dist::AllReduceOp op, unsigned index) {
  return declareAlias(op.getLoc(), op.getOutputs()[index].getType(), getMessage(op),
                      layOutMessage(op).offsets[index]);
}

/// What is not computed where it is sent from is copied there; the sums come to the same places.
/// Gaps are filled each time: between two messages their memory is others'.
Value ProgramBuilder::fillMessage(dist::AllReduceOp op) {
  Value message = getMessage(op);
  for (auto [i, input, result] : llvm::enumerate(op.getInputs(), op.getOutputs())) {
    Value place = getPlace(op, i);
    if (Value buffer = getBuffer(input); getRootBuffer(buffer) != message)
      addCopy(input.getLoc(), buffer, place);
    buffers[result] = place;
  }
  Message layout = layOutMessage(op);
  for (auto [offset, size] : layout.gaps) {
    auto type = RankedTensorType::get({size}, layout.type.getElementType());
    auto zeros = DenseElementsAttr::get(type, steps.getZeroAttr(type.getElementType()));
    addCopy(op.getLoc(), declareConstant(op.getLoc(), zeros),
            declareAlias(op.getLoc(), type, message, offset));
  }
  return message;
}

/// `others` travel in the same message: all_gathers of what is used together.
void ProgramBuilder::addGroup(Operation *op, ArrayRef<Operation *> others) {
  SmallVector<Value> inputs, outputs;
  auto addValues = [&](Operation *each) {
    for (Value operand : each->getOperands())
      inputs.push_back(getRegistered(operand));
    for (Value result : each->getResults()) {
      outputs.push_back(declare(each->getLoc(), result.getType(), plan::Space::Registered));
      buffers[result] = outputs.back();
    }
  };
  if (isMessage(op))
    inputs = outputs = {fillMessage(cast<dist::AllReduceOp>(op))};
  else
    addValues(op);
  llvm::for_each(others, addValues);
  Operation *named = others.empty() ? op : op->getParentOp();
  auto group =
      plan::GroupOp::create(steps, named->getLoc(), getGroupKind(op), getGroupAxes(op), sequence++,
                            dist::ReductionKindAttr(), IntegerAttr(), IntegerAttr(),
                            DenseI64ArrayAttr(), inputs, outputs, getStream(op));
  if (Attribute because = named->getAttr(dist::kBecause))
    group->setAttr(dist::kBecause, because);
  llvm::TypeSwitch<Operation *>(op)
      .Case<dist::AllReduceOp, dist::ReduceScatterOp>(
          [&](auto reduce) { group.setReduction(reduce.getReduction()); })
      .Case<dist::SendOp, dist::RecvOp>([&](auto transfer) {
        group.setStage(transfer.getStage());
        group.setChannel(transfer.getChannel());
      })
      .Case([&](dist::PermuteOp permute) { group.setPermutation(permute.getPermutation()); });
}

void ProgramBuilder::addStart(dist::StartOp start, bool overlap) {
  Block &body = start.getBody().front();
  if (deferred.contains(start) || readsWeights(start))
    waitForCompute(start);
  SmallVector<Operation *> operations;
  for (Operation &op : body.without_terminator())
    operations.push_back(&op);
  if (isa<dist::AllGatherOp>(operations.front()))
    addGroup(operations.front(), ArrayRef(operations).drop_front());
  else
    llvm::for_each(operations, [&](Operation *op) { addGroup(op); });
  for (Operation *user : start.getFuture().getUsers())
    for (auto [yielded, result] :
         llvm::zip_equal(body.getTerminator()->getOperands(), user->getResults()))
      buffers[result] = getBuffer(yielded);
  if (overlap)
    return;
  // One after another: compute waits for each stream the group uses.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*steps.getBlock()))) {
    auto group = dyn_cast<plan::GroupOp>(op);
    if (!group)
      break;
    plan::RecordOp::create(steps, start.getLoc(), numEvents, group.getStream());
    plan::WaitOp::create(steps, start.getLoc(), numEvents++, compute);
  }
}

//===----------------------------------------------------------------------===//
// Loops and branches: before a condition is read every stream has finished, and a body's steps come
// after all before it.
//===----------------------------------------------------------------------===//

void ProgramBuilder::resumeAfter(Operation *control) {
  steps.setInsertionPointAfter(control);
  auto block = plan::BlockOp::create(steps, control->getLoc());
  steps.setInsertionPointToEnd(&block.getBody().emplaceBlock());
}

/// A target may hold what is still to be copied to another one, as when two values change places.
void ProgramBuilder::addCopies(ValueRange values, ArrayRef<Value> targets) {
  SmallVector<Value> sources;
  for (auto [value, target] : llvm::zip_equal(values, targets)) {
    Value source = getBuffer(value), root = getRootBuffer(source);
    if (root != target && llvm::is_contained(targets, root)) {
      Value temporary = declare(value.getLoc(), value.getType(), plan::Space::Arena);
      addCopy(value.getLoc(), source, temporary);
      source = temporary;
    }
    sources.push_back(source);
  }
  for (auto [value, source, target] : llvm::zip_equal(values, sources, targets))
    if (getRootBuffer(source) != target)
      addCopy(value.getLoc(), source, target);
}

void ProgramBuilder::addBody(func::FuncOp body, Region &region, ArrayRef<Value> arguments,
                             ArrayRef<Value> targets, bool overlap) {
  steps.setInsertionPointToEnd(&region.emplaceBlock());
  auto block = plan::BlockOp::create(steps, body.getLoc());
  steps.setInsertionPointToEnd(&block.getBody().emplaceBlock());
  for (auto [argument, buffer] : llvm::zip_equal(body.getArguments(), arguments))
    buffers[argument] = buffer;
  addBlockSteps(body.front(), overlap);
  addCopies(body.front().getTerminator()->getOperands(), targets);
}

void ProgramBuilder::addWhile(loom::WhileOp op, bool overlap) {
  Location loc = op.getLoc();
  SmallVector<Value> targets, arguments;
  for (Value init : op->getOperands().take_front(1 + op.getNumResults())) {
    Value target = declare(loc, init.getType(), plan::Space::Arena);
    addCopy(loc, getBuffer(init), target);
    targets.push_back(target);
  }
  arguments.assign(targets.begin() + 1, targets.end());
  for (Value capture : op.getCaptures())
    arguments.push_back(getBuffer(capture));
  steps.setInsertionPointAfter(steps.getInsertionBlock()->getParentOp());
  auto loop = plan::WhileOp::create(steps, loc, targets.front());
  if (IntegerAttr trips = op.getTripsAttr())
    loop->setAttr(kTrips, trips);
  addBody(loom::getBodies(op).front().body, loop.getBody(), arguments, targets, overlap);
  for (auto [result, target] : llvm::zip_equal(op.getResults(), ArrayRef(targets).drop_front()))
    buffers[result] = target;
  resumeAfter(loop);
}

void ProgramBuilder::addIf(loom::IfOp op, bool overlap) {
  Location loc = op.getLoc();
  SmallVector<Value> targets, arguments;
  for (Value result : op.getResults())
    targets.push_back(declare(loc, result.getType(), plan::Space::Arena));
  for (Value capture : op.getCaptures())
    arguments.push_back(getBuffer(capture));
  Value condition = getBuffer(op.getCondition());
  steps.setInsertionPointAfter(steps.getInsertionBlock()->getParentOp());
  auto branch = plan::IfOp::create(steps, loc, condition);
  auto bodies = loom::getBodies(op);
  addBody(bodies[0].body, branch.getThenBody(), arguments, targets, overlap);
  addBody(bodies[1].body, branch.getElseBody(), arguments, targets, overlap);
  for (auto [result, target] : llvm::zip_equal(op.getResults(), targets))
    buffers[result] = target;
  resumeAfter(branch);
}

void ProgramBuilder::addSteps(Block &block, bool overlap) {
  addBlockSteps(block, overlap);
  // Outputs may be what a state was.
  for (const Copies &copies : {outputCopies, stateCopies})
    addCopies(copies.values, copies.buffers);
}

void ProgramBuilder::addBlockSteps(Block &block, bool overlap) {
  for (Operation &op : block.without_terminator()) {
    llvm::TypeSwitch<Operation *>(&op)
        .Case([&](plan::CallOp call) {
          auto inputs =
              llvm::map_to_vector(call.getInputs(), [&](Value value) { return getBuffer(value); });
          auto outputs = llvm::map_to_vector(call.getOutputs(),
                                             [&](Value value) { return declareResult(value); });
          plan::LaunchOp::create(steps, call.getLoc(), call.getKernelAttr(), inputs, outputs,
                                 compute);
        })
        .Case<plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp>([&](auto call) {
          auto inputs = llvm::map_to_vector(call->getOperands(),
                                            [&](Value value) { return getBuffer(value); });
          auto matmul = dyn_cast<plan::MatmulOp>(*call);
          plan::LibraryOp::create(steps, call.getLoc(), call.getDescriptor(), inputs,
                                  declareResult(call.getOutput()), compute,
                                  matmul ? matmul.getFallbackAttr() : FlatSymbolRefAttr());
        })
        .Case([&](loom::WhileOp loop) { addWhile(loop, overlap); })
        .Case([&](loom::IfOp branch) { addIf(branch, overlap); })
        .Case([&](dist::StartOp start) { addStart(start, overlap); });
  }
}

plan::ProgramOp ProgramBuilder::finish() { return program; }

/// The attributes that stay on a program's buffers as they are: all but name and sharding, which
/// have their own places.
SmallVector<NamedAttribute> getOtherAttributes(DictionaryAttr attributes) {
  if (!attributes)
    return {};
  return llvm::filter_to_vector(attributes, [](NamedAttribute attribute) {
    return attribute.getName() != loom::kName && attribute.getName() != dist::kSharding;
  });
}

StringRef getNameIn(DictionaryAttr attributes) {
  auto name = attributes ? attributes.getAs<StringAttr>(loom::kName) : StringAttr();
  return name ? name.getValue() : StringRef();
}

} // namespace

plan::StreamAttr getStream(Operation *communication) {
  int64_t stage = llvm::TypeSwitch<Operation *, int64_t>(communication)
                      .Case<dist::SendOp, dist::RecvOp>(
                          [](auto transfer) { return static_cast<int64_t>(transfer.getStage()); })
                      .Default(int64_t(-1));
  return plan::StreamAttr::getOf(getGroupKind(communication), getGroupAxes(communication), stage);
}

plan::ProgramOp buildProgram(func::FuncOp func, bool overlap, const DeferredStarts &deferred) {
  MLIRContext *context = func.getContext();
  auto getInt = [&](StringRef name, int64_t otherwise) {
    auto attribute = func->getAttrOfType<IntegerAttr>(name);
    return attribute ? attribute.getInt() : otherwise;
  };
  auto entry = func->getAttrOfType<StringAttr>(loom::kEntry);
  auto dims = func->getAttrOfType<DictionaryAttr>(loom::kDims);
  ProgramBuilder builder(func, func.getSymName(), entry ? entry.getValue() : func.getSymName(),
                         dims ? dims : DictionaryAttr::get(context), getInt(dist::kStage, 0),
                         getInt(dist::kMicrobatches, 1), deferred);
  for (BlockArgument argument : func.getArguments()) {
    DictionaryAttr attributes = func.getArgAttrDict(argument.getArgNumber());
    builder.addInput(
        argument, getNameIn(attributes),
        func.getArgAttrOfType<dist::ShardingAttr>(argument.getArgNumber(), dist::kSharding),
        getOtherAttributes(attributes));
  }
  for (const StateUpdate &update : findStateUpdates(func))
    builder.updateInPlace(update);
  for (OpOperand &operand : func.getBody().front().getTerminator()->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    DictionaryAttr attributes = func.getResultAttrDict(index);
    builder.addOutput(operand.get(), getNameIn(attributes),
                      func.getResultAttrOfType<dist::ShardingAttr>(index, dist::kSharding),
                      getOtherAttributes(attributes));
  }
  builder.addSteps(func.getBody().front(), overlap);
  plan::ProgramOp program = builder.finish();
  for (NamedAttribute attribute : func->getDiscardableAttrs())
    if (attribute.getName() != loom::kEntry && attribute.getName() != loom::kDims &&
        attribute.getName() != dist::kStage)
      program->setAttr(attribute.getName(), attribute.getValue());
  func.erase();
  return program;
}

} // namespace gridloom
