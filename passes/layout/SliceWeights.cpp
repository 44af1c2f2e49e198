//===- SliceWeights.cpp - parts of weights, cut at load -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "dialects/loom/LoomWindow.h"
#include "passes/layout/Passes.h"
#include "passes/simplify/Prologue.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_SLICEWEIGHTS
#include "passes/layout/Passes.h.inc"

namespace {

/// A weight as a slice sees it: itself, or reshaped.
struct View {
  loom::GetWeightOp weight;
  SmallVector<int64_t> whole;              ///< the shape, of all shards together
  SmallVector<dist::DimShardingAttr> dims; ///< empty where the weight is not split
};

/// The part of a whole weight that a slice reads, of whichever shard.
struct Part {
  SmallVector<int64_t> whole, starts, limits, strides;

  SmallVector<int64_t> getShape() const {
    SmallVector<int64_t> shape;
    for (auto [start, limit, stride] : llvm::zip_equal(starts, limits, strides))
      shape.push_back((limit - start + stride - 1) / stride);
    return shape;
  }
  /// "w[:,:,1::2]".
  std::string getName(StringRef weight) const {
    std::string name = weight.str();
    for (auto [i, size] : llvm::enumerate(whole)) {
      name += i ? "," : "[";
      name += (starts[i] ? std::to_string(starts[i]) : "") + ":";
      name += limits[i] != size ? std::to_string(limits[i]) : "";
      name += strides[i] != 1 ? ":" + std::to_string(strides[i]) : "";
    }
    return name + "]";
  }
};

/// The slices that read a weight, each with what it reads.
struct Reads {
  SmallVector<std::pair<loom::SliceOp, View>> slices;
  /// By the name that the part gets.
  llvm::MapVector<StringAttr, Part> parts;
  bool canCut = true;
};

struct SliceWeights : impl::SliceWeightsBase<SliceWeights> {
  void runOnOperation() override {
    SymbolTable table(getOperation());
    symbols = &table;
    // By name: a weight of which something else stays would be in memory twice.
    llvm::MapVector<StringAttr, Reads> weights;
    getOperation().walk([&](loom::GetWeightOp op) {
      if (op->getParentOfType<loom::DerivedOp>())
        return;
      Reads &reads = weights[op.getNameAttr().getAttr()];
      std::optional<View> view = getView(op);
      reads.canCut &= view && collect(op.getOutput(), *view, reads);
    });
    for (auto &[name, reads] : weights)
      if (reads.canCut && !reads.slices.empty() && !isLarger(reads, name))
        cut(reads, symbols->lookup(name.getValue()));
    eraseDeadOps(getOperation());
    eraseUnusedWeights(getOperation());
  }

  /// Adds the slices of `value`; false where something else reads it, or a slice cannot be cut.
  bool collect(Value value, const View &view, Reads &reads) {
    // In the order of the program, which that of users is not.
    SmallVector<Operation *> users(value.getUsers());
    llvm::sort(users, [](Operation *a, Operation *b) {
      return a->getBlock() == b->getBlock() && a->isBeforeInBlock(b);
    });
    return llvm::all_of(users, [&](Operation *user) {
      if (auto reshape = dyn_cast<loom::ReshapeOp>(user)) {
        std::optional<View> reshaped = getReshaped(view, reshape);
        return reshaped && collect(reshape.getOutput(), *reshaped, reads);
      }
      auto slice = dyn_cast<loom::SliceOp>(user);
      std::optional<Part> part = slice ? findPart(slice, view) : std::nullopt;
      // Names say what is cut of one shape.
      if (!part || (!reads.slices.empty() && reads.slices.front().second.whole != view.whole))
        return false;
      reads.slices.emplace_back(slice, view);
      reads.parts.insert({nameOf(view, *part), *part});
      return true;
    });
  }

  std::optional<View> getView(loom::GetWeightOp op) {
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(op.getShardingAttr());
    if (op.getShardingAttr() && !sharding)
      return std::nullopt;
    View view{op, llvm::to_vector(getWhole(op.getNameAttr().getAttr()).getShape()), {}};
    if (sharding)
      llvm::append_range(view.dims, sharding.getDims());
    return view;
  }

