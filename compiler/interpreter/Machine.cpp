//===- Machine.cpp - virtual ranks ----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Machine.h"

#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

/// Maps each operation of the body to the values nobody uses after it.
static void findLastUses(func::FuncOp function, DenseMap<Operation *, SmallVector<Value>> &dying) {
  Block &body = function.getBody().front();
  auto visit = [&](Value value) {
    Operation *last = nullptr;
    for (Operation *user : value.getUsers()) {
      Operation *top = body.findAncestorOpInBlock(*user);
      if (top && (!last || last->isBeforeInBlock(top)))
        last = top;
    }
    if (last)
      dying[last].push_back(value);
  };
  llvm::for_each(body.getArguments(), visit);
  for (Operation &op : body)
    llvm::for_each(op.getResults(), visit);
}

LogicalResult Machine::run(ArrayRef<func::FuncOp> stages, bool partitioned, BindArguments bind,
                           TakeResults take) {
  dying.clear();
  for (func::FuncOp function : stages) {
    findLastUses(function, dying);
    loom::forEachBody(function, [&](Operation *, func::FuncOp body) { findLastUses(body, dying); });
  }
  std::vector<Rank> ranks(partitioned ? mesh.getNumRanks() : 1);
  for (auto [i, rank] : llvm::enumerate(ranks)) {
    rank.place.rank = i;
    int64_t stage = partitioned ? mesh.getStage(i) : 0;
    rank.function = stages[std::min<int64_t>(stage, stages.size() - 1)];
    if (stage >= static_cast<int64_t>(stages.size()))
      return rank.function.emitError() << "the mesh has rank " << i << " in stage " << stage
                                       << ", the program has " << stages.size() << " stages";
    if (failed(beginFunction(rank, bind)))
      return failure();
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (Rank &rank : ranks) {
      while (!rank.finished) {
        FailureOr<Step> result = step(rank, bind, take);
        if (failed(result))
          return failure();
        if (*result == Step::Blocked)
          break;
        progress = true;
      }
    }
  }
  return reportDeadlock(ranks);
}

LogicalResult Machine::beginFunction(Rank &rank, BindArguments bind) {
  FailureOr<TensorList> arguments = bind(rank.function, rank.place);
  if (failed(arguments))
    return failure();
  rank.values.clear();
  Block &body = rank.function.getBody().front();
  for (auto [argument, tensor] : llvm::zip_equal(body.getArguments(), *arguments))
    rank.values[argument] = std::move(tensor);
  rank.next = body.begin();
  return success();
}

/// A shard with zero padding, as the runtime makes it of weights and contractions need it.
static HostTensor cutWithZeros(const HostTensor &global, const ShardBox &box) {
  HostTensor shard(global.getKind(), box.sizes);
  SmallVector<int64_t> valid, origin(box.sizes.size(), 0);
  for (auto [start, size, extent] : llvm::zip_equal(box.starts, box.sizes, global.getShape()))
    valid.push_back(std::clamp<int64_t>(extent - start, 0, size));
  shard.insert(global.extract(box.starts, valid), origin);
  return shard;
}

/// A description of where a rank stands, for messages.
static std::string describe(Operation *op) {
  return (op->getName().getStringRef() + " of '" + loom::getNodeName(op->getLoc()) + "'").str();
}

LogicalResult Machine::reportDeadlock(ArrayRef<Rank> ranks) {
  const Rank *stuck = llvm::find_if(ranks, [](const Rank &rank) { return !rank.finished; });
  if (stuck == ranks.end()) {
    for (auto &[key, queues] : collectives)
      for (auto &[rank, queue] : queues)
        if (!queue.empty())
          return queue.front().op->emitOpError()
                 << "of rank " << rank << " was never joined by the other ranks of its group";
    for (auto &[key, channel] : channels)
      for (const Posting &posting : llvm::concat<Posting>(channel.sends, channel.receives))
        return posting.op->emitOpError()
               << "of rank " << posting.rank << " was never met by its peer";
    return success();
  }
  InFlightDiagnostic diagnostic = stuck->next->emitOpError("deadlocks:");
  int64_t listed = 0;
  for (const Rank &rank : ranks) {
    if (++listed > 8) {
      diagnostic << ", ...";
      break;
    }
    diagnostic << (listed > 1 ? ", rank " : " rank ") << rank.place.rank;
    if (rank.finished)
      diagnostic << " has ended";
    else
      diagnostic << " waits at " << describe(&const_cast<Rank &>(rank).next.operator*())
                 << " in micro-batch " << rank.place.micro;
  }
  return diagnostic;
}

