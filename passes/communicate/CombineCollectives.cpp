//===- CombineCollectives.cpp - small all_reduces travel together -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_COMBINECOLLECTIVES
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
/// When a block's operations run if nothing waits: the seconds of the operations before them.
class Timeline {
public:
  Timeline(Block &block, const cluster::Machine &machine) {
    for (Operation &op : block) {
      start[&op] = end;
      if (!isCommunication(&op))
        end += loom::getComputeSeconds(&op, machine);
    }
  }
  /// When the operands are there; those of communication, when they were asked for.
  double getReady(Operation *op) const {
    double ready = 0;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        ready = std::max(ready, getEnd(producer));
    return ready;
  }
  /// When the first result is needed.
  double getDeadline(Operation *op) const {
    double deadline = end;
    for (Operation *user : op->getUsers())
      deadline = std::min(deadline, start.lookup(user));
    return deadline;
  }
  void replace(Operation *op, Operation *by) { start[by] = start.lookup(op); }

private:
  double getEnd(Operation *op) const {
    Operation *next = op->getNextNode();
    return next && !isCommunication(op) ? start.lookup(next) : start.lookup(op);
  }

  llvm::DenseMap<Operation *, double> start;
  double end = 0;
};

struct CombineCollectivesPass
    : public gridloom::impl::CombineCollectivesBase<CombineCollectivesPass> {
  using CombineCollectivesBase::CombineCollectivesBase;

  void runOnOperation() override {
    Mesh mesh = Mesh::get(getOperation()->getParentOfType<ModuleOp>());
    for (Block &block : getOperation().getBody()) {
      Timeline timeline(block, mesh.getMachine());
      SmallVector<AllReduceOp> pending; // one of each kind
      for (Operation &op : llvm::make_early_inc_range(block)) {
        // A use of a pending result ends its wait for company.
        llvm::erase_if(pending, [&](AllReduceOp waiting) {
          return llvm::is_contained(waiting->getUsers(), &op);
        });
        auto next = dyn_cast<AllReduceOp>(op);
        if (!next || next->hasAttr(kChunk))
          continue;
        auto *first =
            llvm::find_if(pending, [&](AllReduceOp waiting) { return isOfOneKind(waiting, next); });
        if (first == pending.end()) {
          pending.push_back(next);
        } else if (!isWorthwhile(*first, next, timeline, mesh)) {
          *first = next;
        } else {
          AllReduceOp joined = join(*first, next);
          timeline.replace(next, joined);
          first->erase();
          next.erase();
          *first = joined;
        }
      }
    }
  }

private:
  static int64_t bytesOf(AllReduceOp op) {
    int64_t bytes = 0;
    for (Type type : op.getInputs().getTypes())
      bytes += loom::getByteSize(type);
    return bytes;
  }

  static bool isOfOneKind(AllReduceOp first, AllReduceOp second) {
    auto elementOf = [](AllReduceOp op) {
      return cast<RankedTensorType>(op.getInputs()[0].getType()).getElementType();
    };
    return first.getAxes() == second.getAxes() && first.getReduction() == second.getReduction() &&
           elementOf(first) == elementOf(second);
  }

  /// True when the values are small enough, and what waits for them waits no longer than if they
  /// travelled apart: the first has to wait for the operands of the second.
  bool isWorthwhile(AllReduceOp first, AllReduceOp second, const Timeline &timeline,
                    const Mesh &mesh) {
    int64_t firstBytes = bytesOf(first), secondBytes = bytesOf(second);
    if (firstBytes + secondBytes > threshold)
      return false;
    SmallVector<StringAttr> axes(first.getAxes().getAsRange<StringAttr>());
    auto travel = [&](int64_t bytes) {
      return mesh.getSeconds(cluster::Collective::AllReduce, static_cast<double>(bytes), axes);
    };
    double firstDue = timeline.getDeadline(first), secondDue = timeline.getDeadline(second);
    double firstReady = timeline.getReady(first);
    double bothReady = std::max(firstReady, timeline.getReady(second));
    double firstThere = firstReady + travel(firstBytes);
    double secondThere = std::max(bothReady, firstThere) + travel(secondBytes);
    double firstWait = std::max(0.0, firstThere - firstDue);
    double apart = firstWait + std::max(0.0, secondThere - (secondDue + firstWait));
    double bothThere = bothReady + travel(firstBytes + secondBytes);
    double together = std::max(0.0, bothThere - std::min(firstDue, secondDue));
    return together <= apart;
  }

  static AllReduceOp join(AllReduceOp first, AllReduceOp second) {
    OpBuilder builder(second);
    SmallVector<Value> inputs(first.getInputs());
    llvm::append_range(inputs, second.getInputs());
    SmallVector<StringAttr> axes(first.getAxes().getAsRange<StringAttr>());
    Location loc = builder.getFusedLoc({first.getLoc(), second.getLoc()});
    auto joined = AllReduceOp::create(builder, loc, inputs, axes, first.getReduction());
    joined->setDiscardableAttrs(first->getDiscardableAttrDictionary());
    addCause(joined, getCause(second));
    for (StringRef name : {kShardings, kOrigins}) {
      auto left = first->getAttrOfType<ArrayAttr>(name),
           right = second->getAttrOfType<ArrayAttr>(name);
      if (!left || !right)
        continue;
      SmallVector<Attribute> both(left.getValue());
      llvm::append_range(both, right);
      joined->setAttr(name, builder.getArrayAttr(both));
    }
    SmallVector<Value> old(first.getOutputs());
    llvm::append_range(old, second.getOutputs());
    for (auto [from, to] : llvm::zip_equal(old, joined.getOutputs()))
      from.replaceAllUsesWith(to);
    return joined;
  }
};
} // namespace
