//===- CombineCollectives.cpp - combine small all_reduces -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Buckets.h"

#include "dialects/loom/Training.h"
#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_COMBINECOLLECTIVES
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
/// The time at which a block's operations start if nothing waits, in seconds.
class Timeline {
public:
  Timeline(Block &block, const cluster::Machine &machine) {
    for (Operation &op : block) {
      start[&op] = end;
      if (!isCommunication(&op))
        end += loom::getComputeSeconds(&op, machine);
    }
  }
  /// When the operands are there; results of communication count from when it starts.
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
  double getStart(Operation *op) const { return start.lookup(op); }
  void setStart(Operation *op, double seconds) { start[op] = seconds; }

private:
  double getEnd(Operation *op) const {
    Operation *next = op->getNextNode();
    return next && !isCommunication(op) ? start.lookup(next) : start.lookup(op);
  }

  llvm::DenseMap<Operation *, double> start;
  double end = 0;
};

int64_t bytesOf(AllReduceOp op) {
  int64_t bytes = 0;
  for (Type type : op.getInputs().getTypes())
    bytes += loom::getByteSize(type);
  return bytes;
}

bool isOfOneKind(AllReduceOp first, AllReduceOp second) {
  auto elementOf = [](AllReduceOp op) {
    return cast<RankedTensorType>(op.getInputs()[0].getType()).getElementType();
  };
  return first.getAxes() == second.getAxes() && first.getReduction() == second.getReduction() &&
         elementOf(first) == elementOf(second);
}

/// Joins all_reduces of one kind, in this order, at the builder's place.
AllReduceOp join(OpBuilder &builder, ArrayRef<AllReduceOp> parts) {
  SmallVector<Value> inputs, old;
  SmallVector<Location> locations;
  for (AllReduceOp part : parts) {
    llvm::append_range(inputs, part.getInputs());
    llvm::append_range(old, part.getOutputs());
    locations.push_back(part.getLoc());
  }
  AllReduceOp first = parts.front();
  SmallVector<StringAttr> axes(first.getAxes().getAsRange<StringAttr>());
  auto joined = AllReduceOp::create(builder, builder.getFusedLoc(locations), inputs, axes,
                                    first.getReduction());
  joined->setDiscardableAttrs(first->getDiscardableAttrDictionary());
  for (AllReduceOp part : parts)
    addCause(joined, getCause(part));
  for (StringRef name : {kShardings, kOrigins}) {
    SmallVector<Attribute> all;
    for (AllReduceOp part : parts)
      if (auto own = part->getAttrOfType<ArrayAttr>(name))
        llvm::append_range(all, own);
    joined->removeAttr(name);
    if (all.size() == inputs.size())
      joined->setAttr(name, builder.getArrayAttr(all));
  }
  for (auto [from, to] : llvm::zip_equal(old, joined.getOutputs()))
    from.replaceAllUsesWith(to);
  for (AllReduceOp part : parts)
    part.erase();
  return joined;
}

/// The gradients of a training step: reductions that no other one of their kind depends on, in the
/// order in which their operands are ready.
class Gradients {
public:
  Gradients(Block &block, const cluster::Machine &machine) {
    measurePaths(block, machine);
    findKinds(block);
    llvm::DenseMap<Operation *, uint64_t> awaited = findAwaited(block);
    for (auto [kind, members] : llvm::enumerate(kinds)) {
      llvm::erase_if(members, [&](AllReduceOp op) { return awaited.lookup(op) >> kind & 1; });
      llvm::stable_sort(members,
                        [&](AllReduceOp a, AllReduceOp b) { return getReady(a) < getReady(b); });
    }
  }

  /// The gradients of each group, type and reduction.
  ArrayRef<SmallVector<AllReduceOp>> getKinds() const { return kinds; }

private:
  static constexpr size_t kMostKinds = 64;

  /// Sets when each operation ends if all run as soon as they can.
  void measurePaths(Block &block, const cluster::Machine &machine) {
    for (Operation &op : block) {
      double begin = getReady(&op);
      over[&op] = begin + (isCommunication(&op) ? 0 : loom::getComputeSeconds(&op, machine));
    }
  }
  double getReady(Operation *op) const {
    double ready = 0;
    for (Value operand : op->getOperands())
      ready = std::max(ready, over.lookup(operand.getDefiningOp()));
    return ready;
  }
  void findKinds(Block &block) {
    for (auto op : block.getOps<AllReduceOp>()) {
      if (op->hasAttr(kChunk) || op.getInputs().size() != 1)
        continue;
      auto *kind = llvm::find_if(
          kinds, [&](ArrayRef<AllReduceOp> members) { return isOfOneKind(members.front(), op); });
      if (kind != kinds.end())
        kind->push_back(op);
      else if (kinds.size() < kMostKinds)
        kinds.push_back({op});
    }
  }
  /// For each operation the kinds, as bits, that have a reduction of more than a scalar which
  /// depends on its results.
  llvm::DenseMap<Operation *, uint64_t> findAwaited(Block &block) const {
    llvm::DenseMap<Operation *, uint64_t> own, awaited;
    for (auto [kind, members] : llvm::enumerate(kinds))
      for (AllReduceOp op : members)
        if (cast<RankedTensorType>(op.getInputs()[0].getType()).getNumElements() > 1)
          own[op] = uint64_t(1) << kind;
    for (Operation &op : llvm::reverse(block)) {
      uint64_t bits = 0;
      for (Operation *user : op.getUsers())
        bits |= own.lookup(user) | awaited.lookup(user);
      awaited[&op] = bits;
    }
    return awaited;
  }

