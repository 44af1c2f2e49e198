//===- ChannelsLast.cpp - convolutions with channels last -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Uses.h"
#include "passes/fuse/ExpandContractions.h"
#include "passes/fuse/Passes.h"
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_CHANNELSLAST
#include "passes/fuse/Passes.h.inc"

namespace {

RankedTensorType getType(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The permutation that moves the second dimension to the end, and its inverse.
SmallVector<int64_t> getLastOrder(int64_t rank) {
  SmallVector<int64_t> order{0};
  llvm::append_range(order, llvm::seq<int64_t>(2, rank));
  order.push_back(1);
  return order;
}
SmallVector<int64_t> getFirstOrder(int64_t rank) {
  SmallVector<int64_t> order{0, rank - 1};
  llvm::append_range(order, llvm::seq<int64_t>(1, rank - 1));
  return order;
}

template <typename T> SmallVector<T> reorder(ArrayRef<T> list, ArrayRef<int64_t> order) {
  return llvm::map_to_vector(order, [&](int64_t i) { return list[i]; });
}

/// The operand of `value` if that is a transpose by `order`; else null.
Value matchTranspose(Value value, ArrayRef<int64_t> order) {
  auto transpose = value.getDefiningOp<loom::TransposeOp>();
  return transpose && transpose.getPermutation() == order ? transpose.getInput() : Value();
}

/// Strides of [N, C, spatial...] where [N, spatial..., C] is row-major.
SmallVector<int64_t> getLastStrides(ArrayRef<int64_t> shape) {
  int64_t rank = shape.size();
  auto strides = loom::getRowMajorStrides(reorder(shape, getLastOrder(rank)));
  return reorder<int64_t>(strides, getFirstOrder(rank));
}

/// Tensor cores read runs of channels; with other orders cuDNN transposes before and after.
bool wantsChannelsLast(plan::ConvolutionOp op) {
  Type element = getType(op.getOutput()).getElementType();
  return element.isF16() || element.isBF16() || op.getDescriptor().getTf32();
}

/// Channels that become windows of a larger picture, as transposed convolutions with disjoint
/// windows end: [N, C * window..., spatial...] to [N, C, window..., spatial...], transposed to [N,
/// C, spatial and window in turn...].
struct WindowPlacing {
  loom::ReshapeOp split;
  SmallVector<int64_t> parts;
  int64_t getSpatialRank() const { return static_cast<int64_t>(parts.size()) / 2 - 1; }
};

/// The placing that ends with a reshape.
std::optional<WindowPlacing> matchPlacing(loom::ReshapeOp last) {
  auto places = last.getInput().getDefiningOp<loom::TransposeOp>();
  auto split = places ? places.getInput().getDefiningOp<loom::ReshapeOp>() : loom::ReshapeOp();
  int64_t rank = getType(last.getOutput()).getRank(), spatial = rank - 2;
  if (!split || spatial < 1 || getType(split.getInput()).getRank() != rank ||
      getType(split.getOutput()).getRank() != rank + spatial)
    return std::nullopt;
  WindowPlacing placing{split, llvm::to_vector(getType(split.getOutput()).getShape())};
  ArrayRef<int64_t> from = getType(split.getInput()).getShape(), parts = placing.parts;
  SmallVector<int64_t> order{0, 1}, result(parts.take_front(2));
  for (int64_t i = 0; i < spatial; ++i) {
    order.append({rank + i, 2 + i});
    result.push_back(parts[rank + i] * parts[2 + i]);
  }
  bool isPlacing = from[0] == parts[0] && from.drop_front(2) == parts.drop_front(rank) &&
                   places.getPermutation() == ArrayRef<int64_t>(order) &&
                   getType(last.getOutput()).getShape() == ArrayRef<int64_t>(result);
  return isPlacing ? std::optional(placing) : std::nullopt;
}

struct ChannelsLast : impl::ChannelsLastBase<ChannelsLast> {
  using ChannelsLastBase::ChannelsLastBase;

  void runOnOperation() override {
    SmallVector<plan::ConvolutionOp> convolutions;
    getOperation().walk([&](plan::ConvolutionOp op) {
      if (f32 || wantsChannelsLast(op))
        convolutions.push_back(op);
    });
    if (convolutions.empty())
      return;
    weights.clear();
    moved.clear();
    reordered.clear();
    for (plan::ConvolutionOp op : convolutions)
      convert(op);
    getOperation().walk([&](func::FuncOp func) {
      for (Operation &op : llvm::make_early_inc_range(func.front()))
        sinkTransposes(&op);
      for (Operation &op : llvm::make_early_inc_range(func.front()))
        reshapeOrdered(&op);
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    });
  }

  void convert(plan::ConvolutionOp op) {
    OpBuilder builder(op);
    plan::ConvolutionAttr old = op.getDescriptor();
    int64_t rank = old.getInput().size();
    auto descriptor = plan::ConvolutionAttr::get(
        op.getContext(), old.getInput(), getLastStrides(old.getInput()), old.getWeight(),
        f32 ? SmallVector<int64_t>(old.getWeightStrides()) : getLastStrides(old.getWeight()),
        old.getOutput(), getLastStrides(old.getOutput()), old.getStrides(), old.getLow(),
        old.getHigh(), old.getDilations(), old.getGroups(), old.getEpilogue(), old.getTf32());
    auto type = getType(op.getOutput());
    auto lastType =
        RankedTensorType::get(reorder(type.getShape(), getLastOrder(rank)), type.getElementType());
    Value residual = op.getResidual() ? moveLast(op.getResidual()) : Value();
    Value windowsFirst = putWindowsFirst(op);
    Value weight = windowsFirst ? windowsFirst : op.getWeight();
    auto made = plan::ConvolutionOp::create(builder, op.getLoc(), lastType, moveLast(op.getInput()),
                                            f32 ? weight : moveWeight(weight), op.getBias(),
                                            residual, descriptor);
    if (windowsFirst)
      reordered.insert(made.getOutput());
    Value result = transposeTo(builder, made.getOutput(), getFirstOrder(rank));
    op.getOutput().replaceAllUsesWith(result);
    op.erase();
  }

  /// A transpose that only moves dimensions of one element becomes a reshape, which is no copy.
  static void reshapeOrdered(Operation *op) {
    auto transpose = dyn_cast<loom::TransposeOp>(op);
    if (!transpose ||
        !loom::keepsOrder(transpose.getPermutation(), getType(transpose.getInput()).getShape()))
      return;
    OpBuilder builder(op);
    transpose.replaceAllUsesWith(
        loom::ReshapeOp::create(builder, op->getLoc(), transpose.getType(), transpose.getInput())
            .getOutput());
  }

  /// `value` with the channels last, created once, right after the value.
  Value moveLast(Value value) {
    int64_t rank = getType(value).getRank();
    if (Value source = matchTranspose(value, getFirstOrder(rank)))
      return source;
    Value &made = moved[value];
    if (!made) {
      OpBuilder builder(value.getContext());
      builder.setInsertionPointAfterValue(value);
      made = transposeTo(builder, value, getLastOrder(rank));
    }
    return made;
  }

  /// The weight of a convolution whose channels become windows of a larger picture, with the
  /// windows before the channels, which then stay together; null for other weights, and for groups,
  /// whose channels have inputs of their own.
  Value putWindowsFirst(plan::ConvolutionOp op) {
    auto reshape = op.getWeight().getDefiningOp<loom::ReshapeOp>();
    auto get =
        reshape ? reshape.getInput().getDefiningOp<loom::GetWeightOp>() : loom::GetWeightOp();
    Operation *last = loom::getOnlyReader(op.getOutput());
    for (int i = 0; i < 2 && last; ++i)
      last = last->getNumResults() == 1 ? loom::getOnlyReader(last->getResult(0)) : nullptr;
    auto placed = dyn_cast_or_null<loom::ReshapeOp>(last);
    std::optional<WindowPlacing> placing = placed ? matchPlacing(placed) : std::nullopt;
    if (!get || !placing || placing->split.getInput() != op.getOutput() || op.getBias() ||
        op.getResidual() || op.getDescriptor().getGroups() != 1)
      return {};
    ArrayRef<int64_t> parts = placing->parts, weight = getType(op.getWeight()).getShape();
    int64_t window = loom::countElements(parts.slice(2, placing->getSpatialRank()));
    if (getType(get).getShape() != ArrayRef<int64_t>{1, parts[1], window, weight[1]} ||
        weight[0] != parts[1] * window)
      return {};
    Value moved = moveWeight(get, {0, 2, 1, 3}, ".windows_first");
    OpBuilder builder(reshape);
    return moved
               ? Value(loom::ReshapeOp::create(builder, reshape.getLoc(), reshape.getType(), moved))
               : Value();
  }

  /// As moveLast, but for a weight in the prologue, once at load.
  Value moveWeight(Value weight) {
    auto get = weight.getDefiningOp<loom::GetWeightOp>();
    Value made =
        get ? moveWeight(get, getLastOrder(getType(weight).getRank()), ".channels_last") : Value();
    return made ? made : moveLast(weight);
  }

  /// A weight with its dimensions in another order; null if its sharding is not known.
  Value moveWeight(loom::GetWeightOp get, ArrayRef<int64_t> order, StringRef suffix) {
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(get.getShardingAttr());
    if (get.getShardingAttr() && !sharding)
      return {};
    if (sharding && !sharding.getDims().empty())
      sharding = dist::ShardingAttr::get(get.getContext(), sharding.getMesh(),
                                         reorder<dist::DimShardingAttr>(sharding.getDims(), order),
                                         sharding.getUnreduced(), sharding.getReduction());
    OpBuilder builder(get);
    RankedTensorType type = getType(get);
    StringAttr derived = deriveWeight(get.getNameAttr(), order, suffix);
    return loom::GetWeightOp::create(
        builder, get.getLoc(), type.clone(reorder(type.getShape(), order)),
        FlatSymbolRefAttr::get(derived), sharding, getPlainLayout(type));
  }

  static loom::LayoutAttr getPlainLayout(RankedTensorType type) {
    auto order = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    return loom::LayoutAttr::get(type.getContext(), order, 0);
  }

  /// Declares the weight or derived tensor `name` in another order, which `suffix` names, as a
  /// derived tensor.
  StringAttr deriveWeight(FlatSymbolRefAttr name, ArrayRef<int64_t> order, StringRef suffix) {
    std::string symbol = (name.getValue() + suffix).str();
    StringAttr &known = weights[StringAttr::get(name.getContext(), symbol)];
    if (known)
      return known;
    ModuleOp module = getOperation();
    Operation *source = SymbolTable::lookupSymbolIn(module, name);
    while (SymbolTable::lookupSymbolIn(module, symbol))
      symbol += "_";
    known = StringAttr::get(module.getContext(), symbol);
    OpBuilder builder(source);
    builder.setInsertionPointAfter(source);
    auto derived = dyn_cast<loom::DerivedOp>(source);
    RankedTensorType type =
        derived ? derived.getTensorType() : cast<loom::WeightOp>(source).getTensorType();
    RankedTensorType moved = type.clone(reorder(type.getShape(), order));
    loom::DerivedOp made;
    if (derived) {
      made = cast<loom::DerivedOp>(builder.clone(*derived));
      made.setSymName(symbol);
      made.setType(moved);
    } else {
      made = loom::DerivedOp::create(builder, source->getLoc(), symbol, moved);
      builder.setInsertionPointToEnd(&made.getBody().emplaceBlock());
      Value whole = loom::GetWeightOp::create(builder, source->getLoc(), type, name, Attribute(),
                                              getPlainLayout(type));
      loom::YieldOp::create(builder, source->getLoc(), whole);
    }
    Operation *yield = made.getBody().front().getTerminator();
    builder.setInsertionPoint(yield);
    yield->setOperand(0, transposeTo(builder, yield->getOperand(0), order));
    return known;
  }

  /// Moves a transpose that puts channels first behind an operation, towards one that puts them
  /// last.
  void sinkTransposes(Operation *op) {
    if (auto done = dyn_cast<dist::DoneOp>(op))
      return sinkBelow(done);
    // Communication returns a future, not a tensor.
    if (auto reduce = dyn_cast<loom::ReduceOp>(op))
      return sinkBelow(reduce);
    auto result = op->getNumResults() == 1 ? dyn_cast<RankedTensorType>(op->getResult(0).getType())
                                           : RankedTensorType();
    if (!result || result.getRank() < 3)
      return;
    int64_t rank = result.getRank();
    SmallVector<int64_t> first = getFirstOrder(rank), last = getLastOrder(rank);
    if (isa<loom::TransposeOp>(op)) {
      Value inner = matchTranspose(op->getResult(0), last);
      if (Value source = inner ? matchTranspose(inner, first) : Value())
        op->getResult(0).replaceAllUsesWith(source);
      return;
    }
    if (auto pad = dyn_cast<loom::PadOp>(op))
      return sinkBelow(pad);
    if (auto concatenate = dyn_cast<loom::ConcatenateOp>(op))
      return sinkBelow(concatenate);
    if (auto slice = dyn_cast<loom::SliceOp>(op))
      return sinkBelow(slice);
    if (auto reshape = dyn_cast<loom::ReshapeOp>(op))
      return sinkBelow(reshape);
    if (auto gather = dyn_cast<loom::GatherOp>(op))
      return sinkBelow(gather);
    auto isMoved = [&](Value value) { return matchTranspose(value, first) != nullptr; };
    auto isFree = [&](Value value) {
      auto constant = value.getDefiningOp<loom::ConstantOp>();
      return isMoved(value) || value.getDefiningOp<loom::BroadcastOp>() ||
             (constant && isa<SplatElementsAttr>(constant.getValue()));
    };
    if (!isa<loom::KernelBodyInterface>(op) || !llvm::any_of(op->getOperands(), isMoved) ||
        !llvm::all_of(op->getOperands(), isFree))
      return;
    OpBuilder builder(op);
    auto operands = llvm::map_to_vector(op->getOperands(),
                                        [&](Value value) { return view(builder, value, last); });
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    RankedTensorType type = getType(op->getResult(0));
    copy->getResult(0).setType(
        RankedTensorType::get(reorder(type.getShape(), last), type.getElementType()));
    op->getResult(0).replaceAllUsesWith(transposeTo(builder, copy->getResult(0), first));
  }

  /// Handles what is exchanged along the edges of pictures, and sums, which have no order; other
  /// collectives have a dimension of their own, along which their data is contiguous.
  void sinkBelow(dist::DoneOp op) {
    auto start = op.getFuture().getDefiningOp<dist::StartOp>();
    if (!start || !start->hasOneUse() || op.getOutputs().size() != 1)
      return;
    Operation &sent = start.getBody().front().front();
    Value output = op.getOutputs().front();
    auto transposed = cast<RankedTensorType>(output.getType());
    int64_t rank = transposed.getRank();
    Value source = isa<dist::PermuteOp, dist::AllReduceOp>(sent) && rank >= 3
                       ? matchTranspose(sent.getOperand(0), getFirstOrder(rank))
                       : Value();
    if (!source)
      return;
    sent.setOperand(0, source);
    sent.getResult(0).setType(source.getType());
    start.getFuture().setType(dist::FutureType::get(op.getContext(), {source.getType()}));
    OpBuilder builder(op->getBlock(), std::next(op->getIterator()));
    output.setType(source.getType());
    auto whole =
        loom::TransposeOp::create(builder, op.getLoc(), transposed, output, getFirstOrder(rank));
    output.replaceAllUsesExcept(whole, whole);
  }

  /// Handles a device's part of a value: one of [..., parts, size, ...].
  void sinkBelow(loom::GatherOp op) {
    auto parts = op.getInput().getDefiningOp<loom::ReshapeOp>();
    RankedTensorType type = getType(op.getOutput());
    int64_t rank = type.getRank(), dim = op.getDim();
    Value source = parts && getType(parts.getInput()).getRank() == rank
                       ? matchTranspose(parts.getInput(), getFirstOrder(rank))
                       : Value();
    if (!source || getType(op.getIndices()).getRank() != 0)
      return;
    SmallVector<int64_t> last = getLastOrder(rank), whole(type.getShape());
    int64_t count = getType(parts.getOutput()).getDimSize(dim),
            place = llvm::find(last, dim) - last.begin();
    whole[dim] *= count;
    if (getType(parts.getInput()).getShape() != ArrayRef<int64_t>(whole))
      return;
    SmallVector<int64_t> split(getType(source).getShape());
    split[place] = type.getDimSize(dim);
    split.insert(split.begin() + place, count);
    OpBuilder builder(op);
    Value apart = loom::ReshapeOp::create(builder, parts.getLoc(), type.clone(split), source);
    auto made =
        loom::GatherOp::create(builder, op.getLoc(), type.clone(reorder(type.getShape(), last)),
                               apart, op.getIndices(), place);
    op.replaceAllUsesWith(transposeTo(builder, made.getOutput(), getFirstOrder(rank)));
  }

  void sinkBelow(loom::PadOp op) {
    int64_t rank = op.getLow().size();
    SmallVector<int64_t> last = getLastOrder(rank);
    Value source = matchTranspose(op.getInput(), getFirstOrder(rank));
    if (!source)
      return;
    OpBuilder builder(op);
    RankedTensorType type = getType(op.getOutput());
    Value made = loom::PadOp::create(
        builder, op.getLoc(),
        RankedTensorType::get(reorder(type.getShape(), last), type.getElementType()), source,
        op.getValue(), reorder(op.getLow(), last), reorder(op.getHigh(), last),
        reorder(op.getInterior(), last));
    op.getOutput().replaceAllUsesWith(transposeTo(builder, made, getFirstOrder(rank)));
  }

  /// Whether a reader wants the channels last, directly or behind operations that a transpose moves
  /// behind.
  static bool isWantedLast(Value value, int depth = 4) {
    SmallVector<int64_t> last = getLastOrder(getType(value).getRank());
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      if (auto transpose = dyn_cast<loom::TransposeOp>(user))
        return transpose.getPermutation() == ArrayRef<int64_t>(last);
      return depth > 0 &&
             isa<loom::SliceOp, loom::PadOp, loom::ConcatenateOp, loom::KernelBodyInterface>(
                 user) &&
             user->getNumResults() == 1 &&
             getType(user->getResult(0)).getRank() == static_cast<int64_t>(last.size()) &&
             isWantedLast(user->getResult(0), depth - 1);
    });
  }