//===----------------------------------------------------------------------===//
// One step of one rank
//===----------------------------------------------------------------------===//

TensorList Machine::getOperands(Rank &rank, Operation *op) {
  TensorList operands;
  for (Value operand : op->getOperands())
    operands.push_back(rank.values.lookup(operand));
  return operands;
}

void Machine::dropDeadValues(Rank &rank, Operation *op) {
  for (Value value : dying.lookup(op))
    rank.values.erase(value);
}

LogicalResult Machine::finish(Rank &rank, Operation *op, ArrayRef<HostTensor> results) {
  for (auto [result, tensor] : llvm::zip_equal(op->getResults(), results)) {
    auto type = cast<RankedTensorType>(result.getType());
    if (type.getShape() != tensor.getShape())
      return op->emitOpError() << "gives a tensor of another shape than its type " << type;
    if (!result.use_empty())
      rank.values[result] = tensor;
  }
  if (options.observer)
    options.observer(op, rank.place, results);
  dropDeadValues(rank, op);
  ++rank.next;
  return success();
}

FailureOr<TensorList> Machine::evaluateLocal(Rank &rank, Operation *op,
                                             ArrayRef<HostTensor> operands) {
  if (auto index = dyn_cast<dist::AxisIndexOp>(op)) {
    auto shape = cast<RankedTensorType>(index.getOutput().getType()).getShape();
    int64_t value = mesh.getIndex(rank.place, getAxisNames(index.getAxes()));
    return TensorList{HostTensor::fromInts(loom::ElementKind::I64, shape, value)};
  }
  if (auto slice = dyn_cast<dist::ShardSliceOp>(op)) {
    auto shape = cast<RankedTensorType>(slice.getOutput().getType()).getShape();
    SmallVector<int64_t> starts(shape.size(), 0);
    starts[slice.getDim()] =
        mesh.getIndex(rank.place, getAxisNames(slice.getAxes())) * shape[slice.getDim()];
    return TensorList{operands[0].extract(starts, shape)};
  }
  if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
    FailureOr<HostTensor> global = evaluator.getGlobalWeight(weight);
    if (failed(global))
      return failure();
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(weight.getShardingAttr());
    if (!sharding)
      return TensorList{*std::move(global)};
    ShardBox box = getShardBox(mesh, sharding, global->getShape(), rank.place);
    return TensorList{cutWithZeros(*global, box)};
  }
  return evaluator.evaluate(op, operands);
}

FailureOr<Machine::Step> Machine::step(Rank &rank, BindArguments bind, TakeResults take) {
  Operation *op = &*rank.next;
  if (auto start = dyn_cast<dist::StartOp>(op))
    return failed(stepStart(rank, start)) ? FailureOr<Step>(failure()) : Step::Advanced;
  if (auto done = dyn_cast<dist::DoneOp>(op))
    return stepDone(rank, done);
  if (dist::isCommunication(op))
    return stepCommunication(rank, op);
  if (loom::isControl(op))
    return failed(enterControl(rank, op)) ? FailureOr<Step>(failure()) : Step::Advanced;
  TensorList operands = getOperands(rank, op);
  if (isa<func::ReturnOp>(op) && !rank.frames.empty())
    return failed(leaveBody(rank, std::move(operands))) ? FailureOr<Step>(failure())
                                                        : Step::Advanced;
  if (!isa<func::ReturnOp>(op)) {
    FailureOr<TensorList> results = evaluateLocal(rank, op, operands);
    if (failed(results) || failed(finish(rank, op, *results)))
      return failure();
    return Step::Advanced;
  }
  if (failed(take(rank.function, rank.place, std::move(operands))))
    return failure();
  auto microbatches = rank.function->getAttrOfType<IntegerAttr>(dist::kMicrobatches);
  int64_t count = microbatches ? microbatches.getInt() : 1;
  if (microbatches && count != mesh.getNumMicrobatches())
    return rank.function->emitError()
           << "runs " << count << " micro-batches; the mesh has " << mesh.getNumMicrobatches();
  if (++rank.place.micro < count) {
    if (failed(beginFunction(rank, bind)))
      return failure();
  } else {
    rank.finished = true;
    rank.values.clear();
  }
  return Step::Advanced;
}

