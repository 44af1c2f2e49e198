//===- PlanMutations.cpp - faults of programs on buffers ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "Mutations.h"

#include "passes/schedule/ProgramTimeline.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom;
using gridloom::testing::Mutation;

namespace {

class Finder {
public:
  explicit Finder(ModuleOp module) : module(module), mesh(dist::getMesh(module)) {}

  std::vector<Mutation> find() {
    for (auto program : module.getOps<plan::ProgramOp>()) {
      buffers.clear();
      llvm::append_range(buffers, program.getBody().front().getOps<plan::BufferOp>());
      program.walk([&](Operation *op) {
        TypeSwitch<Operation *>(op)
            .Case<plan::BufferOp, plan::RankParamOp, plan::RepeatOp, plan::WaitOp, plan::RecordOp>(
                [&](auto each) { visit(each); })
            .Case<plan::LaunchOp, plan::LibraryOp, plan::CopyOp, plan::GroupOp>([&](auto step) {
              visitStep(step);
              if (auto group = dyn_cast<plan::GroupOp>(*step))
                visitGroup(group);
            });
      });
    }
    return std::move(mutations);
  }

private:
  void add(const char *kind, Operation *op, const Twine &what, std::function<void()> plant,
           std::string equivalent = "") {
    mutations.push_back(
        {kind,
         (op->getName().getStringRef() + " '" + loom::getNodeName(op->getLoc()) + "': " + what)
             .str(),
         std::move(equivalent), std::move(plant)});
  }

  void visit(plan::BufferOp op);
  void visit(plan::RankParamOp op);
  void visit(plan::RepeatOp op);
  void visit(plan::WaitOp op);
  void visit(plan::RecordOp op);
  template <typename Op> void visitStep(Op op);
  void visitGroup(plan::GroupOp op);

  ModuleOp module;
  dist::MeshOp mesh;
  SmallVector<plan::BufferOp> buffers; // of the current program
  std::vector<Mutation> mutations;
};

void Finder::visit(plan::BufferOp op) {
  if (op.getOffset()) {
    for (plan::BufferOp other : buffers) {
      if (other == op || other.getSpace() != op.getSpace() || !other.getOffset() ||
          *other.getOffset() == *op.getOffset())
        continue;
      add("overlapping buffers", op, "at the offset of another",
          [op, offset = *other.getOffset()]() mutable { op.setOffset(offset); });
      break;
    }
    add("overlapping buffers", op, "64 bytes further",
        [op]() mutable { op.setOffset(*op.getOffset() + 64); });
  }
  if (op.getSlots() > 1)
    add("stale buffer", op, "one slot less", [op]() mutable { op.setSlots(op.getSlots() - 1); });
  if (auto sharding = op.getShardingAttr()) {
    SmallVector<dist::DimShardingAttr> dims(sharding.getDims());
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].getAxes().empty() ||
          dims[i].getAxes().back().getValue() == dist::MeshOp::kMicroAxis)
        continue;
      SmallVector<dist::DimShardingAttr> other(dims);
      other[i] = dist::DimShardingAttr::get(op.getContext(), {}, false, 1);
      auto attr = dist::ShardingAttr::get(op.getContext(), sharding.getMesh(), other,
                                          sharding.getUnreduced(), sharding.getReduction());
      add("wrong shard", op, "dimension " + Twine(i) + " not split",
          [op, attr]() mutable { op.setShardingAttr(attr); });
    }
  }
}

void Finder::visit(plan::RankParamOp op) {
  for (auto axis : mesh.getAxes().getAsRange<dist::AxisAttr>()) {
    auto other = Builder(op.getContext()).getStrArrayAttr({axis.getName()});
    if (axis.getName() != dist::MeshOp::kMicroAxis && other != op.getAxes())
      add("wrong axis", op, "the index along " + axis.getName(),
          [op, other]() mutable { op.setAxesAttr(other); });
  }
}

void Finder::visit(plan::RepeatOp op) {
  add("wrong micro-batch count", op, "one iteration less",
      [op]() mutable { op.setCount(op.getCount() - 1); });
  add("wrong micro-batch count", op, "one iteration more",
      [op]() mutable { op.setCount(op.getCount() + 1); });
}

void Finder::visit(plan::WaitOp op) {
  add("dropped wait", op, "event " + Twine(op.getEvent()), [op]() mutable { op.erase(); });
  add("wrong event", op, "the event after", [op]() mutable { op.setEvent(op.getEvent() + 1); });
  if (op.getLag() > 0)
    add("wrong event", op, "one iteration further back",
        [op]() mutable { op.setLag(op.getLag() + 1); });
}

