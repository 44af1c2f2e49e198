//===- TensorMutations.cpp - faults of programs on tensors ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "Mutations.h"

#include "dialects/dist/Sharding.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom;
using gridloom::testing::Mutation;

namespace {

class Finder {
public:
  explicit Finder(ModuleOp module) : module(module), mesh(dist::getMesh(module)) {}

  std::vector<Mutation> find() {
    module.walk([&](Operation *op) {
      TypeSwitch<Operation *>(op)
          .Case<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp,
                dist::PermuteOp, dist::ShardSliceOp>([&](auto collective) {
            visitAxes(collective);
            visitDropped(collective);
            visit(collective);
          })
          .Case([&](dist::AxisIndexOp index) { visitAxes(index); })
          .Case([&](dist::StartOp start) { visitStart(start); })
          .Case<dist::SendOp, dist::RecvOp, loom::SelectOp, loom::CompareOp, loom::ConstantOp,
                loom::SliceOp, loom::PadOp, loom::ConcatenateOp, loom::ReduceOp, loom::GetWeightOp,
                plan::MatmulOp, plan::CallOp>([&](auto each) { visit(each); })
          .Case([&](func::FuncOp function) { visitFunction(function); });
    });
    return std::move(mutations);
  }

private:
  void add(const char *kind, Operation *op, const Twine &what, std::function<void()> plant,
           std::string equivalent = "") {
    mutations.push_back(
        {kind,
         (op->getName().getStringRef() + " '" + loom::getNodeName(op->getLoc()) + "': " + what)
             .str(),
         std::move(equivalent), std::move(plant)});
  }
  int64_t getGroupSize(ArrayAttr axes) const {
    int64_t size = 1;
    for (StringRef axis : axes.getAsValueRange<StringAttr>())
      size *= dist::MeshOp(mesh).getAxisSize(axis);
    return size;
  }
  static std::string same(bool condition, const char *why) { return condition ? why : ""; }
  static bool isIdempotent(dist::ReductionKind kind) {
    return kind == dist::ReductionKind::Max || kind == dist::ReductionKind::Min;
  }

  void addSwap(Operation *op, unsigned i, StringRef what);
  template <typename Op> void visitAxes(Op op);
  template <typename Op> void visitDropped(Op op);
  void visitReduction(Operation *op, dist::ReductionKind kind, StringRef name, bool single);
  void visit(dist::AllReduceOp op);
  void visit(dist::AllGatherOp op);
  void visit(dist::ReduceScatterOp op);
  void visit(dist::AllToAllOp op);
  void visit(dist::PermuteOp op);
  void visit(dist::ShardSliceOp op);
  void visit(dist::SendOp op);
  void visit(dist::RecvOp op);
  void visit(loom::SelectOp op);
  void visit(loom::CompareOp op);
  void visit(loom::ConstantOp op);
  void visit(loom::SliceOp op);
  void visit(loom::PadOp op);
  void visit(loom::ConcatenateOp op);
  void visit(loom::ReduceOp op);
  void visit(loom::GetWeightOp op);
  void visit(plan::MatmulOp op);
  void visit(plan::CallOp op);
  void visitStart(dist::StartOp op);
  void visitFunction(func::FuncOp op);
  void visitSharding(Operation *op, const char *kind, const Twine &what,
                     dist::ShardingAttr sharding, std::function<void(dist::ShardingAttr)> set);

  ModuleOp module;
  dist::MeshOp mesh;
  std::vector<Mutation> mutations;
};

ArrayAttr makeAxes(MLIRContext *context, ArrayRef<StringRef> names) {
  return Builder(context).getStrArrayAttr(names);
}

} // namespace