  llvm::DenseMap<Operation *, double> over;
  SmallVector<SmallVector<AllReduceOp>> kinds;
};

/// Collects gradients until they have `size` bytes, then joins them.
class Bucket {
public:
  /// Adds all all_reduces that are complete to `sent`.
  Bucket(int64_t size, llvm::DenseSet<Operation *> &sent) : size(size), sent(sent) {}

  void add(AllReduceOp op) {
    if (bytesOf(op) >= size) {
      sent.insert(op);
      return;
    }
    Operation *made = op.getInputs()[0].getDefiningOp(), *used = findUser(op);
    if (!place.take(made, used)) {
      send();
      place.take(made, used);
    }
    members.push_back(op);
    bytes += bytesOf(op);
    if (bytes >= size)
      send();
  }

  void send() {
    if (members.size() > 1) {
      OpBuilder builder(members.front());
      if (Operation *last = place.getLast())
        builder.setInsertionPointAfter(last);
      else
        builder.setInsertionPointToStart(members.front()->getBlock());
      AllReduceOp joined = join(builder, members);
      nameBucket(joined, members.size());
      members = {joined};
    }
    sent.insert(members.begin(), members.end());
    members.clear();
    bytes = 0;
    place = {};
  }

private:
  static Operation *findUser(AllReduceOp op) {
    Operation *first = op->getBlock()->getTerminator();
    for (Operation *user : op->getUsers())
      if (user->isBeforeInBlock(first))
        first = user;
    return first;
  }

  int64_t size, bytes = 0;
  llvm::DenseSet<Operation *> &sent;
  SmallVector<AllReduceOp> members;
  BucketPlace place;
};

struct CombineCollectivesPass
    : public gridloom::impl::CombineCollectivesBase<CombineCollectivesPass> {
  using CombineCollectivesBase::CombineCollectivesBase;

  void runOnOperation() override {
    Mesh mesh = Mesh::get(getOperation()->getParentOfType<ModuleOp>());
    bool hasBuckets = loom::isTrainStep(getOperation()) && bucketSize > 0;
    for (Block &block : getOperation().getBody()) {
      llvm::DenseSet<Operation *> decided;
      if (hasBuckets)
        decided = fillBuckets(block, mesh.getMachine());
      Timeline timeline(block, mesh.getMachine());
      SmallVector<AllReduceOp> pending; // one of each kind
      for (Operation &op : llvm::make_early_inc_range(block)) {
        // A use of a pending result means that it cannot wait any longer.
        llvm::erase_if(pending, [&](AllReduceOp waiting) {
          return llvm::is_contained(waiting->getUsers(), &op);
        });
        auto next = dyn_cast<AllReduceOp>(op);
        if (!next || next->hasAttr(kChunk) || decided.contains(next))
          continue;
        auto *first =
            llvm::find_if(pending, [&](AllReduceOp waiting) { return isOfOneKind(waiting, next); });
        if (first == pending.end()) {
          pending.push_back(next);
        } else if (!isWorthwhile(*first, next, timeline, mesh)) {
          *first = next;
        } else {
          OpBuilder builder(next);
          double start = timeline.getStart(next);
          *first = join(builder, {*first, next});
          timeline.setStart(*first, start);
        }
      }
    }
  }

private:
  /// Joins gradients; returns the all_reduces that hold them.
  llvm::DenseSet<Operation *> fillBuckets(Block &block, const cluster::Machine &machine) {
    llvm::DenseSet<Operation *> sent;
    Gradients gradients(block, machine);
    for (ArrayRef<AllReduceOp> kind : gradients.getKinds()) {
      Bucket bucket(bucketSize, sent);
      for (AllReduceOp op : kind)
        bucket.add(op);
      bucket.send();
    }
    return sent;
  }

  /// Whether the values are small enough, and their readers wait no longer than if they were sent
  /// apart: the first has to wait for the operands of the second.
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
};
} // namespace