void Finder::visit(plan::RecordOp op) {
  add("dropped event", op, "event " + Twine(op.getEvent()), [op]() mutable { op.erase(); });
  // Record it before the step that it should follow.
  Operation *before = op->getPrevNode();
  if (before && isStep(before) && getStepStream(before) == op.getStream())
    add("early event", op, "before its step", [op, before] { op->moveBefore(before); });
}

template <typename Op> void Finder::visitStep(Op op) {
  add("dropped step", op, "never runs", [op]() mutable { op.erase(); });
  // Read another buffer of the same type.
  for (OpOperand &operand : op->getOpOperands()) {
    if (operand.getOperandNumber() >= op.getInputs().size())
      break;
    for (plan::BufferOp other : buffers) {
      if (other.getBuffer() == operand.get() ||
          other.getBuffer().getType() != operand.get().getType())
        continue;
      add("stale buffer", op, "input " + Twine(operand.getOperandNumber()) + " is another buffer",
          [op, other, number = operand.getOperandNumber()]() mutable {
            op->setOperand(number, other.getBuffer());
          });
      break;
    }
  }
  auto launch = dyn_cast<plan::LaunchOp>(*op);
  bool commutes = launch && launch.getInputs().size() > 1 &&
                  gridloom::testing::areInterchangeable(op, launch.getKernelAttr(), 0, 1);
  if (op.getInputs().size() > 1 && op.getInputs()[0].getType() == op.getInputs()[1].getType())
    add(
        "swapped operands", op, "inputs 0 and 1",
        [op]() mutable {
          Value first = op->getOperand(0);
          op->setOperand(0, op->getOperand(1));
          op->setOperand(1, first);
        },
        op.getInputs()[0] == op.getInputs()[1] || commutes ? "operands that commute" : "");
  // Move it before the preceding step, on its own stream or another.
  if (Operation *before = op->getPrevNode())
    add("wrong order", op, "before what it follows", [op, before] { op->moveBefore(before); });
}

void Finder::visitGroup(plan::GroupOp op) {
  Builder builder(op.getContext());
  int64_t size = 1;
  for (StringRef axis : op.getAxes().getAsValueRange<StringAttr>())
    size *= mesh.getAxisSize(axis);
  if (op.getReduction())
    add(
        "wrong reduction", op, "max for sum, or sum",
        [op]() mutable {
          bool isSum = *op.getReduction() == dist::ReductionKind::Sum;
          op.setReduction(isSum ? dist::ReductionKind::Max : dist::ReductionKind::Sum);
        },
        size == 1 ? "a group of one" : "");
  if (auto own = op.getPermutation()) {
    SmallVector<int64_t> rotated(*own);
    std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
    add(
        "wrong peer", op, "permutation rotated",
        [op, rotated]() mutable { op.setPermutation(rotated); },
        ArrayRef(rotated) == *own ? "the same permutation" : "");
  }
  if (op.getStage()) {
    add("wrong peer", op, "another stage", [op]() mutable { op.setStage(*op.getStage() + 1); });
    add("wrong channel", op, "another channel",
        [op]() mutable { op.setChannel(*op.getChannel() + 1); });
    bool sends = op.getKind() == plan::GroupKind::Send;
    auto program = op->getParentOfType<plan::ProgramOp>();
    // Only this stage reorders its transfers; the other end keeps its order.
    bool swapped = false;
    program.walk([&](plan::GroupOp other) {
      if (swapped || other == op || other.getKind() != op.getKind() ||
          other.getStream() != op.getStream() || other->getBlock() != op->getBlock())
        return;
      swapped = true;
      add("wrong order", op, sends ? "sends in another order" : "receives in another order",
          [op, other]() mutable {
            Operation *next = op->getNextNode();
            op->moveBefore(other);
            if (next && next != other)
              other->moveBefore(next);
          });
    });
  } else {
    for (auto axis : mesh.getAxes().getAsRange<dist::AxisAttr>()) {
      auto other = builder.getStrArrayAttr({axis.getName()});
      if (axis.getName() != dist::MeshOp::kMicroAxis && other != op.getAxes())
        add("wrong group", op, "over " + axis.getName(),
            [op, other]() mutable { op.setAxesAttr(other); });
    }
  }
  add("wrong stream", op, "on the compute stream",
      [op]() mutable { op.setStreamAttr(plan::StreamAttr::getCompute(op.getContext())); });
  add("wrong sequence", op, "numbered one more",
      [op]() mutable { op.setSequence(op.getSequence() + 1); });
  add("doubled collective", op, "runs twice", [op]() mutable {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    builder.clone(*op);
  });
}

} // namespace

std::vector<Mutation> gridloom::testing::findPlanMutations(ModuleOp module) {
  return Finder(module).find();
}