  void sinkBelow(loom::ConcatenateOp op) {
    RankedTensorType type = getType(op.getOutput());
    int64_t rank = type.getRank();
    SmallVector<int64_t> first = getFirstOrder(rank), last = getLastOrder(rank);
    auto sources = llvm::map_to_vector(op.getInputs(),
                                       [&](Value input) { return matchTranspose(input, first); });
    auto isMoved = [](Value source) { return source != nullptr; };
    if (llvm::none_of(sources, isMoved) ||
        (!llvm::all_of(sources, isMoved) && !isWantedLast(op.getOutput())))
      return;
    OpBuilder builder(op);
    for (auto [source, input] : llvm::zip_equal(sources, op.getInputs()))
      if (!source) // less to transpose than all of the result
        source = transposeTo(builder, input, last);
    Value made = loom::ConcatenateOp::create(
        builder, op.getLoc(),
        RankedTensorType::get(reorder(type.getShape(), last), type.getElementType()), sources,
        llvm::find(last, op.getDim()) - last.begin());
    op.getOutput().replaceAllUsesWith(transposeTo(builder, made, first));
  }

  void sinkBelow(loom::SliceOp op) {
    RankedTensorType type = getType(op.getOutput());
    int64_t rank = type.getRank();
    SmallVector<int64_t> last = getLastOrder(rank);
    Value source = matchTranspose(op.getInput(), getFirstOrder(rank));
    if (!source)
      return;
    OpBuilder builder(op);
    Value made = loom::SliceOp::create(
        builder, op.getLoc(),
        RankedTensorType::get(reorder(type.getShape(), last), type.getElementType()), source,
        reorder(op.getStarts(), last), reorder(op.getLimits(), last),
        reorder(op.getStrides(), last));
    op.getOutput().replaceAllUsesWith(transposeTo(builder, made, getFirstOrder(rank)));
  }

