//===- BucketShards.cpp - shards of several values in one message ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Buckets.h"

#include "dialects/dist/Sharding.h"
#include "dialects/loom/Padding.h"
#include "dialects/loom/Training.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_BUCKETSHARDS
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
/// A reduce_scatter of a gradient, or an all_gather of an updated weight, over dimension 0.
struct Member {
  Operation *op;
  /// Operations that rearrange or pad the operand for it alone, in program order.
  SmallVector<Operation *> prelude;
  Operation *maker = nullptr; ///< last operation that the prelude reads from; null for arguments
  StringAttr sum;             ///< the parameter, for the gradient of a part of the batch; else null

  Value getInput() const { return op->getOperand(0); }
  Value getOutput() const { return op->getResult(0); }
  /// Bytes of the whole value.
  int64_t getBytes() const {
    return std::max(loom::getByteSize(getInput().getType()),
                    loom::getByteSize(getOutput().getType()));
  }
};

/// Whether an operation moves the elements of one value, or pads it.
bool isMove(Operation *op) {
  if (auto join = dyn_cast<loom::ConcatenateOp>(op))
    return static_cast<bool>(loom::getPadded(join));
  return isa<loom::ReshapeOp, loom::TransposeOp, loom::SliceOp>(op);
}

/// Finds the operations that prepare the operand of the collective and nothing else.
void findPrelude(Member &member) {
  SmallVector<Value> open{member.getInput()};
  while (!open.empty()) {
    Value value = open.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op)
      continue;
    if ((isMove(op) || isa<loom::ConstantOp>(op)) && value.hasOneUse()) {
      member.prelude.push_back(op);
      llvm::append_range(open, op->getOperands());
    } else if (isLater(op, member.maker)) {
      member.maker = op;
    }
  }
  llvm::sort(member.prelude, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
}

/// The parameter to whose sum of gradients the value is added; null if there is none.
StringAttr findSum(Value value) {
  while (value.hasOneUse()) {
    Operation *user = *value.getUsers().begin();
    if (auto name = user->getAttrOfType<StringAttr>(loom::kAccumulates))
      return name;
    if (user->getNumResults() != 1 || (!isMove(user) && !isa<AllReduceOp>(user)))
      break;
    value = user->getResult(0);
  }
  return {};
}

/// Whether the value, possibly rearranged, is returned to the caller and not read otherwise.
bool isOnlyReturned(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isa<func::ReturnOp>(user) || (isMove(user) && isOnlyReturned(user->getResult(0)));
  });
}

/// Visits the operations that rearrange a value, and those that rearrange their results.
void forEachMove(Value value, llvm::function_ref<void(Operation *)> visit) {
  for (Operation *user : value.getUsers())
    if (isMove(user)) {
      visit(user);
      forEachMove(user->getResult(0), visit);
    }
}

/// Members of one kind: they travel over one group, in one type, by one reduction.
using Kind = std::tuple<int, Attribute, Attribute, Type>;

Kind getKind(Operation *op) {
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  return {isa<AllGatherOp>(op), op->getAttr("axes"), op->getAttr("reduction"),
          type.getElementType()};
}

bool isCandidate(Operation *op) {
  if (op->hasAttr(kChunk) || !isa<ReduceScatterOp, AllGatherOp>(op))
    return false;
  uint64_t dim =
      isa<AllGatherOp>(op) ? cast<AllGatherOp>(op).getDim() : cast<ReduceScatterOp>(op).getDim();
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  return dim == 0 && type.getNumElements() > 0 &&
         (isa<ReduceScatterOp>(op) || isOnlyReturned(op->getResult(0)));
}

/// Removes members that another one of their kind depends on: they are no gradients.
void removeAwaited(Block &block, SmallVector<Member> &members) {
  llvm::DenseSet<Operation *> own, awaited;
  for (const Member &member : members)
    own.insert(member.op);
  for (Operation &op : llvm::reverse(block))
    if (llvm::any_of(op.getUsers(),
                     [&](Operation *user) { return own.contains(user) || awaited.contains(user); }))
      awaited.insert(&op);
  llvm::erase_if(members, [&](const Member &member) { return awaited.contains(member.op); });
}

