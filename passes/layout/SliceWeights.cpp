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

/// The part of a whole weight that a slice reads, of whichever shard.
struct Part {
  SmallVector<int64_t> starts, limits, strides;

  SmallVector<int64_t> getShape() const {
    SmallVector<int64_t> shape;
    for (auto [start, limit, stride] : llvm::zip_equal(starts, limits, strides))
      shape.push_back((limit - start + stride - 1) / stride);
    return shape;
  }
  /// "w[:,:,1::2]".
  std::string getName(StringRef weight, ArrayRef<int64_t> whole) const {
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

/// The slices that read a weight, each with its shard.
struct Reads {
  SmallVector<std::pair<loom::SliceOp, loom::GetWeightOp>> slices;
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
      if (!op->getParentOfType<loom::DerivedOp>())
        weights[op.getNameAttr().getAttr()].canCut &=
            llvm::all_of(op->getUsers(), [&](Operation *user) {
              auto slice = dyn_cast<loom::SliceOp>(user);
              return slice && findPart(slice, op);
            });
    });
    getOperation().walk([&](loom::SliceOp slice) {
      auto op = slice.getInput().getDefiningOp<loom::GetWeightOp>();
      if (op && !op->getParentOfType<loom::DerivedOp>())
        collect(slice, op, weights[op.getNameAttr().getAttr()]);
    });
    for (auto &[name, reads] : weights)
      if (reads.canCut && !reads.slices.empty() && !isLarger(reads, name))
        cut(reads, symbols->lookup(name.getValue()));
    eraseDeadOps(getOperation());
    eraseUnusedWeights(getOperation());
  }

  void collect(loom::SliceOp slice, loom::GetWeightOp op, Reads &reads) {
    if (!reads.canCut)
      return;
    reads.slices.emplace_back(slice, op);
    Part part = *findPart(slice, op);
    reads.parts.insert({namePart(op, part), part});
  }

  RankedTensorType getWhole(StringAttr name) {
    return getWholeType(symbols->lookup(name.getValue()));
  }

  StringAttr namePart(loom::GetWeightOp op, const Part &part) {
    StringAttr weight = op.getNameAttr().getAttr();
    return StringAttr::get(&getContext(),
                           part.getName(weight.getValue(), getWhole(weight).getShape()));
  }

  /// Nothing where the slice cuts a dimension that is split over devices: each has other elements.
  std::optional<Part> findPart(loom::SliceOp slice, loom::GetWeightOp op) {
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(op.getShardingAttr());
    if (op.getShardingAttr() && !sharding)
      return std::nullopt;
    ArrayRef<int64_t> local = op.getType().getShape(),
                      whole = getWhole(op.getNameAttr().getAttr()).getShape();
    Part part;
    for (auto [i, size] : llvm::enumerate(local)) {
      int64_t start = slice.getStarts()[i], limit = slice.getLimits()[i],
              stride = slice.getStrides()[i];
      bool isWhole = start == 0 && limit == size && stride == 1;
      bool isSplit =
          sharding && !sharding.getDims().empty() && !sharding.getDims()[i].getAxes().empty();
      if (isSplit && !isWhole)
        return std::nullopt;
      part.starts.push_back(start);
      part.limits.push_back(isWhole ? whole[i] : limit);
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
    for (auto [slice, old] : reads.slices) {
      OpBuilder builder(slice);
      StringAttr name = made[namePart(old, *findPart(slice, old))];
      Value value = loom::GetWeightOp::create(builder, old.getLoc(), slice.getType(),
                                              FlatSymbolRefAttr::get(name), old.getShardingAttr(),
                                              loom::LayoutAttr());
      slice.getOutput().replaceAllUsesWith(value);
      slice.erase();
    }
  }

  /// The part of the whole weight as a derived tensor, which is in no module yet.
  loom::DerivedOp derive(StringAttr name, const Part &part, Operation *source) {
    OpBuilder builder(&getContext());
    Location loc = source->getLoc();
    RankedTensorType type = getWholeType(source).clone(part.getShape());
    auto derived = loom::DerivedOp::create(builder, loc, name.getValue(), type);
    builder.createBlock(&derived.getBody());
    Value value = loom::SliceOp::create(builder, loc, type, readWhole(builder, source), part.starts,
                                        part.limits, part.strides);
    loom::YieldOp::create(builder, loc, value);
    return derived;
  }

  SymbolTable *symbols = nullptr; ///< the module's, while the pass runs
};

} // namespace
} // namespace gridloom