  void sinkBelow(loom::ReshapeOp op) {
    std::optional<WindowPlacing> placing = matchPlacing(op);
    RankedTensorType type = getType(op.getOutput());
    int64_t rank = type.getRank();
    Value source =
        placing ? matchTranspose(placing->split.getInput(), getFirstOrder(rank)) : Value();
    if (!source)
      return;
    ArrayRef<int64_t> parts = placing->parts;
    int64_t spatial = placing->getSpatialRank();
    // [N, spatial..., C, window...], or [N, spatial..., window..., C].
    bool isReordered = reordered.contains(source);
    SmallVector<int64_t> split{parts[0]}, order{0};
    llvm::append_range(split, parts.drop_front(rank));
    if (!isReordered)
      split.push_back(parts[1]);
    llvm::append_range(split, parts.slice(2, spatial));
    if (isReordered)
      split.push_back(parts[1]);
    for (int64_t i = 0; i < spatial; ++i)
      order.append({1 + i, 1 + spatial + i + (isReordered ? 0 : 1)});
    order.push_back(isReordered ? 2 * spatial + 1 : spatial + 1);
    OpBuilder builder(op);
    Value whole =
        loom::ReshapeOp::create(builder, placing->split.getLoc(), type.clone(split), source);
    Value made = loom::ReshapeOp::create(builder, op.getLoc(),
                                         type.clone(reorder(type.getShape(), getLastOrder(rank))),
                                         transposeTo(builder, whole, order));
    op.getOutput().replaceAllUsesWith(transposeTo(builder, made, getFirstOrder(rank)));
  }