  /// Nothing where a dimension that is split does not stay a dimension.
  static std::optional<View> getReshaped(const View &view, loom::ReshapeOp reshape) {
    ArrayRef<int64_t> from = reshape.getInput().getType().getShape(),
                      to = cast<RankedTensorType>(reshape.getType()).getShape();
    View result{view.weight, llvm::to_vector(to), {}};
    if (view.dims.empty())
      return result;
    auto whole = dist::DimShardingAttr::get(reshape.getContext(), {}, false, 1);
    result.dims.assign(to.size(), whole);
    for (size_t i = 0; i < from.size(); ++i) {
      if (view.dims[i].getAxes().empty())
        continue;
      size_t j = 0;
      int64_t before = loom::computeProduct(from.take_front(i));
      while (j < to.size() && (to[j] != from[i] || !result.dims[j].getAxes().empty() ||
                               loom::computeProduct(to.take_front(j)) != before))
        ++j;
      if (j == to.size())
        return std::nullopt;
      result.dims[j] = view.dims[i];
      result.whole[j] = view.whole[i];
    }
    return result;
  }

  RankedTensorType getWhole(StringAttr name) {
    return getWholeType(symbols->lookup(name.getValue()));
  }

  static StringAttr nameOf(const View &view, const Part &part) {
    loom::GetWeightOp op = view.weight;
    return StringAttr::get(op.getContext(), part.getName(op.getName()));
  }

  /// Nothing where the slice cuts a dimension that is split over devices: each has other elements.
  static std::optional<Part> findPart(loom::SliceOp slice, const View &view) {
    ArrayRef<int64_t> local = slice.getInput().getType().getShape();
    Part part;
    part.whole = view.whole;
    for (auto [i, size] : llvm::enumerate(local)) {
      int64_t start = slice.getStarts()[i], limit = slice.getLimits()[i],
              stride = slice.getStrides()[i];
      bool isWhole = start == 0 && limit == size && stride == 1;
      if (!view.dims.empty() && !view.dims[i].getAxes().empty() && !isWhole)
        return std::nullopt;
      part.starts.push_back(start);
      part.limits.push_back(isWhole ? view.whole[i] : limit);
      part.strides.push_back(stride);
    }
    return part;
  }

  /// Whether the parts together are larger than the weight, as parts that overlap may be.
  bool isLarger(const Reads &reads, StringAttr name) {
    int64_t elements = 0;
    for (const auto &[part, slice] : reads.parts)
      elements += loom::computeProduct(slice.getShape());
    return elements > getWhole(name).getNumElements();
  }

  void cut(Reads &reads, Operation *source) {
    Operation *last = source;
    llvm::DenseMap<StringAttr, StringAttr> made; // under another name where that is taken
    for (const auto &[name, part] : reads.parts) {
      loom::DerivedOp derived = derive(name, part, source);
      made[name] = symbols->insert(derived, std::next(last->getIterator()));
      last = derived;
    }
    for (auto [slice, view] : reads.slices) {
      auto sharding = dyn_cast_or_null<dist::ShardingAttr>(view.weight.getShardingAttr());
      if (sharding && !view.dims.empty())
        sharding = dist::ShardingAttr::get(sharding.getContext(), sharding.getMesh(), view.dims,
                                           sharding.getUnreduced(), sharding.getReduction());
      OpBuilder builder(slice);
      StringAttr name = made[nameOf(view, *findPart(slice, view))];
      Value value =
          loom::GetWeightOp::create(builder, view.weight.getLoc(), slice.getType(),
                                    FlatSymbolRefAttr::get(name), sharding, loom::LayoutAttr());
      slice.getOutput().replaceAllUsesWith(value);
    }
  }

  /// The part of the whole weight as a derived tensor, which is in no module yet.
  loom::DerivedOp derive(StringAttr name, const Part &part, Operation *source) {
    OpBuilder builder(&getContext());
    Location loc = source->getLoc();
    RankedTensorType whole = getWholeType(source), type = whole.clone(part.getShape());
    auto derived = loom::DerivedOp::create(builder, loc, name.getValue(), type);
    builder.createBlock(&derived.getBody());
    Value value = readWhole(builder, source);
    if (whole.getShape() != ArrayRef<int64_t>(part.whole))
      value = loom::ReshapeOp::create(builder, loc, whole.clone(part.whole), value);
    value =
        loom::SliceOp::create(builder, loc, type, value, part.starts, part.limits, part.strides);
    loom::YieldOp::create(builder, loc, value);
    return derived;
  }

  SymbolTable *symbols = nullptr; ///< the module's, while the pass runs
};

} // namespace
} // namespace gridloom
