//===- FormMatmuls.cpp - contractions to library calls --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/ExpandContractions.h"
#include "passes/fuse/FusionGroups.h"
#include "passes/fuse/Passes.h"
#include "passes/fuse/RowProducts.h"
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_FORMMATMULS
#include "passes/fuse/Passes.h.inc"

namespace {

/// One loop of a contraction and its stride in each tensor; 0 if the tensor lacks the dimension.
struct Loop {
  int64_t size = 1, lhs = 0, rhs = 0, out = 0;
};

/// A contraction as a batched matrix multiplication.
struct Gemm {
  SmallVector<Loop> batch;
  Loop m, n, k;
  bool swapped = false; // computes the transposed product, with lhs and rhs swapped
};

/// The dimensions of a contraction by role.
struct Loops {
  SmallVector<Loop> batch, m, n, k;
};

/// Appends a loop, or merges it into the last one if both can be one loop over memory.
void addLoop(SmallVector<Loop> &loops, Loop loop) {
  if (loop.size == 1)
    return;
  if (!loops.empty()) {
    Loop &outer = loops.back();
    if (outer.lhs == loop.lhs * loop.size && outer.rhs == loop.rhs * loop.size &&
        outer.out == loop.out * loop.size) {
      loop.size *= outer.size;
      outer = loop;
      return;
    }
  }
  loops.push_back(loop);
}

Loops getLoops(loom::DotGeneralOp dot, ArrayRef<int64_t> lhs, ArrayRef<int64_t> rhs,
               ArrayRef<int64_t> out) {
  ArrayRef<int64_t> lhsShape = cast<RankedTensorType>(dot.getLhs().getType()).getShape();
  ArrayRef<int64_t> rhsShape = cast<RankedTensorType>(dot.getRhs().getType()).getShape();
  Loops loops;
  int64_t next = 0; // the result's dimensions: batch, lhs's others, rhs's others
  for (auto [l, r] : llvm::zip_equal(dot.getLhsBatch(), dot.getRhsBatch()))
    addLoop(loops.batch, {lhsShape[l], lhs[l], rhs[r], out[next++]});
  for (int64_t l : dot.getLhsFreeDims())
    addLoop(loops.m, {lhsShape[l], lhs[l], 0, out[next++]});
  for (int64_t r : dot.getRhsFreeDims())
    addLoop(loops.n, {rhsShape[r], 0, rhs[r], out[next++]});
  for (auto [l, r] : llvm::zip_equal(dot.getLhsContract(), dot.getRhsContract()))
    addLoop(loops.k, {lhsShape[l], lhs[l], rhs[r], 0});
  return loops;
}

/// Sets one of a matrix's two strides to 1 where a dimension of one element allows any. False if
/// the library cannot read the matrix.
bool fixStrides(int64_t rows, int64_t &rowStride, int64_t columns, int64_t &columnStride) {
  if (columns == 1)
    columnStride = rows > 1 && rowStride == 1 ? rows : 1;
  if (rows == 1)
    rowStride = columnStride == 1 ? columns : 1;
  return (columnStride == 1 && rowStride >= columns) || (rowStride == 1 && columnStride >= rows);
}

/// Checks the three matrices; transposes the product if its rows are not contiguous.
bool finish(Gemm &gemm) {
  if (!fixStrides(gemm.m.size, gemm.m.lhs, gemm.k.size, gemm.k.lhs) ||
      !fixStrides(gemm.k.size, gemm.k.rhs, gemm.n.size, gemm.n.rhs) ||
      !fixStrides(gemm.m.size, gemm.m.out, gemm.n.size, gemm.n.out))
    return false;
  if (gemm.n.out == 1)
    return true;
  std::swap(gemm.m, gemm.n);
  for (Loop *loop : {&gemm.m, &gemm.n, &gemm.k})
    std::swap(loop->lhs, loop->rhs);
  for (Loop &loop : gemm.batch)
    std::swap(loop.lhs, loop.rhs);
  gemm.swapped = true;
  return true;
}

/// Chooses the loops M and N of the largest multiplication per call; the other loops become batch.
std::optional<Gemm> getGemm(const Loops &loops) {
  if (loops.k.size() > 1)
    return std::nullopt;
  auto orUnit = [](SmallVector<Loop> list) {
    if (list.empty())
      list.push_back(Loop());
    return list;
  };
  SmallVector<Loop> ms = orUnit(loops.m), ns = orUnit(loops.n);
  std::optional<Gemm> best;
  for (auto [i, m] : llvm::enumerate(ms)) {
    for (auto [j, n] : llvm::enumerate(ns)) {
      if (best && m.size * n.size <= best->m.size * best->n.size)
        continue;
      Gemm gemm{loops.batch, m, n, loops.k.empty() ? Loop() : loops.k.front()};
      for (auto [other, loop] : llvm::enumerate(ms))
        if (other != i)
          gemm.batch.push_back(loop);
      for (auto [other, loop] : llvm::enumerate(ns))
        if (other != j)
          gemm.batch.push_back(loop);
      if (finish(gemm))
        best = gemm;
    }
  }
  return best;
}

/// The operations after a contraction that can be part of the call: scalar factors, reshapes, a
/// transpose.
struct Tail {
  SmallVector<Operation *> path; // beginning after the contraction
  double scale = 1;