//===----------------------------------------------------------------------===//
// Loops and branches
//===----------------------------------------------------------------------===//

static bool isTrue(const HostTensor &condition) { return condition.toDoubles().front() != 0; }

void Machine::enterBody(Rank &rank, Frame &frame, TensorList arguments) {
  llvm::append_range(arguments, frame.captures);
  Block &block = frame.body.front();
  for (auto [argument, tensor] : llvm::zip_equal(block.getArguments(), arguments))
    rank.values[argument] = std::move(tensor);
  rank.next = block.begin();
}

LogicalResult Machine::enterControl(Rank &rank, Operation *op) {
  TensorList operands = getOperands(rank, op);
  bool holds = isTrue(operands.front());
  auto bodies = loom::getBodies(op);
  size_t carried = isa<loom::WhileOp>(op) ? op->getNumResults() : 0;
  TensorList inits(ArrayRef(operands).slice(1, carried));
  if (isa<loom::WhileOp>(op) && !holds)
    return finish(rank, op, inits);
  if (bodies.size() != (carried || isa<loom::WhileOp>(op) ? 1 : 2))
    return op->emitOpError("names a body that is not in the module");
  func::FuncOp body = bodies[isa<loom::IfOp>(op) && !holds ? 1 : 0].body;
  rank.frames.push_back({op, body, TensorList(ArrayRef(operands).drop_front(1 + carried))});
  enterBody(rank, rank.frames.back(), std::move(inits));
  return success();
}

LogicalResult Machine::leaveBody(Rank &rank, TensorList results) {
  Frame &frame = rank.frames.back();
  Operation *op = frame.op;
  if (isa<loom::WhileOp>(op)) {
    bool holds = isTrue(results.front());
    results.erase(results.begin());
    if (holds) {
      enterBody(rank, frame, std::move(results));
      return success();
    }
  }
  rank.frames.pop_back();
  rank.next = op->getIterator();
  return finish(rank, op, results);
}

FailureOr<Machine::Step> Machine::stepCommunication(Rank &rank, Operation *op) {
  if (!rank.waiting) {
    FailureOr<CompletionRef> completion = post(rank, op);
    if (failed(completion))
      return failure();
    rank.waiting = Future{{*completion}, {}};
  }
  CompletionRef completion = rank.waiting->all.front();
  if (!completion->ready)
    return Step::Blocked;
  rank.waiting.reset();
  if (failed(finish(rank, op, completion->values)))
    return failure();
  return Step::Advanced;
}

LogicalResult Machine::stepStart(Rank &rank, dist::StartOp op) {
  Future future;
  DenseMap<Value, std::pair<CompletionRef, size_t>> sources;
  for (Operation &inner : op.getBody().front().without_terminator()) {
    FailureOr<CompletionRef> completion = post(rank, &inner);
    if (failed(completion))
      return failure();
    future.all.push_back(*completion);
    for (OpResult result : inner.getResults())
      sources[result] = {*completion, result.getResultNumber()};
  }
  for (Value yielded : op.getBody().front().getTerminator()->getOperands()) {
    auto source = sources.find(yielded);
    if (source == sources.end())
      return op.emitOpError("yields a value that its group does not communicate");
    future.results.push_back(source->second);
  }
  rank.futures[op.getFuture()] = std::move(future);
  dropDeadValues(rank, op);
  ++rank.next;
  return success();
}

FailureOr<Machine::Step> Machine::stepDone(Rank &rank, dist::DoneOp op) {
  auto found = rank.futures.find(op.getFuture());
  if (found == rank.futures.end())
    return op.emitOpError("waits for a group a second time");
  if (!llvm::all_of(found->second.all,
                    [](const CompletionRef &completion) { return completion->ready; }))
    return Step::Blocked;
  TensorList results;
  for (auto &[completion, index] : found->second.results)
    results.push_back(completion->values[index]);
  rank.futures.erase(found);
  if (failed(finish(rank, op, results)))
    return failure();
  return Step::Advanced;
}

//===----------------------------------------------------------------------===//
// Communication
//===----------------------------------------------------------------------===//

