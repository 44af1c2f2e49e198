//===- SplitStages.cpp - a function for each pipeline stage -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Partition.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Training.h"
#include "passes/partition/StageRun.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_SPLITSTAGES
#include "passes/partition/Passes.h.inc"
} // namespace gridloom

static int64_t getStage(Operation *op) { return op->getAttrOfType<IntegerAttr>(kStage).getInt(); }

namespace {
/// A value that one stage makes and another reads.
struct Transfer {
  Value value;
  int64_t from, to, channel;
};

/// Splits one function.
class Splitter {
public:
  Splitter(func::FuncOp func, int64_t stages, int64_t microbatches)
      : func(func), stages(stages), microbatches(microbatches), builder(func.getContext()) {}
  LogicalResult run();

private:
  void findTransfers();
  void findTransfers(Value value, int64_t from);
  void orderByRun();
  LogicalResult checkStates();
  void buildStage(int64_t stage);
  /// The stage of a result; a state that is only passed on stays in its stage.
  int64_t getResultStage(Value value) {
    if (value.getDefiningOp())
      return getStage(value.getDefiningOp());
    auto owner =
        func.getArgAttrOfType<IntegerAttr>(cast<BlockArgument>(value).getArgNumber(), kStage);
    return owner ? owner.getInt() : stages - 1;
  }
  int64_t getReadingStage(BlockArgument argument, Operation *user) {
    return user == func.front().getTerminator() || loom::isSentState(argument)
               ? getResultStage(argument)
               : getStage(user);
  }

  func::FuncOp func;
  int64_t stages, microbatches;
  OpBuilder builder;
  SmallVector<Transfer> transfers;
};

struct SplitStagesPass : public gridloom::impl::SplitStagesBase<SplitStagesPass> {
  using SplitStagesBase::SplitStagesBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    MeshOp mesh = getMesh(module);
    auto axis = module->getAttrOfType<StringAttr>(kStageAxis);
    int64_t stages = axis && mesh ? mesh.getAxisSize(axis.getValue()) : 1;
    int64_t microbatches = mesh ? mesh.getAxisSize(MeshOp::kMicroAxis) : 1;
    for (auto func : llvm::to_vector(module.getOps<func::FuncOp>()))
      if (loom::isBody(func))
        keepBody(func, microbatches);
      else if (failed(Splitter(func, stages, microbatches).run()))
        return signalPassFailure();
  }

  /// Keeps a body, which is in one stage, as it is and under its own name.
  static void keepBody(func::FuncOp func, int64_t microbatches) {
    Attribute stage = func.front().getTerminator()->getAttr(kStage);
    for (Operation &op : func.front())
      op.removeAttr(kStage);
    func->setAttr(kStage, stage);
    func->setAttr(kMicrobatches,
                  IntegerAttr::get(IntegerType::get(func.getContext(), 64), microbatches));
  }
};
} // namespace

/// Requires a state to be read and written in one stage.
LogicalResult Splitter::checkStates() {
  Operation *terminator = func.front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState);
    if (!state)
      continue;
    int64_t stage = getResultStage(value);
    for (BlockArgument argument : func.getArguments())
      if (func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState) == state)
        for (Operation *user : argument.getUsers())
          if (user != terminator && getReadingStage(argument, user) != stage)
            return user->emitError("'")
                   << loom::getNodeName(user->getLoc()) << "' of stage " << getStage(user)
                   << " reads state '" << state.getValue() << "', which stage " << stage
                   << " writes; use fewer stages, or annotate them";
  }
  return success();
}

void Splitter::findTransfers(Value value, int64_t from) {
  SmallVector<int64_t> readers;
  for (Operation *user : value.getUsers())
    if (!isa<func::ReturnOp>(user) && getStage(user) != from &&
        !llvm::is_contained(readers, getStage(user)))
      readers.push_back(getStage(user));
  llvm::sort(readers);
  for (int64_t reader : readers)
    transfers.push_back({value, from, reader, 0});
}

/// For a function whose stages send both ways: sorts operations in the order in which they would
/// end. Channels numbered in that order agree with the data flow.
void Splitter::orderByRun() {
  auto module = func->getParentOfType<ModuleOp>();
  for (Operation *op : runStages(func, Mesh::get(module), getStageAxes(module)))
    op->moveBefore(func.front().getTerminator());
}

void Splitter::findTransfers() {
  bool isStep = stages > 1 && loom::isTrainStep(func);
  if (isStep) {
    orderByRun();
    for (BlockArgument argument : func.getArguments())
      if (loom::isSentState(argument))
        findTransfers(argument, getResultStage(argument));
  }
  for (Operation &op : func.front().without_terminator())
    for (Value result : op.getResults())
      findTransfers(result, getStage(&op));
  // In a model values flow to later stages only. With the transfers of earlier stages first, all
  // stages have their transfers in one order, whatever the order of operations.
  if (!isStep)
    llvm::stable_sort(transfers,
                      [](const Transfer &a, const Transfer &b) { return a.from < b.from; });
  for (auto [i, transfer] : llvm::enumerate(transfers))
    transfer.channel = static_cast<int64_t>(i);
}