/// Whether a message of its own costs less than copying the whole value into a joint one, or out of
/// it.
bool isBetterAlone(const Member &member, const Mesh &mesh) {
  SmallVector<StringAttr> axes(
      member.op->getAttrOfType<ArrayAttr>("axes").getAsRange<StringAttr>());
  auto kind = isa<AllGatherOp>(member.op) ? cluster::Collective::AllGather
                                          : cluster::Collective::ReduceScatter;
  cluster::Work copy;
  copy.readBytes = copy.writtenBytes = static_cast<double>(member.getBytes());
  return mesh.getSeconds(kind, /*bytes=*/1, axes) <
         cluster::getComputeSeconds(mesh.getMachine(), copy);
}

/// Makes one message of several members.
class Joiner {
public:
  explicit Joiner(ArrayRef<Member> members) : members(members), builder(members[0].op) {}

  void run() {
    place();
    SmallVector<Location> locations;
    for (const Member &member : members)
      locations.push_back(member.op->getLoc());
    loc = builder.getFusedLoc(locations);
    bool gathers = isa<AllGatherOp>(members.front().op);
    Operation *joined = gathers ? gather() : scatter();
    for (const Member &member : members)
      addCause(joined, getCause(member.op));
    nameBucket(joined, members.size());
    sinkMoves(joined);
    for (const Member &member : members)
      member.op->erase();
  }

private:
  /// Moves the operations that only rearrange a member's result behind the message.
  void sinkMoves(Operation *joined) {
    for (Value part : parts) {
      SmallVector<Operation *> moves;
      forEachMove(part, [&](Operation *move) {
        if (move->isBeforeInBlock(joined))
          moves.push_back(move);
      });
      llvm::sort(moves, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
      for (Operation *move : moves)
        move->moveBefore(builder.getInsertionBlock(), builder.getInsertionPoint());
    }
  }
  /// Places the builder after the last operand, and the preparation of operands before it.
  void place() {
    Operation *last = nullptr;
    for (const Member &member : members)
      if (isLater(member.maker, last))
        last = member.maker;
    for (const Member &member : members)
      for (Operation *op : member.prelude) {
        if (last)
          op->moveAfter(last);
        else
          op->moveBefore(&op->getBlock()->front());
        last = op;
      }
    if (last)
      builder.setInsertionPointAfter(last);
    else
      builder.setInsertionPointToStart(members.front().op->getBlock());
  }
  RankedTensorType getType(ArrayRef<int64_t> shape) const {
    auto type = cast<RankedTensorType>(members.front().getInput().getType());
    return RankedTensorType::get(shape, type.getElementType());
  }
  static int64_t count(Value value) {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  }
  Value reshape(Location at, Value value, ArrayRef<int64_t> shape) {
    return loom::ReshapeOp::create(builder, at, getType(shape), value);
  }
  Value concatenate(ArrayRef<Value> values, ArrayRef<int64_t> shape, int64_t dim) {
    return loom::ConcatenateOp::create(builder, loc, getType(shape), values, dim);
  }
  /// Replaces members' results by their elements of the message, [elements] or [ranks, elements].
  void spread(Value message) {
    auto type = cast<RankedTensorType>(message.getType());
    int64_t begin = 0;
    for (const Member &member : members) {
      SmallVector<int64_t> starts(type.getRank(), 0), strides(type.getRank(), 1);
      SmallVector<int64_t> limits(type.getShape()), shape(type.getShape());
      shape.back() = count(member.getOutput()) / (type.getRank() == 1 ? 1 : shape.front());
      starts.back() = begin;
      limits.back() = begin += shape.back();
      Location at = member.op->getLoc();
      Value part =
          loom::SliceOp::create(builder, at, getType(shape), message, starts, limits, strides);
      auto result = cast<RankedTensorType>(member.getOutput().getType());
      if (result != part.getType())
        part = reshape(at, part, result.getShape());
      if (Attribute shardings = member.op->getAttr(kShardings))
        part.getDefiningOp()->setAttr(kShardings, shardings);
      member.getOutput().replaceAllUsesWith(part);
      parts.push_back(part);
    }
  }
  /// The message holds rank by rank the shards that the rank gets of all members.
  Operation *scatter() {
    auto first = cast<ReduceScatterOp>(members.front().op);
    int64_t ranks = count(first.getInput()) / count(first.getOutput()), elements = 0;
    SmallVector<Value> inputs;
    for (const Member &member : members) {
      inputs.push_back(
          reshape(member.op->getLoc(), member.getInput(), {ranks, count(member.getOutput())}));
      elements += count(member.getOutput());
    }
    Value message = reshape(loc, concatenate(inputs, {ranks, elements}, 1), {ranks * elements});
    auto joined =
        ReduceScatterOp::create(builder, loc, getType({elements}), message, first.getAxes(),
                                first.getDimAttr(), first.getReductionAttr());
    spread(joined.getOutput());
    return joined;
  }
  Operation *gather() {
    auto first = cast<AllGatherOp>(members.front().op);
    int64_t ranks = count(first.getOutput()) / count(first.getInput()), elements = 0;
    SmallVector<Value> inputs;
    for (const Member &member : members) {
      inputs.push_back(reshape(member.op->getLoc(), member.getInput(), {count(member.getInput())}));
      elements += count(member.getInput());
    }
    auto joined = AllGatherOp::create(builder, loc, getType({ranks * elements}),
                                      concatenate(inputs, {elements}, 0), first.getAxes(),
                                      first.getDimAttr());
    spread(reshape(loc, joined.getOutput(), {ranks, elements}));
    return joined;
  }

  ArrayRef<Member> members;
  SmallVector<Value> parts; ///< members' results
  OpBuilder builder;
  Location loc = builder.getUnknownLoc();
};

/// Collects members until they have `size` bytes, then joins them.
class Bucket {
public:
  Bucket(int64_t size, const Mesh &mesh) : size(size), mesh(mesh) {}