bool gridloom::testing::dependsOnPlace(Value value) {
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitBlockArguments = true;
  SetVector<Operation *> slice;
  if (Operation *op = value.getDefiningOp())
    (void)getBackwardSlice(op, &slice, options);
  return llvm::any_of(slice, [](Operation *op) { return isa<dist::AxisIndexOp>(op); });
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Another axis, one axis less, one more, and the axes in another order.
template <typename Op> void Finder::visitAxes(Op op) {
  SmallVector<StringRef> own(op.getAxes().template getAsValueRange<StringAttr>());
  auto set = [op](ArrayAttr axes) { return [op, axes]() mutable { op.setAxesAttr(axes); }; };
  int64_t size = getGroupSize(op.getAxes());
  for (auto axis : mesh.getAxes().getAsRange<dist::AxisAttr>()) {
    StringRef name = axis.getName();
    if (name == dist::MeshOp::kMicroAxis || llvm::is_contained(own, name))
      continue;
    SmallVector<StringRef> other(own);
    other.back() = name;
    add("wrong group", op, "over " + name + " instead of " + own.back(),
        set(makeAxes(op.getContext(), other)));
    other = own;
    other.push_back(name);
    add("wrong group", op, "also over " + name, set(makeAxes(op.getContext(), other)),
        same(axis.getSize() == 1, "an axis of size 1"));
  }
  if (own.size() > 1) {
    SmallVector<StringRef> fewer(ArrayRef(own).drop_back());
    ArrayAttr axes = makeAxes(op.getContext(), fewer);
    add("wrong group", op, "not over " + own.back(), set(axes),
        same(getGroupSize(axes) == size, "an axis of size 1"));
    SmallVector<StringRef> reversed(llvm::reverse(own));
    bool anyOrder = isa<dist::AllReduceOp>(op.getOperation());
    add("wrong axis order", op, "axes reversed", set(makeAxes(op.getContext(), reversed)),
        same(anyOrder, "a reduction takes its members in any order"));
  }
}

/// Replaces a collective by the device's own value.
template <typename Op> void Finder::visitDropped(Op op) {
  // visitStart drops whole groups.
  if (isa<dist::StartOp>(op->getParentOp()))
    return;
  std::string equivalent = same(getGroupSize(op.getAxes()) == 1, "a group of one");
  if (op->getOperandTypes() == op->getResultTypes()) {
    add(
        "dropped collective", op, "each device keeps its own",
        [op]() mutable {
          op->replaceAllUsesWith(op->getOperands());
          op->erase();
        },
        equivalent);
    return;
  }
  Value input = op->getOperand(0), output = op->getResult(0);
  auto from = cast<RankedTensorType>(input.getType()),
       to = cast<RankedTensorType>(output.getType());
  // Repeats the own part n times, or takes the first of n parts.
  int64_t grown = -1, shrunk = -1;
  for (int64_t i = 0; i < from.getRank(); ++i) {
    if (to.getDimSize(i) > from.getDimSize(i))
      grown = i;
    else if (to.getDimSize(i) < from.getDimSize(i))
      shrunk = i;
  }
  if (grown >= 0 && shrunk < 0)
    add(
        "dropped collective", op, "each device repeats its own",
        [op, input, to, grown, from]() mutable {
          OpBuilder builder(op);
          SmallVector<Value> copies(to.getDimSize(grown) / from.getDimSize(grown), input);
          op->replaceAllUsesWith(
              loom::ConcatenateOp::create(builder, op->getLoc(), to, copies, grown));
          op->erase();
        },
        equivalent);
  else if (shrunk >= 0 && grown < 0)
    add(
        "dropped collective", op, "each device takes the first part of its own",
        [op, input, to]() mutable {
          OpBuilder builder(op);
          SmallVector<int64_t> starts(to.getRank(), 0), strides(to.getRank(), 1);
          op->replaceAllUsesWith(loom::SliceOp::create(builder, op->getLoc(), to, input, starts,
                                                       to.getShape(), strides));
          op->erase();
        },
        equivalent);
}

void Finder::visitReduction(Operation *op, dist::ReductionKind kind, StringRef name, bool single) {
  for (dist::ReductionKind other : {dist::ReductionKind::Sum, dist::ReductionKind::Max,
                                    dist::ReductionKind::Min, dist::ReductionKind::Prod}) {
    // One wrong kind for each correct kind is enough, and two for a sum.
    bool chosen =
        kind == dist::ReductionKind::Sum ? isIdempotent(other) : other == dist::ReductionKind::Sum;
    if (chosen)
      add(
          "wrong reduction", op,
          dist::stringifyReductionKind(other) + " instead of " + dist::stringifyReductionKind(kind),
          [op, other, name] {
            op->setAttr(name, dist::ReductionKindAttr::get(op->getContext(), other));
          },
          same(single, "it reduces one value"));
  }
}

/// Swaps operands i and i + 1.
void Finder::addSwap(Operation *op, unsigned i, StringRef what) {
  add(
      "swapped operands", op, what + " " + Twine(i) + " and " + Twine(i + 1),
      [op, i] {
        Value first = op->getOperand(i);
        op->setOperand(i, op->getOperand(i + 1));
        op->setOperand(i + 1, first);
      },
      same(op->getOperand(i) == op->getOperand(i + 1), "one value twice"));
}

void Finder::visit(dist::AllReduceOp op) {
  bool single = getGroupSize(op.getAxes()) == 1;
  visitReduction(op, op.getReduction(), "reduction", single);
  if (!isa<dist::StartOp>(op->getParentOp()))
    add(
        "doubled collective", op, "reduced twice",
        [op]() mutable {
          OpBuilder builder(op->getContext());
          builder.setInsertionPointAfter(op);
          Operation *again = builder.clone(*op);
          op->replaceAllUsesWith(again);
          again->setOperands(op->getResults());
        },
        same(isIdempotent(op.getReduction()) || single, "a maximum of equals, or one value"));
  for (unsigned i = 0; i + 1 < op->getNumOperands(); ++i)
    if (op.getInputs()[i].getType() == op.getInputs()[i + 1].getType())
      addSwap(op, i, "operands");
}

void Finder::visit(dist::AllGatherOp op) {
  if (op.getInput().getType().getRank() > 1)
    add("wrong dimension", op, "gathers the next dimension",
        [op]() mutable { op.setDim((op.getDim() + 1) % op.getInput().getType().getRank()); });
}

void Finder::visit(dist::ReduceScatterOp op) {
  visitReduction(op, op.getReduction(), "reduction", getGroupSize(op.getAxes()) == 1);
  if (op.getInput().getType().getRank() > 1)
    add("wrong dimension", op, "scatters the next dimension",
        [op]() mutable { op.setDim((op.getDim() + 1) % op.getInput().getType().getRank()); });
}

void Finder::visit(dist::AllToAllOp op) {
  if (op.getSplitDim() != op.getConcatDim())
    add("wrong dimension", op, "split and concatenated dimensions exchanged", [op]() mutable {
      uint64_t split = op.getSplitDim();
      op.setSplitDim(op.getConcatDim());
      op.setConcatDim(split);
    });
}

void Finder::visit(dist::PermuteOp op) {
  SmallVector<int64_t> own(op.getPermutation());
  auto change = [&](const char *what, const SmallVector<int64_t> &other) {
    add(
        "wrong peer", op, what, [op, other]() mutable { op.setPermutation(other); },
        same(ArrayRef(other) == op.getPermutation(), "the same permutation"));
  };
  SmallVector<int64_t> rotated(own), reversed(llvm::reverse(own)), next(own);
  std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
  for (int64_t &from : next)
    from = (from + 1) % static_cast<int64_t>(own.size());
  change("permutation rotated", rotated);
  change("permutation reversed", reversed);
  change("from the member after", next);
}

void Finder::visit(dist::ShardSliceOp op) {
  if (op.getInput().getType().getRank() > 1)
    add("wrong dimension", op, "keeps a part of the next dimension",
        [op]() mutable { op.setDim((op.getDim() + 1) % op.getInput().getType().getRank()); });
}

void Finder::visitStart(dist::StartOp start) {
  auto done = dyn_cast<dist::DoneOp>(*start.getFuture().user_begin());
  Operation &first = start.getBody().front().front();
  if (!done || isa<dist::SendOp, dist::RecvOp>(first))
    return;
  if (first.getOperandTypes() == first.getResultTypes()) {
    bool single = getGroupSize(first.getAttrOfType<ArrayAttr>("axes")) == 1;
    add(
        "dropped collective", start, "each device keeps its own",
        [start, done, &first]() mutable {
          done->replaceAllUsesWith(first.getOperands());
          done.erase();
          start.erase();
        },
        same(single, "a group of one"));
    // The operation is started and awaited, but its operand is used as the result.
    add(
        "stale value", start, "the operand is read instead of the result",
        [done, &first]() mutable { done->replaceAllUsesWith(first.getOperands()); },
        same(single, "a group of one"));
    if (auto reduce = dyn_cast<dist::AllReduceOp>(first))
      add(
          "doubled collective", start, "reduced twice",
          [start, done]() mutable {
            OpBuilder builder(start->getContext());
            builder.setInsertionPointAfter(done);
            auto again = cast<dist::StartOp>(builder.clone(*start));
            auto second = cast<dist::DoneOp>(builder.clone(*done));
            done->replaceAllUsesWith(second);
            second->setOperand(0, again.getFuture());
            again.getBody().front().front().setOperands(done->getResults());
          },
          same(isIdempotent(reduce.getReduction()) || single, "a maximum of equals"));
  }
  add("dropped wait", start, "no dist.done", [done]() mutable {
    OpBuilder builder(done);
    SmallVector<Value> values;
    for (Type type : done->getResultTypes()) {
      auto tensor = cast<RankedTensorType>(type);
      Attribute zero = builder.getZeroAttr(tensor.getElementType());
      values.push_back(
          loom::ConstantOp::create(builder, done->getLoc(), DenseElementsAttr::get(tensor, zero)));
    }
    done->replaceAllUsesWith(values);
    done.erase();
  });
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

void Finder::visit(dist::SendOp op) {
  add("wrong peer", op, "to the next stage", [op]() mutable { op.setStage(op.getStage() + 1); });
  add("wrong channel", op, "on another channel",
      [op]() mutable { op.setChannel(op.getChannel() + 1); });
  // A value of the same type that was computed earlier.
  auto function = op->getParentOfType<func::FuncOp>();
  Value stale;
  function.walk([&](Operation *other) {
    for (Value result : other->getResults())
      if (result.getType() == op.getInput().getType() && result != op.getInput() &&
          other->getBlock() == &function.front() && !stale &&
          other->isBeforeInBlock(function.front().findAncestorOpInBlock(*op)))
        stale = result;
  });
  if (stale)
    add("stale value", op, "sends an older value of its type",
        [op, stale]() mutable { op->setOperand(0, stale); });
}

void Finder::visit(dist::RecvOp op) {
  add("wrong peer", op, "from the next stage", [op]() mutable { op.setStage(op.getStage() + 1); });
  add("wrong channel", op, "on another channel",
      [op]() mutable { op.setChannel(op.getChannel() + 1); });
}

//===----------------------------------------------------------------------===//
// Masks, halos and local work
//===----------------------------------------------------------------------===//

void Finder::visit(loom::SelectOp op) {
  bool isKernel = isa<plan::KernelOp>(op->getParentOp());
  if (!isKernel && !gridloom::testing::dependsOnPlace(op.getPredicate()))
    return;
  for (unsigned side : {1u, 2u})
    add("missing mask", op, side == 1 ? "always the first" : "always the second",
        [op, side]() mutable {
          op->replaceAllUsesWith(ValueRange(op->getOperand(side)));
          op->erase();
        });
}

void Finder::visit(loom::CompareOp op) {
  using Direction = loom::Direction;
  static const std::pair<Direction, Direction> kOthers[] = {
      {Direction::LT, Direction::LE}, {Direction::LE, Direction::LT},
      {Direction::GT, Direction::GE}, {Direction::GE, Direction::GT},
      {Direction::EQ, Direction::NE}, {Direction::NE, Direction::EQ}};
  for (auto [own, other] : kOthers)
    if (op.getDirection() == own)
      add("off by one", op,
          loom::stringifyDirection(other) + " instead of " + loom::stringifyDirection(own),
          [op, other = other]() mutable { op.setDirection(other); });
}

void Finder::visit(loom::ConstantOp op) {
  auto splat = dyn_cast<SplatElementsAttr>(op.getValue());
  if (!splat)
    return;
  auto type = cast<RankedTensorType>(op.getType());
  auto set = [op, type](Attribute value) {
    return [op, type, value]() mutable { op.setValueAttr(DenseElementsAttr::get(type, value)); };
  };
  Builder builder(op.getContext());
  // The value that a mask puts into padding.
  if (isa<FloatType>(type.getElementType())) {
    double own = splat.getSplatValue<APFloat>().convertToDouble();
    double other = own == 0 ? 1 : own == 1 ? 2 : 0;
    add("wrong neutral element", op, std::to_string(other) + " instead of " + std::to_string(own),
        set(builder.getFloatAttr(type.getElementType(), other)));
  } else if (type.getElementType().isInteger(64)) {
    int64_t own = splat.getSplatValue<APInt>().getSExtValue();
    if (own == std::numeric_limits<int64_t>::max() || own == std::numeric_limits<int64_t>::min()) {
      add("wrong neutral element", op, "0 instead of " + Twine(own),
          set(builder.getI64IntegerAttr(0)));
      return;
    }
    add("off by one", op, Twine(own + 1) + " instead of " + Twine(own),
        set(builder.getI64IntegerAttr(own + 1)));
    add("off by one", op, Twine(own - 1) + " instead of " + Twine(own),
        set(builder.getI64IntegerAttr(own - 1)));
  }
}

void Finder::visit(loom::SliceOp op) {
  ArrayRef<int64_t> shape = op.getInput().getType().getShape();
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (int64_t step : {-1, 1}) {
      SmallVector<int64_t> starts(op.getStarts()), limits(op.getLimits());
      starts[dim] += step;
      limits[dim] += step;
      if (starts[dim] < 0 || limits[dim] > shape[dim])
        continue;
      add("off-by-one halo", op, "dimension " + Twine(dim) + " from " + Twine(starts[dim]),
          [op, starts, limits]() mutable {
            op.setStarts(starts);
            op.setLimits(limits);
          });
    }
}

void Finder::visit(loom::PadOp op) {
  for (size_t dim = 0; dim < op.getLow().size(); ++dim)
    for (int64_t step : {-1, 1}) {
      SmallVector<int64_t> low(op.getLow()), high(op.getHigh());
      low[dim] += step;
      high[dim] -= step;
      if (low[dim] < 0 || high[dim] < 0)
        continue;
      add("off-by-one halo", op, "dimension " + Twine(dim) + " padded by " + Twine(low[dim]),
          [op, low, high]() mutable {
            op.setLow(low);
            op.setHigh(high);
          });
    }
}

void Finder::visit(loom::ConcatenateOp op) {
  for (unsigned i = 0; i + 1 < op->getNumOperands(); ++i)
    addSwap(op, i, "parts");
}

void Finder::visit(loom::ReduceOp op) {
  int64_t elements = 1;
  for (int64_t dim : op.getDims())
    elements *= op.getInput().getType().getDimSize(dim);
  visitReduction(op, op.getKind(), "kind", elements == 1);
}

void Finder::visit(loom::GetWeightOp op) {
  if (auto sharding = dyn_cast_or_null<dist::ShardingAttr>(op.getShardingAttr()))
    visitSharding(op, "wrong shard", "the weight's", sharding,
                  [op](dist::ShardingAttr other) mutable { op.setShardingAttr(other); });
}

/// Axes on the next dimension, on none, or in another order: the device gets another part.
void Finder::visitSharding(Operation *op, const char *kind, const Twine &what,
                           dist::ShardingAttr sharding,
                           std::function<void(dist::ShardingAttr)> set) {
  dist::Mesh parsed(mesh);
  dist::Sharding current(sharding);
  auto change = [&](const char *how, const dist::Sharding &other) {
    dist::ShardingAttr attr = other.getAttr(parsed);
    if (attr != sharding)
      add(kind, op, what + " sharding " + how, [set, attr] { set(attr); });
  };
  for (auto [i, dim] : llvm::enumerate(current.dims)) {
    if (dim.axes.empty() || dim.axes[0] == dist::MeshOp::kMicroAxis)
      continue;
    dist::Sharding none = current, moved = current, reversed = current;
    none.dims[i].axes.clear();
    change("without a dimension's axes", none);
    std::swap(moved.dims[i].axes, moved.dims[(i + 1) % moved.dims.size()].axes);
    change("with a dimension's axes on the next", moved);
    std::reverse(reversed.dims[i].axes.begin(), reversed.dims[i].axes.end());
    change("with axes in another order", reversed);
    for (const dist::Mesh::Axis &axis : parsed.getAxes()) {
      if (current.usesAxis(axis.name) || axis.name == dist::MeshOp::kMicroAxis)
        continue;
      dist::Sharding other = current;
      other.dims[i].axes.back() = axis.name;
      change("over another axis", other);
    }
  }
}

void Finder::visitFunction(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (auto sharding = function.getArgAttrOfType<dist::ShardingAttr>(i, dist::kSharding))
      visitSharding(function, "wrong shard", "argument " + Twine(i), sharding,
                    [function, i](dist::ShardingAttr other) mutable {
                      function.setArgAttr(i, dist::kSharding, other);
                    });
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto sharding = function.getResultAttrOfType<dist::ShardingAttr>(i, dist::kSharding))
      visitSharding(function, "wrong shard", "result " + Twine(i), sharding,
                    [function, i](dist::ShardingAttr other) mutable {
                      function.setResultAttr(i, dist::kSharding, other);
                    });
  if (auto count = function->getAttrOfType<IntegerAttr>(dist::kMicrobatches))
    add("wrong micro-batch count", function, Twine(count.getInt() + 1) + " micro-batches",
        [function, count]() mutable {
          function->setAttr(dist::kMicrobatches,
                            IntegerAttr::get(count.getType(), count.getInt() + 1));
        });
}

//===----------------------------------------------------------------------===//
// Kernels and library calls
//===----------------------------------------------------------------------===//

void Finder::visit(plan::MatmulOp op) {
  plan::MatmulAttr own = op.getDescriptor();
  auto with = [&](const char *what, ArrayRef<int64_t> sizes, ArrayRef<int64_t> lhs,
                  ArrayRef<int64_t> rhs) {
    auto other = plan::MatmulAttr::get(op.getContext(), sizes, lhs, rhs, own.getOut(),
                                       own.getAlpha(), own.getEpilogue(), own.getTf32());
    if (other != own)
      add("wrong library call", op, what, [op, other]() mutable { op.setDescriptorAttr(other); });
  };
  auto swapped = [](ArrayRef<int64_t> strides) {
    SmallVector<int64_t> result(strides);
    std::swap(result[result.size() - 1], result[result.size() - 2]);
    return result;
  };
  ArrayRef<int64_t> sizes = own.getSizes();
  with("the lhs transposed", sizes, swapped(own.getLhs()), own.getRhs());
  with("the rhs transposed", sizes, own.getLhs(), swapped(own.getRhs()));
  SmallVector<int64_t> fewer(sizes);
  if (--fewer.back() > 0)
    with("one term less", fewer, own.getLhs(), own.getRhs());
}

/// True if both arguments are only used by one operation that is commutative in them.
static bool areInterchangeable(Block &body, unsigned i, unsigned j) {
  Value first = body.getArgument(i), second = body.getArgument(j);
  if (!first.hasOneUse() || !second.hasOneUse() || *first.user_begin() != *second.user_begin())
    return false;
  return isa<loom::AddOp, loom::MultiplyOp, loom::MaximumOp, loom::MinimumOp, loom::AndOp,
             loom::OrOp>(*first.user_begin());
}

bool gridloom::testing::areInterchangeable(Operation *op, FlatSymbolRefAttr name, unsigned i,
                                           unsigned j) {
  auto kernel = op->getParentOfType<ModuleOp>().lookupSymbol<plan::KernelOp>(name.getValue());
  return kernel && ::areInterchangeable(kernel.getBody().front(), i, j);
}

void Finder::visit(plan::CallOp op) {
  for (unsigned i = 0; i + 1 < op->getNumOperands(); ++i)
    if (op->getOperand(i).getType() == op->getOperand(i + 1).getType())
      add(
          "swapped operands", op, "operands " + Twine(i) + " and " + Twine(i + 1),
          [op, i]() mutable {
            Value first = op->getOperand(i);
            op->setOperand(i, op->getOperand(i + 1));
            op->setOperand(i + 1, first);
          },
          same(op->getOperand(i) == op->getOperand(i + 1) ||
                   gridloom::testing::areInterchangeable(op, op.getKernelAttr(), i, i + 1),
               "operands that commute"));
}

std::vector<Mutation> gridloom::testing::findTensorMutations(ModuleOp module) {
  return Finder(module).find();
}