  Value getResult(loom::DotGeneralOp dot) const {
    return path.empty() ? Value(dot.getOutput()) : path.back()->getResult(0);
  }
  bool movesElements() const {
    return llvm::any_of(path, [](Operation *op) { return isa<loom::TransposeOp>(op); });
  }
};

/// All tails, the longest first, the empty one last. None ends in a reshape, which is free anyway.
SmallVector<Tail> getTails(loom::DotGeneralOp dot) {
  SmallVector<Tail> tails(1);
  Tail tail;
  for (Value value = dot.getOutput(); value.hasOneUse();) {
    Operation *user = *value.getUsers().begin();
    auto scale = matchScale(user);
    bool scales = scale && scale->first == value && isModerate(tail.scale * scale->second);
    if (!scales && !isa<loom::TransposeOp, loom::ReshapeOp>(user))
      break;
    tail.path.push_back(user);
    tail.scale *= scales ? scale->second : 1;
    value = user->getResult(0);
    if (!isa<loom::ReshapeOp>(user))
      tails.push_back(tail);
  }
  std::reverse(tails.begin(), tails.end());
  return tails;
}

/// Strides of the contraction's own result within the tensor at the tail's end.
std::optional<SmallVector<int64_t>> getTailStrides(loom::DotGeneralOp dot, const Tail &tail) {
  std::optional<SmallVector<int64_t>> strides = getMemoryStrides(tail.getResult(dot));
  for (Operation *op : llvm::reverse(tail.path)) {
    if (auto transpose = dyn_cast<loom::TransposeOp>(op)) {
      SmallVector<int64_t> inner(strides->size());
      for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
        inner[dim] = (*strides)[i];
      strides = inner;
    } else if (auto reshape = dyn_cast<loom::ReshapeOp>(op)) {
      auto to = cast<RankedTensorType>(reshape.getInput().getType()).getShape();
      strides = reshapeStrides(cast<RankedTensorType>(reshape.getType()).getShape(), *strides, to);
    }
    if (!strides)
      return std::nullopt;
  }
  return strides;
}

struct Choice {
  StridedView lhs, rhs;
  Tail tail;
  Gemm gemm;
};

/// The farthest operands and the longest tail that the library supports.
std::optional<Choice> choose(loom::DotGeneralOp dot, ArrayRef<StridedView> lhsViews,
                             ArrayRef<StridedView> rhsViews) {
  SmallVector<int64_t> dense = getMemoryStrides(dot.getOutput());
  std::optional<Choice> choice;
  for (const StridedView &lhs : lhsViews) {
    for (const StridedView &rhs : rhsViews) {
      if (auto gemm = getGemm(getLoops(dot, lhs.strides, rhs.strides, dense)); gemm && !choice)
        choice = Choice{lhs, rhs, Tail(), *gemm};
    }
  }
  if (!choice)
    return choice;
  for (const Tail &tail : getTails(dot)) {
    std::optional<SmallVector<int64_t>> out = getTailStrides(dot, tail);
    if (!out)
      continue;
    auto gemm = getGemm(getLoops(dot, choice->lhs.strides, choice->rhs.strides, *out));
    // A transposed result must not cut the product into smaller ones: its reader can read it by
    // strides.
    if (!gemm || gemm->m.size * gemm->n.size < choice->gemm.m.size * choice->gemm.n.size)
      continue;
    choice->tail = tail;
    choice->gemm = *gemm;
    break;
  }
  return choice;
}

/// The same contraction on operands transposed to [batch, M, K] and [batch, K, N].
loom::DotGeneralOp makeCanonical(loom::DotGeneralOp dot) {
  OpBuilder builder(dot);
  SmallVector<int64_t> lhsOrder(dot.getLhsBatch()), rhsOrder(dot.getRhsBatch());
  llvm::append_range(lhsOrder, dot.getLhsFreeDims());
  llvm::append_range(lhsOrder, dot.getLhsContract());
  llvm::append_range(rhsOrder, dot.getRhsContract());
  llvm::append_range(rhsOrder, dot.getRhsFreeDims());
  int64_t numBatch = dot.getLhsBatch().size(), numContract = dot.getLhsContract().size();
  auto batch = llvm::to_vector(llvm::seq<int64_t>(0, numBatch));
  auto lhsContract =
      llvm::to_vector(llvm::seq<int64_t>(lhsOrder.size() - numContract, lhsOrder.size()));
  auto rhsContract = llvm::to_vector(llvm::seq<int64_t>(numBatch, numBatch + numContract));
  auto canonical = loom::DotGeneralOp::create(builder, dot.getLoc(), dot.getType(),
                                              transposeTo(builder, dot.getLhs(), lhsOrder),
                                              transposeTo(builder, dot.getRhs(), rhsOrder), batch,
                                              batch, lhsContract, rhsContract, dot.getTf32());
  dot.getOutput().replaceAllUsesWith(canonical.getOutput());
  dot.erase();
  return canonical;
}

/// The epilogue of a call.
struct MatchedEpilogue {
  SmallVector<Operation *> ops; // in order; what the call computes besides the product
  Value bias, residual;
  Operation *activation = nullptr;