  void add(Member member) {
    if (member.getBytes() >= size || isBetterAlone(member, mesh))
      return;
    Operation *used = findUser(member.op);
    // A bucket holds gradients of one part of the batch: parts do not wait for each other.
    if (sums.contains(member.sum) || !place.take(member.maker, used)) {
      send();
      place.take(member.maker, used);
    }
    if (member.sum)
      sums.insert(member.sum);
    bytes += member.getBytes();
    members.push_back(std::move(member));
    if (bytes >= size)
      send();
  }

  void send() {
    if (members.size() > 1)
      Joiner(members).run();
    members.clear();
    sums.clear();
    bytes = 0;
    place = {};
  }

private:
  /// The first operation that does more with the result than rearrange it.
  static Operation *findUser(Operation *op) {
    Operation *first = op->getBlock()->getTerminator();
    auto visit = [&](Value value) {
      for (Operation *user : value.getUsers())
        if (!isMove(user) && user->isBeforeInBlock(first))
          first = user;
    };
    visit(op->getResult(0));
    forEachMove(op->getResult(0), [&](Operation *move) { visit(move->getResult(0)); });
    return first;
  }

  int64_t size, bytes = 0;
  const Mesh &mesh;
  SmallVector<Member> members;
  llvm::DenseSet<StringAttr> sums;
  BucketPlace place;
};

struct BucketShardsPass : public gridloom::impl::BucketShardsBase<BucketShardsPass> {
  using BucketShardsBase::BucketShardsBase;

  void runOnOperation() override {
    if (!loom::isTrainStep(getOperation()) || bucketSize <= 0)
      return;
    Mesh mesh = Mesh::get(getOperation()->getParentOfType<ModuleOp>());
    for (Block &block : getOperation().getBody()) {
      llvm::MapVector<Kind, SmallVector<Member>> kinds;
      for (Operation &op : block)
        if (isCandidate(&op))
          kinds[getKind(&op)].push_back({&op, {}, nullptr, {}});
      for (auto &[kind, members] : kinds) {
        removeAwaited(block, members);
        for (Member &member : members) {
          findPrelude(member);
          if (isa<ReduceScatterOp>(member.op))
            member.sum = findSum(member.getOutput());
        }
        llvm::stable_sort(members, [](const Member &a, const Member &b) {
          return a.maker != b.maker && isLater(b.maker, a.maker);
        });
        Bucket bucket(bucketSize, mesh);
        for (Member &member : members)
          bucket.add(std::move(member));
        bucket.send();
      }
    }
  }
};
} // namespace