/// Describes which operations read a value in another stage, as the cause of a transfer.
static std::string describeReaders(const Transfer &transfer) {
  std::vector<std::string> names;
  auto users = llvm::to_vector(transfer.value.getUsers());
  for (Operation *user : llvm::reverse(users))
    if (!isa<func::ReturnOp>(user) && getStage(user) == transfer.to)
      if (std::string name = loom::getNodeName(user->getLoc());
          !name.empty() && !llvm::is_contained(names, "'" + name + "'"))
        names.push_back("'" + name + "'");
  return llvm::join(names, ", ") + (names.empty() ? "stage " : " of stage ") +
         std::to_string(transfer.to) + (names.size() > 1 ? " read" : " reads") +
         " a result of stage " + std::to_string(transfer.from);
}

void Splitter::buildStage(int64_t stage) {
  // The inputs that this stage reads, and the outputs that it makes.
  SmallVector<unsigned> inputs, outputs;
  Operation *terminator = func.front().getTerminator();
  for (BlockArgument argument : func.getArguments()) {
    bool read = llvm::any_of(argument.getUsers(), [&](Operation *user) {
      return getReadingStage(argument, user) == stage;
    });
    if (read)
      inputs.push_back(argument.getArgNumber());
  }
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    if (getResultStage(value) == stage)
      outputs.push_back(i);

  SmallVector<Type> inputTypes, outputTypes;
  SmallVector<DictionaryAttr> inputAttrs, outputAttrs;
  for (unsigned i : inputs) {
    inputTypes.push_back(func.getArgumentTypes()[i]);
    inputAttrs.push_back(func.getArgAttrDict(i));
  }
  for (unsigned i : outputs) {
    outputTypes.push_back(func.getResultTypes()[i]);
    outputAttrs.push_back(func.getResultAttrDict(i));
  }
  builder.setInsertionPoint(func);
  auto local = func::FuncOp::create(builder, func.getLoc(),
                                    (func.getSymName() + "_stage" + Twine(stage)).str(),
                                    builder.getFunctionType(inputTypes, outputTypes));
  local->setDiscardableAttrs(func->getDiscardableAttrDictionary());
  local.setAllArgAttrs(inputAttrs);
  local.setAllResultAttrs(outputAttrs);
  local->setAttr(kStage, builder.getI64IntegerAttr(stage));
  local->setAttr(kMicrobatches, builder.getI64IntegerAttr(microbatches));

  IRMapping mapping;
  builder.setInsertionPointToEnd(local.addEntryBlock());
  for (auto [i, argument] : llvm::zip_equal(inputs, local.getArguments()))
    mapping.map(func.getArgument(i), argument);
  auto receive = [&](const Transfer &transfer) {
    auto recv = RecvOp::create(builder, transfer.value.getLoc(), transfer.value.getType(),
                               builder.getI64IntegerAttr(transfer.from),
                               builder.getI64IntegerAttr(transfer.channel));
    if (Operation *producer = transfer.value.getDefiningOp())
      for (StringRef name : {kShardings, kOrigins})
        if (Attribute attr = producer->getAttr(name))
          recv->setAttr(name, attr);
    addCause(recv, describeReaders(transfer));
    mapping.map(transfer.value, recv.getOutput());
  };
  // All receives come first, in channel order; the schedule waits for each when it is needed. If
  // stages send both ways, each receive comes before its first reader, so that none is waited for
  // before all lower channels are sent.
  bool isStep = loom::isTrainStep(func);
  for (const Transfer &transfer : transfers)
    if (transfer.to == stage && !isStep)
      receive(transfer);
  auto send = [&](Operation *producer) {
    for (const Transfer &transfer : transfers)
      if (transfer.from == stage && transfer.value.getDefiningOp() == producer)
        addCause(SendOp::create(builder, transfer.value.getLoc(), mapping.lookup(transfer.value),
                                builder.getI64IntegerAttr(transfer.to),
                                builder.getI64IntegerAttr(transfer.channel)),
                 describeReaders(transfer));
  };
  send(nullptr); // states
  for (Operation &op : func.front().without_terminator()) {
    if (getStage(&op) != stage)
      continue;
    for (const Transfer &transfer : transfers)
      if (isStep && transfer.to == stage && !mapping.contains(transfer.value) &&
          llvm::is_contained(op.getOperands(), transfer.value))
        receive(transfer);
    builder.clone(op, mapping)->removeAttr(kStage);
    send(&op);
  }
  SmallVector<Value> results;
  for (unsigned i : outputs)
    results.push_back(mapping.lookup(terminator->getOperand(i)));
  func::ReturnOp::create(builder, terminator->getLoc(), results);
}

LogicalResult Splitter::run() {
  for (Operation &op : func.front().without_terminator())
    if (!op.hasAttr(kStage))
      return op.emitOpError("has no stage");
  if (failed(checkStates()))
    return failure();
  findTransfers();
  for (int64_t stage = 0; stage < stages; ++stage)
    buildStage(stage);
  func.erase();
  return success();
}
