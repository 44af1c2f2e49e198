//===- StateGroups.cpp - kernels that update states -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/StateGroups.h"

#include "dialects/loom/Control.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace gridloom {

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

void cutReductions(Block &block) {
  constexpr int64_t kLeast = 16; // rows, and elements of a row
  for (auto reduce : llvm::make_early_inc_range(block.getOps<loom::ReduceOp>())) {
    RankedTensorType type = typeOf(reduce.getInput());
    int64_t rank = type.getRank();
    if (rank < 2 || static_cast<int64_t>(reduce.getDims().size()) != rank)
      continue;
    int64_t row = type.getShape().back();
    if (row < kLeast || type.getNumElements() / row < kLeast)
      continue;
    OpBuilder builder(reduce);
    auto create = [&](Value input, ArrayRef<int64_t> dims) {
      RankedTensorType from = typeOf(input);
      auto shape = from.getShape().drop_back(dims.size());
      auto made = loom::ReduceOp::create(builder, reduce.getLoc(), type.clone(shape), input,
                                         reduce.getKind(), dims);
      made->setDiscardableAttrs(reduce->getDiscardableAttrDictionary());
      return made.getOutput();
    };
    SmallVector<int64_t> others = llvm::to_vector(llvm::seq<int64_t>(0, rank - 1));
    reduce.getOutput().replaceAllUsesWith(create(create(reduce.getInput(), {rank - 1}), others));
    reduce.erase();
  }
}

//===----------------------------------------------------------------------===//
// Updates of states
//===----------------------------------------------------------------------===//

/// True for groups that compute each element of their result on its own.
static bool isElementwise(const FusionGroup &group) {
  bool computes = false;
  for (Operation *op : group.ops) {
    FusionKind kind = getFusionKind(op);
    if (kind != FusionKind::Elementwise && kind != FusionKind::Generator)
      return false;
    computes |= kind == FusionKind::Elementwise;
  }
  return computes;
}

/// Tensors of the group's shape that it reads, and its result.
static void collectTensors(const FusionGroup &group, llvm::SmallSetVector<Value, 8> &tensors) {
  ArrayRef<int64_t> shape = typeOf(group.root->getResult(0)).getShape();
  tensors.insert(group.root->getResult(0));
  for (Operation *op : group.ops)
    for (Value operand : op->getOperands())
      if (!group.ops.contains(operand.getDefiningOp()) && typeOf(operand).getShape() == shape)
        tensors.insert(operand);
}

namespace {

/// Groups that become one kernel.
struct Cluster {
  SmallVector<size_t> members; // that give outputs, in the order of their roots
  SmallVector<size_t> feeders;
  llvm::SmallSetVector<Value, 8> tensors; // of one shape, which they read or give
  llvm::DenseSet<Operation *> ops;

  void add(const FusionGroup &group) {
    collectTensors(group, tensors);
    ops.insert(group.ops.begin(), group.ops.end());
  }
};

class UpdateJoiner {
public:
  UpdateJoiner(Block &block, std::vector<FusionGroup> &groups) : block(block), groups(groups) {}
  void run();

private:
  bool isUpdate(const FusionGroup &group) const;
  void addTo(size_t index);
  void addFeeders(Cluster &cluster);
  FusionGroup join(const Cluster &cluster) const;

  Block &block;
  std::vector<FusionGroup> &groups;
  std::vector<Cluster> clusters;
  llvm::DenseMap<Operation *, ArrayRef<int64_t>> updates; ///< operations of updates: their shape
};

} // namespace

/// True when nothing but the function's caller, as the next value of a state, and other updates of
/// its shape read the result.
bool UpdateJoiner::isUpdate(const FusionGroup &group) const {
  auto function = cast<func::FuncOp>(block.getParentOp());
  ArrayRef<int64_t> shape = typeOf(group.root->getResult(0)).getShape();
  return isElementwise(group) && typeOf(group.root->getResult(0)).getNumElements() > 1 &&
         llvm::all_of(group.root->getUses(), [&](OpOperand &use) {
           if (use.getOwner() == block.getTerminator())
             return function.getResultAttr(use.getOperandNumber(), loom::kState) != nullptr;
           auto reader = updates.find(use.getOwner());
           return reader != updates.end() && reader->second == shape;
         });
}

/// Makes one cluster of an update and those that share a tensor with it.
void UpdateJoiner::addTo(size_t index) {
  ArrayRef<int64_t> shape = typeOf(groups[index].root->getResult(0)).getShape();
  Cluster joined;
  joined.add(groups[index]);
  llvm::erase_if(clusters, [&](const Cluster &cluster) {
    bool shares =
        typeOf(groups[cluster.members.front()].root->getResult(0)).getShape() == shape &&
        llvm::any_of(cluster.tensors, [&](Value value) { return joined.tensors.contains(value); });
    if (shares)
      for (size_t member : cluster.members) {
        joined.members.push_back(member);
        joined.add(groups[member]);
      }
    return shares;
  });
  joined.members.push_back(index);
  llvm::sort(joined.members);
  clusters.push_back(std::move(joined));
}

/// Adds groups that only this cluster reads. Those before them may then be such groups as well.
void UpdateJoiner::addFeeders(Cluster &cluster) {
  ArrayRef<int64_t> shape = typeOf(groups[cluster.members.front()].root->getResult(0)).getShape();
  for (size_t index = cluster.members.back(); index-- > 0;) {
    const FusionGroup &group = groups[index];
    if (llvm::is_contained(cluster.members, index) || !isElementwise(group) ||
        typeOf(group.root->getResult(0)).getShape() != shape ||
        !llvm::all_of(group.root->getUsers(),
                      [&](Operation *user) { return cluster.ops.contains(user); }))
      continue;
    cluster.feeders.push_back(index);
    cluster.add(group);
  }
}

FusionGroup UpdateJoiner::join(const Cluster &cluster) const {
  FusionGroup joined{groups[cluster.members.back()].root, {}, {}};
  for (size_t index : ArrayRef(cluster.members).drop_back())
    joined.others.push_back(groups[index].root);
  for (size_t index : llvm::concat<const size_t>(cluster.members, cluster.feeders))
    joined.ops.insert(groups[index].ops.begin(), groups[index].ops.end());
  return joined;
}

void UpdateJoiner::run() {
  for (size_t index = groups.size(); index-- > 0;) {
    if (!isUpdate(groups[index]))
      continue;
    for (Operation *op : groups[index].ops)
      updates[op] = typeOf(groups[index].root->getResult(0)).getShape();
    addTo(index);
  }
  llvm::DenseSet<size_t> joined;
  for (Cluster &cluster : clusters) {
    addFeeders(cluster);
    groups[cluster.members.back()] = join(cluster);
    joined.insert(cluster.members.begin(), cluster.members.end() - 1);
    joined.insert(cluster.feeders.begin(), cluster.feeders.end());
  }
  size_t number = 0;
  llvm::erase_if(groups, [&](const FusionGroup &) { return joined.contains(number++); });
}

void joinStateUpdates(Block &block, std::vector<FusionGroup> &groups) {
  if (isa<func::FuncOp>(block.getParentOp()))
    UpdateJoiner(block, groups).run();
}

} // namespace gridloom
