//===- MergeMatmuls.cpp - merge products of one left operand --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/fuse/ExpandContractions.h"
#include "passes/fuse/FusionGroups.h"
#include "passes/fuse/StridedView.h"
#include "passes/layout/Passes.h"
#include "passes/simplify/Prologue.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_MERGEMATMULS
#include "passes/layout/Passes.h.inc"

namespace {

/// Products of other left operands that may come between two of a group: enough for the scores
/// between query, key and value. If products are further apart, the merged result would take memory
/// until its last part is used.
constexpr int kMaxBetween = 2;

/// A weight as the program reads it: different shards of one tensor are different weights.
using WeightKey = std::pair<StringAttr, Attribute>;

/// A product of a group, with its bias per column if it has one.
struct Part {
  loom::DotGeneralOp dot;
  loom::GetWeightOp weight, bias;
  loom::AddOp add; // of the bias
  int64_t shards = 1;
  int index = 0; // among the block's products

  Value getResult() { return add ? add.getOutput() : dot.getOutput(); }
  int64_t getColumnDim() { return 1 - dot.getRhsContract()[0]; }
  int64_t getColumns() { return weight.getType().getDimSize(getColumnDim()); }
};

using Group = SmallVector<Part>;

WeightKey getKey(loom::GetWeightOp op) {
  return {op.getNameAttr().getAttr(), op.getShardingAttr()};
}

/// The weights that are joined, in order, and the dimension; equal groups share a joined weight.
ArrayAttr getSignature(Group &group) {
  MLIRContext *context = group.front().dot.getContext();
  SmallVector<Attribute> list{Builder(context).getI64IntegerAttr(group.front().getColumnDim())};
  for (Part &part : group)
    for (loom::GetWeightOp op : {part.weight, part.bias}) {
      auto [name, sharding] = op ? getKey(op) : WeightKey();
      list.push_back(name ? Attribute(name) : UnitAttr::get(context));
      list.push_back(sharding ? sharding : UnitAttr::get(context));
    }
  return ArrayAttr::get(context, list);
}

/// The first weight of a group, or its first bias; null if it has none.
loom::GetWeightOp getSource(Group &group, bool ofBias) {
  for (Part &part : group)
    if (loom::GetWeightOp op = ofBias ? part.bias : part.weight)
      return op;
  return {};
}

dist::DimShardingAttr getDim(loom::GetWeightOp op, int64_t dim) {
  auto sharding = dyn_cast_or_null<dist::ShardingAttr>(op.getShardingAttr());
  return sharding && !sharding.getDims().empty() ? sharding.getDims()[dim]
                                                 : dist::DimShardingAttr();
}

ArrayRef<StringAttr> getAxes(loom::GetWeightOp op, int64_t dim) {
  dist::DimShardingAttr sharding = getDim(op, dim);
  return sharding ? sharding.getAxes() : ArrayRef<StringAttr>();
}

/// Whether every reader of `value` can read columns of a wider tensor instead, as products and
/// kernels can.
bool isReadInPlace(Value value) {
  return !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (isa<loom::DotGeneralOp>(user))
      return true;
    if (auto reshape = dyn_cast<loom::ReshapeOp>(user)) {
      // Strides of rows that are not contiguous.
      auto from = cast<RankedTensorType>(value.getType()).getShape();
      SmallVector<int64_t> strides = loom::getRowMajorStrides(from);
      for (int64_t &stride : MutableArrayRef(strides).drop_back())
        stride *= 2;
      auto to = cast<RankedTensorType>(reshape.getType()).getShape();
      return reshapeStrides(from, strides, to) && isReadInPlace(reshape.getOutput());
    }
    if (isa<loom::TransposeOp, loom::SliceOp>(user) && isReadInPlace(user->getResult(0)))
      return true;
    switch (getFusionKind(user)) {
    case FusionKind::Generator:
    case FusionKind::Elementwise:
    case FusionKind::RowWise:
    case FusionKind::RowReduce:
    case FusionKind::IndexMap:
    case FusionKind::Join:
      return true;
    default:
      return false;
    }
  });
}