  plan::Activation getActivation() const {
    if (!activation)
      return plan::Activation::None;
    return isa<loom::GeluOp>(activation) ? plan::Activation::Gelu : plan::Activation::Relu;
  }
};

plan::MatmulAttr getDescriptor(MLIRContext *context, const Gemm &gemm, double alpha,
                               const MatchedEpilogue &epilogue, bool tf32) {
  SmallVector<int64_t> sizes, lhs, rhs, out;
  for (const Loop &loop : gemm.batch) {
    sizes.push_back(loop.size);
    lhs.push_back(loop.lhs);
    rhs.push_back(loop.rhs);
    out.push_back(loop.out);
  }
  sizes.append({gemm.m.size, gemm.n.size, gemm.k.size});
  lhs.append({gemm.m.lhs, gemm.k.lhs});
  rhs.append({gemm.k.rhs, gemm.n.rhs});
  out.append({gemm.m.out, gemm.n.out});
  FloatAttr scale = alpha == 1 ? FloatAttr() : FloatAttr::get(Float64Type::get(context), alpha);
  return plan::MatmulAttr::get(context, sizes, lhs, rhs, out, scale,
                               plan::EpilogueAttr::get(context, epilogue.bias != nullptr,
                                                       epilogue.residual != nullptr,
                                                       epilogue.getActivation()),
                               tf32);
}

/// Predicts which operations will share a kernel, while the program still has all of them.
class KernelNeighbours {
public:
  explicit KernelNeighbours(ModuleOp module) {
    module.walk([&](func::FuncOp func) {
      for (Block &block : func.getBody())
        for (const FusionGroup &group : formFusionGroups(block)) {
          ++count;
          for (Operation *op : group.ops) // in several groups: repeated in each
            if (auto [it, isNew] = groups.insert({op, count}); !isNew)
              it->second = 0;
        }
    });
  }

  /// Forgets `op` before it is erased, since another may get its address.
  void forget(Operation *op) { groups.erase(op); }

  /// True if both are in one kernel.
  bool share(Operation *a, Operation *b) const {
    int group = groups.lookup(a);
    return group != 0 && group == groups.lookup(b);
  }

  /// True if the kernel that computes `value` also computes something from it: that kernel exists
  /// anyway. Views that a library can read through do not count.
  bool goesOn(Value value) const {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      if (!share(value.getDefiningOp(), user))
        return false;
      bool isView = isa<loom::TransposeOp, loom::SliceOp>(user) || matchScale(user);
      return !isView || goesOn(user->getResult(0));
    });
  }

private:
  llvm::DenseMap<Operation *, int> groups;
  int count = 0;
};

/// Relu or the tanh form of gelu, if nothing else reads `value`.
Operation *matchActivation(Value value) {
  if (!value.hasOneUse())
    return nullptr;
  Operation *user = *value.getUsers().begin();
  if (auto gelu = dyn_cast<loom::GeluOp>(user))
    return gelu.getForm() == loom::GeluForm::Tanh ? user : nullptr;
  if (!isa<loom::MaximumOp>(user))
    return nullptr;
  Value other = user->getOperand(user->getOperand(0) == value ? 1 : 0);
  return getFloatSplat(other) == 0.0 ? user : nullptr;
}