FailureOr<Machine::CompletionRef> Machine::post(Rank &rank, Operation *op) {
  return isa<dist::SendOp, dist::RecvOp>(op) ? postTransfer(rank, op) : postCollective(rank, op);
}

/// True when two members' operations can be one collective: the same operation, or in different
/// stages an identical one.
static bool isSameCollective(Operation *first, Operation *second) {
  return first == second || (first->getName() == second->getName() &&
                             first->getOperandTypes() == second->getOperandTypes() &&
                             first->getResultTypes() == second->getResultTypes() &&
                             first->getAttrDictionary() == second->getAttrDictionary());
}

FailureOr<Machine::CompletionRef> Machine::postCollective(Rank &rank, Operation *op) {
  auto axes = op->getAttrOfType<ArrayAttr>("axes");
  SmallVector<StringAttr> names = getAxisNames(axes);
  std::string key;
  for (StringAttr name : names) {
    if (!mesh.hasAxis(name) || name == dist::MeshOp::kMicroAxis)
      return op->emitOpError() << "communicates over axis '" << name.getValue()
                               << "', which is not a device axis of the mesh";
    key += name.str() + ",";
  }
  SmallVector<int64_t> members = mesh.getGroup(rank.place.rank, names);
  auto &queues = collectives[{key, members.front()}];
  auto completion = std::make_shared<Completion>();
  queues[rank.place.rank].push_back({op, rank.place.rank, getOperands(rank, op), completion});
  if (failed(match(members, queues)))
    return failure();
  return completion;
}

LogicalResult Machine::match(ArrayRef<int64_t> members,
                             std::map<int64_t, std::deque<Posting>> &queues) {
  Posting *first = nullptr;
  for (int64_t member : members) {
    if (queues[member].empty())
      continue;
    Posting &posting = queues[member].front();
    if (first && !isSameCollective(first->op, posting.op))
      return posting.op->emitOpError()
             << "of rank " << posting.rank << " meets " << describe(first->op) << " of rank "
             << first->rank << ": the ranks of a group disagree on their order of communication";
    first = first ? first : &posting;
  }
  SmallVector<TensorList> inputs;
  for (int64_t member : members) {
    if (queues[member].empty())
      return success();
    inputs.push_back(queues[member].front().inputs);
  }
  FailureOr<SmallVector<TensorList>> outputs = evaluateCollective(first->op, inputs);
  if (failed(outputs))
    return failure();
  for (auto [member, values] : llvm::zip_equal(members, *outputs)) {
    Posting &posting = queues[member].front();
    posting.completion->values = std::move(values);
    posting.completion->ready = true;
    queues[member].pop_front();
  }
  return success();
}

FailureOr<Machine::CompletionRef> Machine::postTransfer(Rank &rank, Operation *op) {
  auto send = dyn_cast<dist::SendOp>(op);
  int64_t stage = send ? send.getStage() : cast<dist::RecvOp>(op).getStage();
  int64_t number = send ? send.getChannel() : cast<dist::RecvOp>(op).getChannel();
  int64_t peer = mesh.getPeer(rank.place.rank, stage);
  if (peer < 0 || peer == rank.place.rank)
    return op->emitOpError() << "of rank " << rank.place.rank << " names stage " << stage
                             << ", which is not another stage of the mesh";
  auto completion = std::make_shared<Completion>();
  Posting posting{op, rank.place.rank, getOperands(rank, op), completion};
  Channel &channel =
      send ? channels[{rank.place.rank, peer, number}] : channels[{peer, rank.place.rank, number}];
  (send ? channel.sends : channel.receives).push_back(std::move(posting));
  if (failed(match(channel)))
    return failure();
  return completion;
}

LogicalResult Machine::match(Channel &channel) {
  if (channel.sends.empty() || channel.receives.empty())
    return success();
  Posting &send = channel.sends.front(), &receive = channel.receives.front();
  Type sent = send.op->getOperand(0).getType(), received = receive.op->getResult(0).getType();
  if (sent != received)
    return receive.op->emitOpError()
           << "expects " << received << ", rank " << send.rank << " sends " << sent;
  receive.completion->values = std::move(send.inputs);
  receive.completion->ready = send.completion->ready = true;
  channel.sends.pop_front();
  channel.receives.pop_front();
  return success();
}