struct MergeMatmuls : impl::MergeMatmulsBase<MergeMatmuls> {
  void runOnOperation() override {
    joined.clear();
    SymbolTable table(getOperation());
    symbols = &table;
    lastWeight = nullptr;
    for (Operation &op : *getOperation().getBody())
      if (isa<loom::WeightOp, loom::DerivedOp>(op))
        lastWeight = &op;
    std::vector<Group> groups;
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block &block : func.getBody())
        collect(block, groups);
    keepWholeWeights(groups);
    for (Group &group : groups)
      merge(group);
    eraseDeadOps(getOperation());
    eraseUnusedWeights(getOperation());
  }

  //===--------------------------------------------------------------------===//
  // Choice of products
  //===--------------------------------------------------------------------===//

  RankedTensorType getGlobalType(StringAttr name) { return getWholeType(symbols->lookup(name)); }

  /// The number of shards of dimension `dim` of a weight; 0 unless all have the same size.
  int64_t countShards(loom::GetWeightOp op, int64_t dim) {
    if (op.getShardingAttr() && !isa<dist::ShardingAttr>(op.getShardingAttr()))
      return 0;
    ArrayRef<StringAttr> axes = getAxes(op, dim);
    dist::MeshOp mesh = axes.empty() ? dist::MeshOp() : dist::getMesh(getOperation());
    int64_t shards = mesh ? dist::Mesh(mesh).getSize(axes) : 1;
    int64_t whole = getGlobalType(op.getNameAttr().getAttr()).getDimSize(dim);
    return op.getType().getDimSize(dim) * shards == whole ? shards : 0;
  }

  /// Matches a bias per column that is the product's only reader.
  void matchBias(Part &part) {
    Value result = part.dot.getOutput();
    auto add = result.hasOneUse() ? dyn_cast<loom::AddOp>(*result.getUsers().begin()) : nullptr;
    if (!add || add.getType() != part.dot.getType())
      return;
    Value other = add.getLhs() == result ? add.getRhs() : add.getLhs();
    auto broadcast = other.getDefiningOp<loom::BroadcastOp>();
    auto bias =
        broadcast ? broadcast.getInput().getDefiningOp<loom::GetWeightOp>() : loom::GetWeightOp();
    int64_t last = part.dot.getType().getRank() - 1;
    if (!bias || broadcast.getDims() != ArrayRef<int64_t>{last} ||
        bias.getType().getDimSize(0) != part.getColumns() || countShards(bias, 0) != part.shards ||
        getAxes(bias, 0) != getAxes(part.weight, part.getColumnDim()))
      return;
    part.add = add;
    part.bias = bias;
  }

  std::optional<Part> match(loom::DotGeneralOp dot) {
    Part part;
    part.dot = dot;
    part.weight = dot.getRhs().getDefiningOp<loom::GetWeightOp>();
    if (!part.weight || !isInLibrary(dot) || dot.getRhs().getType().getRank() != 2 ||
        !dot.getRhsBatch().empty() || dot.getRhsContract().size() != 1 ||
        dot.getType().getNumElements() == 0)
      return std::nullopt;
    // Reading a part that does not start at a multiple of 16 bytes is slow.
    constexpr int64_t alignmentBits = 128;
    part.shards = countShards(part.weight, part.getColumnDim());
    if (part.shards == 0 ||
        part.getColumns() * dot.getType().getElementTypeBitWidth() % alignmentBits != 0)
      return std::nullopt;
    matchBias(part);
    return isReadInPlace(part.getResult()) ? std::optional(part) : std::nullopt;
  }

  static bool canJoin(Part &a, Part &b) {
    int64_t contract = a.dot.getRhsContract()[0];
    return a.dot.getLhs() == b.dot.getLhs() && a.dot.getLhsContract() == b.dot.getLhsContract() &&
           a.dot.getRhsContract() == b.dot.getRhsContract() &&
           a.weight.getType().getElementType() == b.weight.getType().getElementType() &&
           a.dot.getType().getElementType() == b.dot.getType().getElementType() &&
           a.dot.getTf32() == b.dot.getTf32() && a.shards == b.shards &&
           getDim(a.weight, contract) == getDim(b.weight, contract) &&
           getAxes(a.weight, a.getColumnDim()) == getAxes(b.weight, b.getColumnDim()) &&
           getKey(a.weight) != getKey(b.weight);
  }

  /// Groups the products of a block.
  void collect(Block &block, std::vector<Group> &groups) {
    size_t first = groups.size();
    int index = 0;
    for (auto dot : block.getOps<loom::DotGeneralOp>()) {
      std::optional<Part> part = match(dot);
      int own = index++;
      if (!part)
        continue;
      part->index = own;
      auto fits = [&](Group &group) {
        return own - group.back().index <= kMaxBetween + 1 &&
               llvm::all_of(group, [&](Part &other) { return canJoin(other, *part); });
      };
      auto it = std::find_if(groups.begin() + int64_t(first), groups.end(), fits);
      if (it == groups.end())
        groups.push_back({*part});
      else
        it->push_back(*part);
    }
  }

  /// Keeps only groups whose weights nothing else reads; others would be in memory twice. Other
  /// specialisations and stages of the program must join the same weights.
  void keepWholeWeights(std::vector<Group> &groups) {
    llvm::erase_if(groups, [](Group &group) { return group.size() < 2; });
    for (bool changed = true; changed;) {
      llvm::DenseMap<Operation *, size_t> groupOf;
      for (auto [i, group] : llvm::enumerate(groups))
        for (Part &part : group)
          groupOf[part.dot] = i;
      llvm::DenseMap<WeightKey, ArrayAttr> readers; // what each weight is joined to
      llvm::DenseSet<WeightKey> apart;
      getOperation().walk([&](loom::GetWeightOp op) {
        if (op->getParentOfType<loom::DerivedOp>())
          return;
        for (OpOperand &use : op->getUses()) {
          auto it = groupOf.find(use.getOwner());
          bool isRhs = it != groupOf.end() && use.getOperandNumber() == 1;
          ArrayAttr signature = isRhs ? getSignature(groups[it->second]) : ArrayAttr();
          auto [known, isNew] = readers.insert({getKey(op), signature});
          if (!isRhs || known->second != signature)
            apart.insert(getKey(op));
        }
      });
      size_t before = groups.size();
      llvm::erase_if(groups, [&](Group &group) {
        return llvm::any_of(group, [&](Part &part) { return apart.contains(getKey(part.weight)); });
      });
      changed = groups.size() != before;
    }
  }

  //===--------------------------------------------------------------------===//
  // Joining them
  //===--------------------------------------------------------------------===//

  void merge(Group &group) {
    OpBuilder builder(group.front().dot);
    SmallVector<Location> locs;
    int64_t columns = 0;
    bool hasBias = false;
    for (Part &part : group) {
      locs.push_back(part.dot.getLoc());
      if (part.add)
        locs.push_back(part.add.getLoc());
      columns += part.getColumns();
      hasBias |= part.bias != nullptr;
    }
    Location loc = builder.getFusedLoc(locs);
    loom::DotGeneralOp first = group.front().dot;
    int64_t last = first.getType().getRank() - 1;
    SmallVector<int64_t> shape(first.getType().getShape());
    shape[last] = columns;
    auto type = RankedTensorType::get(shape, first.getType().getElementType());
    Value result = loom::DotGeneralOp::create(
        builder, loc, type, first.getLhs(), getJoined(builder, loc, group, /*ofBias=*/false),
        ArrayRef<int64_t>(), ArrayRef<int64_t>(), first.getLhsContract(), first.getRhsContract(),
        first.getTf32());
    if (hasBias) {
      Value bias = getJoined(builder, loc, group, /*ofBias=*/true);
      bias = loom::BroadcastOp::create(builder, loc, type, bias, ArrayRef<int64_t>{last});
      result = loom::AddOp::create(builder, loc, type, result, bias);
    }
    SmallVector<int64_t> starts(shape.size(), 0), limits(shape), strides(shape.size(), 1);
    for (Part &part : group) {
      limits[last] = starts[last] + part.getColumns();
      Value slice = loom::SliceOp::create(builder, part.dot.getLoc(), part.dot.getType(), result,
                                          starts, limits, strides);
      starts[last] = limits[last];
      part.getResult().replaceAllUsesWith(slice);
    }
    for (Part &part : group) {
      if (part.add)
        part.add.erase();
      part.dot.erase();
    }
  }

  /// The columns of all weights, or biases, of a group, one after another on each device.
  Value getJoined(OpBuilder &builder, Location loc, Group &group, bool ofBias) {
    int64_t dim = ofBias ? 0 : group.front().getColumnDim();
    loom::GetWeightOp op = getSource(group, ofBias);
    SmallVector<int64_t> shape(op.getType().getShape());
    shape[dim] = 0;
    for (Part &part : group)
      shape[dim] += part.getColumns();
    auto type = RankedTensorType::get(shape, op.getType().getElementType());
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(op.getShardingAttr());
    if (sharding && !sharding.getDims().empty()) {
      // Ignores granules: shards are equal, and each has a shard of all parts.
      SmallVector<dist::DimShardingAttr> dims(sharding.getDims());
      dims[dim] = dist::DimShardingAttr::get(op.getContext(), dims[dim].getAxes(), false, 1);
      sharding = dist::ShardingAttr::get(op.getContext(), sharding.getMesh(), dims,
                                         sharding.getUnreduced(), sharding.getReduction());
    }
    StringAttr &name = joined[{getSignature(group), ofBias}];
    if (!name)
      name = derive(group, ofBias, type, dim);
    return loom::GetWeightOp::create(builder, loc, type, FlatSymbolRefAttr::get(name), sharding,
                                     loom::LayoutAttr());
  }

  /// The derived tensor that joins the whole weights, cut into shards first, so that each device's
  /// part of the result has its part of each.
  StringAttr derive(Group &group, bool ofBias, RankedTensorType local, int64_t dim) {
    OpBuilder builder(&getContext());
    loom::GetWeightOp source = getSource(group, ofBias);
    Location loc = source.getLoc();
    RankedTensorType global = getGlobalType(source.getNameAttr().getAttr());
    Type element = global.getElementType();
    int64_t shards = group.front().shards, columns = local.getDimSize(dim);
    SmallVector<int64_t> shape(global.getShape());
    shape[dim] = columns * shards;
    auto type = RankedTensorType::get(shape, element);
    auto derived = loom::DerivedOp::create(builder, loc, getName(group, ofBias), type);
    builder.createBlock(&derived.getBody());
    auto values = llvm::map_to_vector(group, [&](Part &part) {
      return cut(builder, read(builder, part, ofBias, element), dim, shards);
    });
    shape[dim] = shards;
    shape.insert(shape.begin() + dim + 1, columns);
    auto cutType = shards == 1 ? type : RankedTensorType::get(shape, element);
    Value result =
        loom::ConcatenateOp::create(builder, loc, cutType, values, shards == 1 ? dim : dim + 1);
    if (shards > 1)
      result = loom::ReshapeOp::create(builder, loc, type, result);
    loom::YieldOp::create(builder, loc, result);
    StringAttr name = symbols->insert(derived, std::next(lastWeight->getIterator()));
    lastWeight = derived;
    return name;
  }

  /// The whole weight or bias of a part, as a prologue reads it; zeros for a missing bias.
  Value read(OpBuilder &builder, Part &part, bool ofBias, Type element) {
    loom::GetWeightOp op = ofBias ? part.bias : part.weight;
    if (!op) {
      auto type = RankedTensorType::get(part.getColumns() * part.shards, element);
      return loom::ConstantOp::create(builder, part.dot.getLoc(), type,
                                      SplatElementsAttr::get(type, builder.getZeroAttr(element)));
    }
    return readWhole(builder, symbols->lookup(op.getName()));
  }

  /// `value` with dimension `dim` as [shards, columns per shard].
  static Value cut(OpBuilder &builder, Value value, int64_t dim, int64_t shards) {
    if (shards == 1)
      return value;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] /= shards;
    shape.insert(shape.begin() + dim, shards);
    return loom::ReshapeOp::create(builder, value.getLoc(),
                                   RankedTensorType::get(shape, type.getElementType()), value);
  }

  /// "layer.0.{query,key,value}.weight", for names that differ between two dots.
  static std::string getName(Group &group, bool ofBias) {
    SmallVector<StringRef> names;
    for (Part &part : group)
      if (loom::GetWeightOp op = ofBias ? part.bias : part.weight)
        names.push_back(op.getName());
    StringRef first = names.front();
    auto shared = [&](auto isSame) {
      size_t count = 0, shortest = first.size();
      for (StringRef name : names)
        shortest = std::min(shortest, name.size());
      while (count < shortest &&
             llvm::all_of(names, [&](StringRef name) { return isSame(name, count); }))
        ++count;
      return count;
    };
    size_t front = shared([&](StringRef name, size_t i) { return name[i] == first[i]; });
    front = first.take_front(front).rfind('.') + 1; // none: 0
    for (StringRef &name : names)
      name = name.drop_front(front);
    StringRef prefix = first.take_front(front);
    first = names.front();
    size_t back = shared([&](StringRef name, size_t i) {
      return name[name.size() - 1 - i] == first[first.size() - 1 - i];
    });
    size_t dot = first.take_back(back).find('.');
    StringRef suffix = dot == StringRef::npos ? StringRef() : first.take_back(back).drop_front(dot);
    std::string text = prefix.str() + "{";
    for (auto [i, name] : llvm::enumerate(names))
      text += (i ? "," : "") + name.drop_back(suffix.size()).str();
    return text + "}" + suffix.str();
  }

  llvm::DenseMap<std::pair<Attribute, int>, StringAttr> joined;
  SymbolTable *symbols = nullptr;  ///< the module's, while the pass runs
  Operation *lastWeight = nullptr; ///< joined weights are inserted behind it
};

} // namespace
} // namespace gridloom
