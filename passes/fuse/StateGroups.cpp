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
  constexpr int64_t kLeast = 16; // fewest rows, and elements of a row
  for (auto reduce : llvm::make_early_inc_range(block.getOps<loom::ReduceOp>())) {
    RankedTensorType type = typeOf(reduce.getInput());
    int64_t rank = type.getRank();
    if (rank < 2 || static_cast<int64_t>(reduce.getDims().size()) != rank)
      continue;
    int64_t row = type.getShape().back();
    if (row < kLeast || type.getNumElements() / row < kLeast)
      continue;
    OpBuilder builder(reduce);
    auto keepAttributes = [&](Operation *op) {
      op->setDiscardableAttrs(reduce->getDiscardableAttrDictionary());
      return op->getResult(0);
    };
    auto create = [&](Value input, ArrayRef<int64_t> dims) {
      RankedTensorType from = typeOf(input);
      auto shape = from.getShape().drop_back(dims.size());
      return keepAttributes(loom::ReduceOp::create(builder, reduce.getLoc(), from.clone(shape),
                                                   input, reduce.getKind(), dims));
    };
    auto convert = [&](Value input, Type element) {
      return keepAttributes(
          loom::ConvertOp::create(builder, reduce.getLoc(), typeOf(input).clone(element), input));
    };
    // A row's sum may be too large for 16 bits where the whole is not.
    bool isNarrow = isa<FloatType>(type.getElementType()) && type.getElementTypeBitWidth() < 32;
    Value input = reduce.getInput();
    if (isNarrow)
      input = convert(input, builder.getF32Type());
    SmallVector<int64_t> others = llvm::to_vector(llvm::seq<int64_t>(0, rank - 1));
    Value whole = create(create(input, {rank - 1}), others);
    if (isNarrow)
      whole = convert(whole, type.getElementType());
    reduce.getOutput().replaceAllUsesWith(whole);
    reduce.erase();
  }
}

//===----------------------------------------------------------------------===//
// Sums with scatters
//===----------------------------------------------------------------------===//

/// The scatter that adds into zeros, if `value` is one and has no other reader; else null.
static loom::ScatterOp matchScatterIntoZeros(Value value) {
  auto scatter = value.getDefiningOp<loom::ScatterOp>();
  if (!scatter || !scatter->hasOneUse() || scatter.getReduction() != dist::ReductionKind::Sum)
    return {};
  auto zeros = scatter.getInput().getDefiningOp<loom::ConstantOp>();
  auto splat = zeros ? dyn_cast<SplatElementsAttr>(zeros.getValue()) : SplatElementsAttr();
  bool isZero =
      splat && isa<FloatType>(splat.getElementType()) && splat.getSplatValue<APFloat>().isPosZero();
  return isZero ? scatter : loom::ScatterOp();
}

void scatterIntoSums(Block &block) {
  for (auto sum : llvm::make_early_inc_range(block.getOps<loom::AddOp>()))
    for (auto [scattered, other] :
         {std::pair(sum.getLhs(), sum.getRhs()), std::pair(sum.getRhs(), sum.getLhs())}) {
      loom::ScatterOp scatter = matchScatterIntoZeros(scattered);
      if (!scatter)
        continue;
      scatter->moveBefore(sum);
      scatter.getInputMutable().assign(other);
      sum.getResult().replaceAllUsesWith(scatter.getResult());
      sum.erase();
      break;
    }
}

//===----------------------------------------------------------------------===//
// Updates of states
//===----------------------------------------------------------------------===//

/// True for groups that compute each element of their result independently. One that `gathers` may
/// read a device's part of a value.
static bool isElementwise(const FusionGroup &group, bool gathers = false) {
  bool computes = false;
  for (Operation *op : group.ops) {
    FusionKind kind = getFusionKind(op);
    if (kind != FusionKind::Elementwise && kind != FusionKind::Generator &&
        !(gathers && kind == FusionKind::Gather))
      return false;
    computes |= kind == FusionKind::Elementwise;
  }
  return computes;
}

/// Adds the tensors of the group's shape that it reads, and its result.
static void collectTensors(const FusionGroup &group, llvm::SmallSetVector<Value, 8> &tensors) {
  ArrayRef<int64_t> shape = typeOf(group.root->getResult(0)).getShape();
  tensors.insert(group.root->getResult(0));
  for (Operation *op : group.ops)
    for (Value operand : op->getOperands())
      if (!group.ops.contains(operand.getDefiningOp()) && typeOf(operand).getShape() == shape)
        tensors.insert(operand);
}

/// The number of values that the group's kernel reads and writes.
static size_t countValues(const FusionGroup &group) {
  llvm::SmallDenseSet<Value> inputs;
  for (Operation *op : group.ops)
    for (Value operand : op->getOperands())
      if (!group.ops.contains(operand.getDefiningOp()))
        inputs.insert(operand);
  return inputs.size() + group.others.size() + 1;
}

namespace {

/// Updates that only read the same tensor share a kernel up to this many tensors of their shape;
/// more would need too many registers.
constexpr size_t kMostTensors = 32;

/// Groups that become one kernel.
struct Cluster {
  SmallVector<size_t> members; // updates, in the order of their roots
  SmallVector<size_t> feeders;
  llvm::SmallSetVector<Value, 8> tensors; // of one shape, read or computed by the members

