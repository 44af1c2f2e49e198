//===- ChannelsLast.cpp - convolutions with channels last -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
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
    for (plan::ConvolutionOp op : convolutions)
      convert(op);
    getOperation().walk([&](func::FuncOp func) {
      for (Operation &op : llvm::make_early_inc_range(func.front()))
        sinkTransposes(&op);
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
    auto made = plan::ConvolutionOp::create(builder, op.getLoc(), lastType, moveLast(op.getInput()),
                                            f32 ? op.getWeight() : moveWeight(op.getWeight()),
                                            op.getBias(), residual, descriptor);
    Value result = transposeTo(builder, made.getOutput(), getFirstOrder(rank));
    op.getOutput().replaceAllUsesWith(result);
    op.erase();
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

  /// As moveLast, but for a weight in the prologue, once at load.
  Value moveWeight(Value weight) {
    auto get = weight.getDefiningOp<loom::GetWeightOp>();
    if (!get)
      return moveLast(weight);
    auto sharding = dyn_cast_or_null<dist::ShardingAttr>(get.getShardingAttr());
    if (get.getShardingAttr() && !sharding)
      return moveLast(weight);
    SmallVector<int64_t> order = getLastOrder(getType(weight).getRank());
    if (sharding && !sharding.getDims().empty())
      sharding = dist::ShardingAttr::get(get.getContext(), sharding.getMesh(),
                                         reorder<dist::DimShardingAttr>(sharding.getDims(), order),
                                         sharding.getUnreduced(), sharding.getReduction());
    OpBuilder builder(get);
    RankedTensorType type = getType(weight);
    auto made = loom::GetWeightOp::create(
        builder, get.getLoc(),
        RankedTensorType::get(reorder(type.getShape(), order), type.getElementType()),
        FlatSymbolRefAttr::get(deriveWeight(get.getNameAttr())), sharding, getPlainLayout(type));
    return made.getOutput();
  }

  static loom::LayoutAttr getPlainLayout(RankedTensorType type) {
    auto order = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    return loom::LayoutAttr::get(type.getContext(), order, 0);
  }

  /// Declares the weight or derived tensor `name` with the channels last as a derived tensor.
  StringAttr deriveWeight(FlatSymbolRefAttr name) {
    StringAttr &known = weights[name];
    if (known)
      return known;
    ModuleOp module = getOperation();
    Operation *source = SymbolTable::lookupSymbolIn(module, name);
    std::string symbol = name.getValue().str() + ".channels_last";
    while (SymbolTable::lookupSymbolIn(module, symbol))
      symbol += "_";
    known = StringAttr::get(module.getContext(), symbol);
    OpBuilder builder(source);
    builder.setInsertionPointAfter(source);
    auto derived = dyn_cast<loom::DerivedOp>(source);
    RankedTensorType type =
        derived ? derived.getTensorType() : cast<loom::WeightOp>(source).getTensorType();
    SmallVector<int64_t> order = getLastOrder(type.getRank());
    auto moved = RankedTensorType::get(reorder(type.getShape(), order), type.getElementType());
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

  /// Handles what is exchanged along the edges of pictures; other collectives have a dimension of
  /// their own, along which their data is contiguous.
  void sinkBelow(dist::DoneOp op) {
    auto start = op.getFuture().getDefiningOp<dist::StartOp>();
    auto permute = start ? dyn_cast<dist::PermuteOp>(start.getBody().front().front()) : nullptr;
    if (!permute || !start->hasOneUse())
      return;
    int64_t rank = getType(permute.getOutput()).getRank();
    Value source = rank < 3 ? Value() : matchTranspose(permute.getInput(), getFirstOrder(rank));
    if (!source)
      return;
    permute.getInputMutable().assign(source);
    permute.getOutput().setType(getType(source));
    start.getFuture().setType(dist::FutureType::get(op.getContext(), {source.getType()}));
    OpBuilder builder(op->getBlock(), std::next(op->getIterator()));
    Value output = op.getOutputs().front();
    auto transposed = cast<RankedTensorType>(output.getType());
    output.setType(source.getType());
    auto whole =
        loom::TransposeOp::create(builder, op.getLoc(), transposed, output, getFirstOrder(rank));
    output.replaceAllUsesExcept(whole, whole);
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
  llvm::DenseMap<Attribute, StringAttr> weights;
};

} // namespace
} // namespace gridloom