/// The vector with an element per column of `type` that `value` repeats along all rows. If there is
/// only one row, a weight that is a vector counts as a bias.
Value matchBias(Value value, RankedTensorType type) {
  int64_t columns = type.getShape().back();
  Operation *op = value.getDefiningOp();
  if (auto broadcast = dyn_cast_or_null<loom::BroadcastOp>(op)) {
    auto shape = cast<RankedTensorType>(broadcast.getInput().getType()).getShape();
    bool isVector = !shape.empty() && shape.back() == columns &&
                    broadcast.getDims().back() == type.getRank() - 1 &&
                    llvm::all_of(shape.drop_back(), [](int64_t size) { return size == 1; });
    return isVector ? broadcast.getInput() : Value();
  }
  while (auto reshape = dyn_cast_or_null<loom::ReshapeOp>(op))
    op = reshape.getInput().getDefiningOp();
  return type.getNumElements() == columns && isa_and_nonnull<loom::GetWeightOp>(op) ? value
                                                                                    : Value();
}

/// True if the library can add `value` to its product: it is in memory row by row, whatever becomes
/// of `add`.
bool matchResidual(Value value, Operation *add, const KernelNeighbours &neighbours) {
  Operation *op = value.getDefiningOp();
  if (op && (isa<loom::BroadcastOp, loom::ConstantOp>(op) || neighbours.share(op, add)))
    return false;
  auto type = cast<RankedTensorType>(value.getType());
  return getMemoryStrides(value) == loom::getRowMajorStrides(type.getShape());
}

/// The epilogue of the call: a bias, then a residual or an activation. Leaves to kernels what they
/// compute anyway.
MatchedEpilogue matchEpilogue(loom::DotGeneralOp dot, const Choice &choice,
                              const KernelNeighbours &neighbours, bool activations,
                              bool residuals) {
  Value result = choice.tail.getResult(dot);
  auto type = cast<RankedTensorType>(result.getType());
  MatchedEpilogue epilogue, longest;
  if (choice.tail.movesElements() || choice.gemm.swapped || type.getRank() == 0 ||
      type != dot.getType() || dot.getRhsFreeDims().size() != 1 ||
      choice.gemm.n.size != type.getShape().back())
    return longest;
  auto take = [&](Operation *op) {
    epilogue.ops.push_back(op);
    result = op->getResult(0);
    if (!neighbours.goesOn(result))
      longest = epilogue;
  };
  while (result.hasOneUse() && !epilogue.residual) {
    auto add = dyn_cast<loom::AddOp>(*result.getUsers().begin());
    if (!add || add.getLhs() == add.getRhs())
      break;
    Value other = add.getLhs() == result ? add.getRhs() : add.getLhs();
    if (Value bias = epilogue.bias ? Value() : matchBias(other, type))
      epilogue.bias = bias;
    else if (residuals && matchResidual(other, add, neighbours))
      epilogue.residual = other;
    else
      break;
    take(add);
  }
  if (Operation *found = activations && !epilogue.residual ? matchActivation(result) : nullptr) {
    epilogue.activation = found;
    take(found);
  }
  return longest;
}

struct FormMatmuls : impl::FormMatmulsBase<FormMatmuls> {
  using FormMatmulsBase::FormMatmulsBase;

  void runOnOperation() override {
    fallbacks.clear();
    KernelNeighbours neighbours(getOperation());
    SmallVector<loom::DotGeneralOp> dots;
    getOperation().walk([&](loom::DotGeneralOp dot) {
      // Prologues have kernels only.
      if (!dot->getParentOfType<func::FuncOp>())
        return;
      if (isInLibrary(dot) && dot.getType().getNumElements() > 0 &&
          dot.getLhs().getType().getNumElements() > 0)
        dots.push_back(dot);
    });
    for (loom::DotGeneralOp dot : dots) {
      if (keepRowProducts) {
        neighbours.forget(dot);
        dot = mergeRepeats(dot);
      }
      if (!keepRowProducts || !isRowProduct(dot))
        convert(dot, neighbours);
    }
    getOperation().walk([](Operation *op) {
      if (isa<func::FuncOp, loom::DerivedOp>(op))
        for (Operation &inner : llvm::make_early_inc_range(llvm::reverse(op->getRegion(0).front())))
          if (isOpTriviallyDead(&inner))
            inner.erase();
    });
  }