  void add(const FusionGroup &group) { collectTensors(group, tensors); }
  bool contains(size_t index) const {
    return llvm::is_contained(members, index) || llvm::is_contained(feeders, index);
  }
};

class UpdateJoiner {
public:
  UpdateJoiner(Block &block, std::vector<FusionGroup> &groups) : block(block), groups(groups) {
    for (auto [index, group] : llvm::enumerate(groups))
      for (Operation *op : group.ops)
        owners[op].push_back(index);
  }
  void run();

private:
  /// True if `user` is in groups, and `isReader` holds for all of them; a repeated operation is in
  /// several.
  bool isReadOnlyBy(Operation *user, llvm::function_ref<bool(size_t)> isReader) const {
    auto found = owners.find(user);
    return found != owners.end() && llvm::all_of(found->second, isReader);
  }
  /// True if only groups of the cluster read the result.
  bool isReadOnlyIn(const Cluster &cluster, const FusionGroup &group) const {
    return llvm::all_of(group.root->getUsers(), [&](Operation *user) {
      return isReadOnlyBy(user, [&](size_t reader) { return cluster.contains(reader); });
    });
  }
  bool isUpdate(const FusionGroup &group) const;
  bool isSent(Operation *user) const;
  void addTo(size_t index);
  void addFeeders(Cluster &cluster);
  FusionGroup join(const Cluster &cluster) const;

  Block &block;
  std::vector<FusionGroup> &groups;
  std::vector<Cluster> clusters;
  /// The groups that contain an operation.
  llvm::DenseMap<Operation *, SmallVector<size_t, 2>> owners;
  /// Groups that are updates, with their shapes.
  llvm::DenseMap<size_t, ArrayRef<int64_t>> updates;
  Operation *last = nullptr; ///< root of the last update
};

} // namespace

/// True for communication after all updates, such as the gather of a parameter whose moments are
/// split.
bool UpdateJoiner::isSent(Operation *user) const {
  Operation *start = block.findAncestorOpInBlock(*user);
  return isa_and_nonnull<dist::StartOp>(start) && (!last || last->isBeforeInBlock(start));
}

/// True if the result is only returned as the next value of a state, sent after all updates, or
/// read by other updates of its shape.
bool UpdateJoiner::isUpdate(const FusionGroup &group) const {
  auto function = cast<func::FuncOp>(block.getParentOp());
  ArrayRef<int64_t> shape = typeOf(group.root->getResult(0)).getShape();
  bool sends = llvm::any_of(group.root->getUsers(), [&](Operation *user) { return isSent(user); });
  return isElementwise(group, sends) && typeOf(group.root->getResult(0)).getNumElements() > 1 &&
         llvm::all_of(group.root->getUses(), [&](OpOperand &use) {
           if (use.getOwner() == block.getTerminator())
             return function.getResultAttr(use.getOperandNumber(), loom::kState) != nullptr;
           return isSent(use.getOwner()) || isReadOnlyBy(use.getOwner(), [&](size_t reader) {
                    auto update = updates.find(reader);
                    return update != updates.end() && update->second == shape;
                  });
         });
}

/// Adds an update to a cluster, merging all clusters that share a tensor with it, also large ones
/// if they read its result: what depends on each other is in one cluster.
void UpdateJoiner::addTo(size_t index) {
  ArrayRef<int64_t> shape = typeOf(groups[index].root->getResult(0)).getShape();
  Cluster joined;
  joined.add(groups[index]);
  llvm::erase_if(clusters, [&](const Cluster &cluster) {
    bool shares =
        typeOf(groups[cluster.members.front()].root->getResult(0)).getShape() == shape &&
        llvm::any_of(cluster.tensors, [&](Value value) { return joined.tensors.contains(value); });
    if (shares && !cluster.tensors.contains(groups[index].root->getResult(0)))
      shares = joined.tensors.size() + cluster.tensors.size() <= kMostTensors;
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

/// Adds groups that only this cluster reads; groups that feed these may then qualify, too.
void UpdateJoiner::addFeeders(Cluster &cluster) {
  ArrayRef<int64_t> shape = typeOf(groups[cluster.members.front()].root->getResult(0)).getShape();
  for (size_t index = cluster.members.back(); index-- > 0;) {
    const FusionGroup &group = groups[index];
    if (llvm::is_contained(cluster.members, index) || !isElementwise(group) ||
        typeOf(group.root->getResult(0)).getShape() != shape || !isReadOnlyIn(cluster, group))
      continue;
    cluster.feeders.push_back(index);
    cluster.add(group);
  }
}

/// The kernel's outputs are the updates with other readers: an update that only the cluster reads,
/// such as a moment before the choice to keep it, stays in registers.
FusionGroup UpdateJoiner::join(const Cluster &cluster) const {
  FusionGroup joined{groups[cluster.members.back()].root, {}, {}};
  for (size_t index : ArrayRef(cluster.members).drop_back())
    if (!isReadOnlyIn(cluster, groups[index]))
      joined.others.push_back(groups[index].root);
  for (size_t index : llvm::concat<const size_t>(cluster.members, cluster.feeders))
    joined.ops.insert(groups[index].ops.begin(), groups[index].ops.end());
  return joined;
}

void UpdateJoiner::run() {
  for (size_t index = groups.size(); index-- > 0;) {
    if (!isUpdate(groups[index]))
      continue;
    updates[index] = typeOf(groups[index].root->getResult(0)).getShape();
    last = last ? last : groups[index].root;
    addTo(index);
  }
  llvm::DenseSet<size_t> joined;
  for (Cluster &cluster : clusters) {
    addFeeders(cluster);
    FusionGroup whole = join(cluster);
    if (countValues(whole) > kMostInputs)
      continue;
    groups[cluster.members.back()] = std::move(whole);
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