  /// Handles reductions over each channel's windows, or over all its elements.
  void sinkBelow(loom::ReduceOp op) {
    auto window = op.getInput().getDefiningOp<loom::WindowOp>();
    Value input = window ? window.getInput() : op.getInput();
    int64_t rank = getType(input).getRank();
    if (rank < 3)
      return;
    auto spatial = llvm::to_vector(llvm::seq<int64_t>(2, rank));
    if ((window ? window.getDims() != ArrayRef<int64_t>(spatial) ||
                      op.getDims() !=
                          ArrayRef<int64_t>(llvm::to_vector(llvm::seq<int64_t>(rank, 2 * rank - 2)))
                : op.getDims() != ArrayRef<int64_t>(spatial)))
      return;
    Value source = matchTranspose(input, getFirstOrder(rank));
    if (!source)
      return;
    OpBuilder builder(op);
    auto dims = llvm::to_vector(llvm::seq<int64_t>(1, rank - 1));
    if (!window) {
      op.replaceAllUsesWith(
          loom::ReduceOp::create(builder, op.getLoc(), op.getType(), source, op.getKind(), dims)
              .getOutput());
      return;
    }
    SmallVector<int64_t> last = getLastOrder(rank);
    RankedTensorType type = getType(op.getOutput());
    auto shape = reorder(type.getShape(), last), walked = shape;
    llvm::append_range(walked, window.getSizes());
    Value windows = loom::WindowOp::create(
        builder, window.getLoc(), RankedTensorType::get(walked, type.getElementType()), source,
        dims, window.getSizes(), window.getStrides(), window.getDilations());
    Value made = loom::ReduceOp::create(builder, op.getLoc(),
                                        RankedTensorType::get(shape, type.getElementType()),
                                        windows, op.getKind(), op.getDims());
    op.getOutput().replaceAllUsesWith(transposeTo(builder, made, getFirstOrder(rank)));
  }