  void convert(loom::DotGeneralOp dot, KernelNeighbours &neighbours) {
    std::optional<Choice> choice = choose(dot, traceViews(dot.getLhs()), traceViews(dot.getRhs()));
    if (!choice) {
      neighbours.forget(dot);
      dot = makeCanonical(dot);
      auto itself = [](Value value) { return traceViews(value).pop_back_val(); };
      choice = choose(dot, itself(dot.getLhs()), itself(dot.getRhs()));
    }
    if (!choice) {
      neighbours.forget(dot);
      expandContraction(dot);
      return;
    }

    SmallVector<Location> locs{dot.getLoc()};
    for (ArrayRef<Operation *> path :
         {ArrayRef(choice->lhs.path), ArrayRef(choice->rhs.path), ArrayRef(choice->tail.path)})
      for (Operation *op : path)
        locs.push_back(op->getLoc());
    SmallVector<Operation *> absorbed{dot};
    llvm::append_range(absorbed, choice->tail.path);
    MatchedEpilogue epilogue = matchEpilogue(dot, *choice, neighbours, activations, residuals);
    Value bias = epilogue.bias;
    for (Operation *op : epilogue.ops) {
      locs.push_back(op->getLoc());
      absorbed.push_back(op);
    }
    Value replaced = absorbed.back()->getResult(0);
    OpBuilder builder(replaced.getDefiningOp());
    if (bias && cast<RankedTensorType>(bias.getType()).getRank() != 1) {
      auto type = cast<RankedTensorType>(bias.getType());
      bias = loom::ReshapeOp::create(
          builder, bias.getLoc(),
          RankedTensorType::get({type.getNumElements()}, type.getElementType()), bias);
    }
    double alpha = choice->lhs.scale * choice->rhs.scale * choice->tail.scale;
    plan::MatmulAttr descriptor =
        getDescriptor(dot.getContext(), choice->gemm, alpha, epilogue, dot.getTf32());
    FlatSymbolRefAttr fallback =
        getFallback(epilogue, replaced.getType(), builder.getFusedLoc(locs));
    Value lhs = makeViewBase(builder, choice->lhs.base, choice->lhs.offset);
    Value rhs = makeViewBase(builder, choice->rhs.base, choice->rhs.offset);
    if (choice->gemm.swapped)
      std::swap(lhs, rhs);
    auto matmul = plan::MatmulOp::create(builder, builder.getFusedLoc(locs), replaced.getType(),
                                         lhs, rhs, bias, epilogue.residual, descriptor, fallback);
    replaced.replaceAllUsesWith(matmul.getOutput());
    for (Operation *op : llvm::reverse(absorbed)) {
      neighbours.forget(op);
      op->erase();
    }
  }

  /// The kernel that applies the epilogue to the plain product and the bias; one per type.
  FlatSymbolRefAttr getFallback(const MatchedEpilogue &epilogue, Type result, Location loc) {
    if (!epilogue.activation)
      return {};
    bool hasBias = epilogue.bias != nullptr;
    auto made = plan::EpilogueAttr::get(&getContext(), hasBias, /*residual=*/false,
                                        epilogue.getActivation());
    FlatSymbolRefAttr &known = fallbacks[{result, made}];
    if (known)
      return known;
    OpBuilder builder(&getContext());
    auto type = cast<RankedTensorType>(result);
    std::string name = (Twine("k_else_") + (hasBias ? "bias_" : "") +
                        plan::stringifyActivation(epilogue.getActivation()))
                           .str();
    auto kernel = plan::KernelOp::create(builder, loc, name,
                                         /*in_place=*/ArrayAttr());
    Block &body = kernel.getBody().emplaceBlock();
    builder.setInsertionPointToEnd(&body);
    Value value = body.addArgument(type, loc);
    if (hasBias) {
      int64_t last = type.getRank() - 1;
      Value bias = body.addArgument(
          RankedTensorType::get({type.getShape().back()}, type.getElementType()), loc);
      bias = loom::BroadcastOp::create(builder, loc, type, bias, ArrayRef<int64_t>{last});
      value = loom::AddOp::create(builder, loc, type, value, bias);
    }
    if (isa<loom::GeluOp>(epilogue.activation)) {
      value = loom::GeluOp::create(builder, loc, type, value, loom::GeluForm::Tanh);
    } else {
      auto zero =
          DenseElementsAttr::get(type, Attribute(builder.getZeroAttr(type.getElementType())));
      value = loom::MaximumOp::create(builder, loc, type, value,
                                      loom::ConstantOp::create(builder, loc, zero));
    }
    loom::YieldOp::create(builder, loc, value);
    kernel.recordInPlace();
    return known = FlatSymbolRefAttr::get(SymbolTable(getOperation()).insert(kernel));
  }

  llvm::DenseMap<std::pair<Type, Attribute>, FlatSymbolRefAttr> fallbacks;
};

} // namespace
} // namespace gridloom