  /// An operand with the channels last, at no cost.
  static Value view(OpBuilder &builder, Value value, ArrayRef<int64_t> last) {
    if (Value source = matchTranspose(value, getFirstOrder(last.size())))
      return source;
    RankedTensorType type = getType(value);
    auto moved = RankedTensorType::get(reorder(type.getShape(), last), type.getElementType());
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast<loom::ConstantOp>(op)) {
      auto splat = cast<SplatElementsAttr>(constant.getValue());
      return loom::ConstantOp::create(builder, op->getLoc(), moved, splat.resizeSplat(moved));
    }
    auto broadcast = cast<loom::BroadcastOp>(op);
    auto dims = llvm::map_to_vector(broadcast.getDims(), [&](int64_t dim) -> int64_t {
      return llvm::find(last, dim) - last.begin();
    });
    Value input = broadcast.getInput();
    // A broadcast's dimensions must increase.
    auto places = llvm::to_vector(llvm::seq<int64_t>(0, dims.size()));
    llvm::sort(places, [&](int64_t a, int64_t b) { return dims[a] < dims[b]; });
    llvm::sort(dims);
    return loom::BroadcastOp::create(builder, op->getLoc(), moved,
                                     transposeTo(builder, input, places), dims);
  }

  llvm::DenseMap<Value, Value> moved;
  llvm::DenseMap<Attribute, StringAttr> weights; ///< by the name that they should have
  llvm::DenseSet<Value> reordered;               ///< results whose channels are windows first
};

} // namespace
} // namespace gridloom
