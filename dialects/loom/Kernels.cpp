//===- Kernels.cpp - which operations will be one kernel --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Kernels.h"

#include "dialects/dist/Dist.h"
#include "dialects/loom/LoomWindow.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/Uses.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

/// The most operations from the scores of an attention to its result.
static constexpr int kLongestAttention = 10;

Libraries Libraries::of(const cluster::Machine &machine, bool isBound) {
  bool isGpu =
      !machine.kinds.empty() && llvm::all_of(machine.kinds, [](const cluster::DeviceKind &kind) {
        return StringRef(kind.target).starts_with("cuda:");
      });
  return {isGpu, isGpu ? ConvolutionLibrary::All : ConvolutionLibrary::Forward, isGpu, isGpu,
          isBound};
}

static RankedTensorType getType(Value value) { return cast<RankedTensorType>(value.getType()); }

std::optional<double> gridloom::loom::getFloatSplat(Value value) {
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<BroadcastOp, ReshapeOp>(op))
    op = op->getOperand(0).getDefiningOp();
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  if (!splat || !isa<FloatType>(splat.getElementType()))
    return std::nullopt;
  return splat.getSplatValue<APFloat>().convertToDouble();
}

bool gridloom::loom::isComputed(Value value) {
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<ReshapeOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return op && !isa<GetWeightOp, ConstantOp, dist::AxisIndexOp>(op);
}

bool gridloom::loom::isAligned(Value base, int64_t offset) {
  int64_t bytes = getByteSize(RankedTensorType::get({}, getType(base).getElementType()));
  return offset * bytes % kViewAlignment == 0;
}

bool gridloom::loom::isMemoryView(SliceOp slice) {
  ArrayRef<int64_t> shape = getType(slice.getInput()).getShape();
  int64_t offset = 0;
  bool isRun = true; // the leading dimensions so far have one element each
  for (auto [start, step, stride, size, part] :
       llvm::zip_equal(slice.getStarts(), slice.getStrides(), getRowMajorStrides(shape), shape,
                       slice.getType().getShape())) {
    if (step != 1 || (part != size && !isRun))
      return false;
    isRun &= part == 1;
    offset += start * stride;
  }
  // Prologues have kernels only.
  return slice->getParentOfType<func::FuncOp>() && isComputed(slice.getInput()) &&
         isAligned(slice.getInput(), offset);
}

bool gridloom::loom::isRowWise(Operation *op) {
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return static_cast<int64_t>(softmax.getDim()) + 1 == softmax.getType().getRank();
  return op->hasTrait<NormalizesRows>();
}

/// Whether an operation reduces the last dimension only.
static bool reducesRows(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && reduce.getDims() == ArrayRef<int64_t>{getType(reduce.getInput()).getRank() - 1};
}

static bool isElementwise(Operation *op) { return isa<KernelBodyInterface>(op); }

bool gridloom::loom::isCheap(Operation *op) {
  auto body = dyn_cast<KernelBodyInterface>(op);
  return body && body.getScalarCycles() <= kCheapCycles;
}

static bool isIndexArithmetic(Value value, int &budget) {
  Operation *op = value.getDefiningOp();
  if (!op || --budget < 0)
    return false;
  if (isa<IotaOp, dist::AxisIndexOp>(op))
    return true;
  if (auto constant = dyn_cast<ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  return (isa<BroadcastOp>(op) || isCheap(op)) &&
         llvm::all_of(op->getOperands(),
                      [&](Value operand) { return isIndexArithmetic(operand, budget); });
}

bool gridloom::loom::isIndexArithmetic(Value value) {
  int budget = 16; // operations
  return ::isIndexArithmetic(value, budget);
}

bool gridloom::loom::looksUpRows(Operation *op) {
  auto gather = dyn_cast<GatherOp>(op);
  return gather && static_cast<int64_t>(gather.getDim()) + 1 < getType(gather.getInput()).getRank();
}

/// Whether a kernel of elements or rows computes an operation.
static bool worksOnRows(Operation *op) {
  return isElementwise(op) || isRowWise(op) || reducesRows(op);
}

/// Whether an operation is a transpose that keeps the last dimension last.
static bool keepsRows(Operation *op) {
  auto transpose = dyn_cast<TransposeOp>(op);
  return transpose && !transpose.getPermutation().empty() &&
         transpose.getPermutation().back() ==
             static_cast<int64_t>(transpose.getPermutation().size()) - 1;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// The product that ends an attention, and the operations before it, back to the scores.
struct Attention {
  DotGeneralOp product;
  SmallVector<Operation *, kLongestAttention> inner;
};
} // namespace

bool gridloom::loom::isPlainProduct(DotGeneralOp dot, int64_t rank) {
  return static_cast<int64_t>(dot.getLhsBatch().size()) == rank - 2 &&
         dot.getLhsFreeDims().size() == 1 && dot.getRhsFreeDims().size() == 1 &&
         dot.getLhsContract().size() == 1;
}

bool gridloom::loom::isAttentionDepth(int64_t depth) {
  constexpr int64_t multiple = 8, most = 128;
  return depth % multiple == 0 && depth <= most;
}

static bool isDepth(int64_t size, const Libraries &libraries) {
  return libraries.isBound || isAttentionDepth(size);
}

/// Whether a value is a product followed by factors and conversions: in a sum, the scores.
static bool isScaledProduct(Value value) {
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<ConvertOp, MultiplyOp, DivideOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_nonnull<DotGeneralOp>(op);
}

/// For an operation between scores, softmax and product: the operand that leads to the scores; null
/// if it cannot be part of an attention.
static Value getScoresOperand(Operation *op, bool isSoft, bool &isMasked) {
  if (isa<ConvertOp>(op))
    return op->getOperand(0);
  if (!isSoft)
    return isa<SoftmaxOp>(op) && isRowWise(op) ? op->getOperand(0) : Value();
  if (isa<MultiplyOp, DivideOp>(op) && getFloatSplat(op->getOperand(1)))
    return op->getOperand(0);
  if (isMasked || !isa<SelectOp, AddOp>(op))
    return {};
  isMasked = true;
  if (auto select = dyn_cast<SelectOp>(op))
    return getFloatSplat(select.getOnFalse()) ? Value(select.getOnTrue()) : Value();
  return op->getOperand(isScaledProduct(op->getOperand(0)) ? 0 : 1);
}

/// The attention that ends with a product; nullopt if none does that a library supports.
static std::optional<Attention> matchAttention(DotGeneralOp product, const Libraries &libraries) {
  int64_t rank = getType(product.getLhs()).getRank();
  Type element = product.getType().getElementType();
  if (rank < 3 || rank > 4 || !isPlainProduct(product, rank) ||
      product.getLhsContract() != ArrayRef<int64_t>{rank - 1} ||
      !(element.isF16() || element.isBF16()) ||
      !isDepth(product.getType().getShape().back(), libraries))
    return std::nullopt;
  Attention attention{product, {}};
  bool isSoft = false, isMasked = false;
  for (Value value = product.getLhs(); attention.inner.size() < kLongestAttention;) {
    Operation *op = value.getDefiningOp();
    if (!op || !value.hasOneUse())
      return std::nullopt;
    attention.inner.push_back(op);
    if (auto dot = dyn_cast<DotGeneralOp>(op)) {
      bool fits = isSoft && isPlainProduct(dot, rank) &&
                  isDepth(getType(dot.getLhs()).getDimSize(dot.getLhsContract()[0]), libraries);
      return fits ? std::optional(std::move(attention)) : std::nullopt;
    }
    value = getScoresOperand(op, isSoft, isMasked);
    if (!value)
      return std::nullopt;
    isSoft |= isa<SoftmaxOp>(op);
  }
  return std::nullopt;
}

/// The attention that an operation is part of.
static std::optional<Attention> findAttention(Operation *op, const Libraries &libraries) {
  if (!libraries.attention ||
      !isa<ConvertOp, SelectOp, AddOp, MultiplyOp, DivideOp, SoftmaxOp, DotGeneralOp>(op))
    return std::nullopt;
  if (auto product = dyn_cast<DotGeneralOp>(op))
    if (std::optional<Attention> attention = matchAttention(product, libraries))
      return attention;
  Operation *last = op;
  for (int i = 0; i < kLongestAttention; ++i) {
    last = getOnlyReader(last->getResult(0));
    if (auto product = dyn_cast_or_null<DotGeneralOp>(last)) {
      std::optional<Attention> attention = matchAttention(product, libraries);
      return attention && llvm::is_contained(attention->inner, op) ? attention : std::nullopt;
    }
    if (!last || !isa<ConvertOp, SelectOp, AddOp, MultiplyOp, DivideOp, SoftmaxOp>(last))
      return std::nullopt;
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Epilogues
//===----------------------------------------------------------------------===//

namespace {
/// A call's contraction, and its epilogue so far.
struct Call {
  Operation *contraction = nullptr;
  Value last; ///< result of the call before its last operation
  bool hasBias = false, hasResidual = false, hasActivation = false;
  bool isProduct() const { return isa<DotGeneralOp>(contraction); }
};
} // namespace

/// Whether a value broadcasts one element per column of a product, or channel of a convolution.
static bool isBias(Value value, const Call &call) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  RankedTensorType type = getType(value);
  int64_t dim = call.isProduct() ? type.getRank() - 1 : 1;
  return broadcast && dim >= 0 && dim < type.getRank() &&
         getType(broadcast.getInput()).getNumElements() == type.getDimSize(dim);
}

static bool isActivation(Operation *op, Value value, const Call &call) {
  if (auto gelu = dyn_cast<GeluOp>(op))
    return call.isProduct() && gelu.getForm() == GeluForm::Tanh;
  return isa<MaximumOp>(op) &&
         getFloatSplat(op->getOperand(op->getOperand(0) == value ? 1 : 0)) == 0.0;
}

/// Whether a library may read a value that is added to its result: it is in memory anyway, or, for
/// convolutions, the result of another one with its bias.
static bool isResidual(Value value, const Call &call) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<BroadcastOp, ConstantOp>(op))
    return false;
  if (!op || !value.hasOneUse() || !(isElementwise(op) || looksUpRows(op)))
    return true;
  return !call.isProduct() && isa<AddOp>(op) && llvm::any_of(op->getOperands(), [](Value operand) {
    return operand.getDefiningOp<ConvolutionOp>() && operand.hasOneUse();
  });
}

static bool areAll(ArrayRef<int64_t> values, int64_t wanted) {
  return llvm::all_of(values, [&](int64_t value) { return value == wanted; });
}

bool loom::isLibraryConvolution(ConvolutionOp op, ConvolutionLibrary library) {
  constexpr int64_t mostRank = 5;
  auto function = op->getParentOfType<func::FuncOp>();
  Type element = op.getType().getElementType();
  bool isAny = function && (element.isF32() || element.isF16() || element.isBF16()) &&
               op.getType().getRank() <= mostRank && op.getType().getNumElements() > 0 &&
               getType(op.getInput()).getNumElements() > 0 &&
               getType(op.getWeight()).getNumElements() > 0 && areAll(op.getInputDilations(), 1);
  if (!isAny || library != ConvolutionLibrary::Forward)
    return isAny && library == ConvolutionLibrary::All;
  ArrayRef<int64_t> window = getType(op.getWeight()).getShape().drop_front(2);
  return element.isF32() &&
         computeProduct(window) <= computeProduct(op.getType().getShape().drop_front(2)) &&
         !isTrainStep(function);
}

/// The call that an operation may end, given the operations before it: a bias, a residual and an
/// activation, at most `most` of them.
static std::optional<Call> findCall(Operation *op, const Libraries &libraries, int most = 3) {
  if (isa<DotGeneralOp>(op))
    return findAttention(op, libraries) ? std::nullopt : std::optional(Call{op, {}});
  if (auto convolution = dyn_cast<ConvolutionOp>(op))
    return isLibraryConvolution(convolution, libraries.convolutions) ? std::optional(Call{op, {}})
                                                                     : std::nullopt;
  if (!isa<AddOp, MaximumOp, GeluOp>(op) || most == 0)
    return std::nullopt;
  for (Value value : op->getOperands()) {
    Operation *before = value.getDefiningOp();
    std::optional<Call> call =
        before && value.hasOneUse() ? findCall(before, libraries, most - 1) : std::nullopt;
    if (!call || call->hasActivation)
      continue;
    call->last = value;
    if (!isa<AddOp>(op)) {
      bool mayFollow = call->isProduct() ? !call->hasResidual : call->hasBias;
      if (libraries.epilogues && mayFollow && isActivation(op, value, *call)) {
        call->hasActivation = true;
        return call;
      }
      continue;
    }
    Value other = op->getOperand(op->getOperand(0) == value ? 1 : 0);
    if (call->hasResidual || other == value)
      continue;
    if (!call->hasBias && isBias(other, *call)) {
      call->hasBias = true;
      return call;
    }
    if (libraries.epilogues && (call->isProduct() || call->hasBias) && isResidual(other, *call)) {
      call->hasResidual = true;
      return call;
    }
  }
  return std::nullopt;
}

/// Whether a kernel reads the value next, and could compute what the call would.
static bool goesOn(Value value) {
  Operation *reader = getOnlyReader(value);
  return reader && worksOnRows(reader);
}

bool gridloom::loom::isEpilogue(Operation *op, const Libraries &libraries) {
  if (!isa<AddOp, MaximumOp, GeluOp>(op) || !findCall(op, libraries))
    return false;
  Value result = op->getResult(0);
  if (!goesOn(result))
    return true;
  Operation *next = getOnlyReader(result);
  if (!isa<AddOp, MaximumOp, GeluOp>(next))
    return false;
  std::optional<Call> call = findCall(next, libraries);
  return call && call->last == result && isEpilogue(next, libraries);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

static bool isAddress(Operation *op, const Libraries &libraries);

/// Whether all readers can read a value by other strides; if it is in order, also reshapes.
static bool isReadElsewhere(Value value, bool byProducts, bool isOrdered,
                            const Libraries &libraries) {
  return !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *reader) {
    if (isa<DotGeneralOp>(reader))
      return true;
    if (byProducts)
      return false;
    if (isa<ReshapeOp>(reader))
      return isOrdered && isReadElsewhere(reader->getResult(0), byProducts, isOrdered, libraries);
    return worksOnRows(reader) || isa<ConcatenateOp>(reader) ||
           (isa<SliceOp, TransposeOp>(reader) && isAddress(reader, libraries));
  });
}

bool gridloom::loom::keepsOrder(ArrayRef<int64_t> permutation, ArrayRef<int64_t> shape) {
  return llvm::is_sorted(
      llvm::filter_to_vector(permutation, [&](int64_t dim) { return shape[dim] != 1; }));
}

bool gridloom::loom::isTransposed(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<TransposeOp>(user) || (isa<SliceOp>(user) && isTransposed(user->getResult(0)));
  });
}

/// Whether a product is before a transpose alone, and is written in the order that this one wants.
static bool isBehindProduct(TransposeOp transpose) {
  return transpose.getInput().hasOneUse() && transpose.getInput().getDefiningOp<DotGeneralOp>();
}

/// Whether an operation only changes the address or strides of elements.
static bool isAddress(Operation *op, const Libraries &libraries) {
  if (auto slice = dyn_cast<SliceOp>(op))
    // For a bound, the dimensions before the first that is cut may have one element.
    return (libraries.isBound ? areAll(slice.getStrides(), 1) : isMemoryView(slice)) ||
           isReadElsewhere(slice, /*byProducts=*/false, /*isOrdered=*/true, libraries);
  auto transpose = dyn_cast<TransposeOp>(op);
  if (!transpose)
    return false;
  if (libraries.isBound)
    return true;
  if (keepsOrder(transpose.getPermutation(), getType(transpose.getInput()).getShape()) ||
      isBehindProduct(transpose))
    return true;
  return isReadElsewhere(op->getResult(0), /*byProducts=*/!keepsRows(op), /*isOrdered=*/false,
                         libraries);
}

bool gridloom::loom::isWrittenTransposed(Operation *op, const Libraries &libraries) {
  auto transpose = dyn_cast<TransposeOp>(op);
  // In a bound, two transposes may be one.
  if (!transpose || !isBehindProduct(transpose) || (libraries.isBound && isTransposed(transpose)))
    return false;
  Libraries exact = libraries;
  exact.isBound = false;
  return !isReadElsewhere(transpose, /*byProducts=*/!keepsRows(op), /*isOrdered=*/false, exact);
}

/// The only reader of a value, after operations that only change addresses; null if there are
/// several.
static Operation *getLastReader(Value value, const Libraries &libraries) {
  Operation *reader = getOnlyReader(value);
  while (reader && isa<SliceOp, TransposeOp>(reader) && isAddress(reader, libraries))
    reader = getOnlyReader(reader->getResult(0));
  return reader;
}

/// The only reader of what repeats a value along rows, one element for each row; null if none does.
/// For a bound, the dimensions that the value lacks may have one element.
static Operation *getRowReader(Value value, const Libraries &libraries) {
  auto broadcast = dyn_cast_or_null<BroadcastOp>(getOnlyReader(value));
  if (!broadcast || broadcast.getType().getRank() == 0)
    return nullptr;
  ArrayRef<int64_t> from = getType(value).getShape(), to = broadcast.getType().getShape();
  bool isOfRows = libraries.isBound || computeProduct(from) == computeProduct(to.drop_back());
  for (auto [dim, size] : llvm::zip_equal(broadcast.getDims(), from))
    isOfRows &= size == 1 || dim + 1 < static_cast<int64_t>(to.size());
  return isOfRows ? getOnlyReader(broadcast) : nullptr;
}

/// Whether a value is computed once for each row that its only reader walks: a reduction of such
/// rows, or elementwise.
static bool isComputedByRow(Value value, const Libraries &libraries) {
  Operation *producer = value.getDefiningOp(), *reader = getRowReader(value, libraries);
  if (!reader || !readsAnywhere(reader, libraries))
    return false;
  return isElementwise(producer) ||
         (reducesRows(producer) && isElementwise(reader) &&
          getType(producer->getOperand(0)).getShape() == getType(reader->getResult(0)).getShape());
}

/// Whether a product is merged into the call of an earlier one with the same left operand and
/// another weight.
static bool isMerged(Operation *op, const Libraries &libraries) {
  auto dot = dyn_cast<DotGeneralOp>(op);
  auto isOfWeight = [](DotGeneralOp product) {
    return product.getRhs().getDefiningOp<GetWeightOp>() && product.getRhsBatch().empty() &&
           getType(product.getRhs()).getRank() == 2 && product.getRhsContract().size() == 1;
  };
  if (!dot || !libraries.mergesProducts || !isOfWeight(dot))
    return false;
  return llvm::any_of(dot.getLhs().getUsers(), [&](Operation *user) {
    auto other = dyn_cast<DotGeneralOp>(user);
    return other && other != dot && other.getLhs() == dot.getLhs() && isOfWeight(other) &&
           other.getLhsContract() == dot.getLhsContract() &&
           other.getRhsContract() == dot.getRhsContract() &&
           other.getType().getElementType() == dot.getType().getElementType() &&
           other->isBeforeInBlock(dot);
  });
}

static bool isPart(Operation *op, const std::optional<Attention> &attention) {
  return attention && llvm::is_contained(attention->inner, op);
}

/// The most operations from the indices of a lookup to the lookup: those that find out which are a
/// device's own, and which are negative.
static constexpr int kLongestIndexing = 6;

/// The lookup whose kernel alone reads an integer or truth value: as an index, or to replace the
/// rows of a split table that another device has. Null if there is none.
static Operation *findLookup(Value value, int depth = kLongestIndexing) {
  if (depth == 0 || !getType(value).getElementType().isInteger())
    return nullptr;
  Operation *lookup = nullptr;
  for (OpOperand &use : value.getUses()) {
    Operation *reader = use.getOwner(), *found = nullptr;
    if (looksUpRows(reader) && use.getOperandNumber() == 1) {
      found = reader;
    } else if (isCheap(reader)) {
      found = findLookup(reader->getResult(0), depth - 1);
    } else if (isa<BroadcastOp>(reader)) {
      auto select = dyn_cast_or_null<SelectOp>(getOnlyReader(reader->getResult(0)));
      auto chosen = select ? select.getOnTrue().getDefiningOp<GatherOp>() : GatherOp();
      bool isOfRows = chosen && looksUpRows(chosen) && chosen.getDim() == 0 &&
                      getType(chosen.getInput()).getRank() == 2;
      found = isOfRows ? chosen.getOperation() : nullptr;
    }
    if (!found || (lookup && found != lookup))
      return nullptr;
    lookup = found;
  }
  return lookup;
}

bool gridloom::loom::readsAnywhere(Operation *reader, const Libraries &libraries) {
  if (isa<BroadcastOp>(reader))
    return llvm::all_of(reader->getUsers(),
                        [&](Operation *user) { return readsAnywhere(user, libraries); });
  return worksOnRows(reader) && !isEpilogue(reader, libraries) &&
         !isPart(reader, findAttention(reader, libraries));
}

static bool isRepeatedByReaders(Value value, const Libraries &libraries) {
  return isIndexArithmetic(value) && llvm::all_of(value.getUsers(), [&](Operation *reader) {
           return isa<BroadcastOp>(reader) || looksUpRows(reader) ||
                  readsAnywhere(reader, libraries);
         });
}

bool gridloom::loom::staysInRegisters(Value value, const Libraries &libraries) {
  Operation *producer = value.getDefiningOp(), *reader = getOnlyReader(value);
  if (producer && isCheap(producer) && (findLookup(value) || isRepeatedByReaders(value, libraries)))
    return true;
  if (!producer || !reader || !isa<CostInterface>(producer) || !isa<CostInterface>(reader))
    return false;
  if (isPart(producer, findAttention(producer, libraries)))
    return true;
  if (isEpilogue(reader, libraries)) {
    std::optional<Call> call = findCall(reader, libraries);
    return call->last == value;
  }
  // Libraries read and write memory.
  if (isa<DotGeneralOp, ConvolutionOp>(producer) || isEpilogue(producer, libraries) ||
      isPart(reader, findAttention(reader, libraries)))
    return false;
  if (isComputedByRow(value, libraries))
    return true;
  bool isMoved = isa<ConcatenateOp>(producer) && producer->getNumOperands() <= kMostPieces;
  if (isElementwise(producer)) {
    reader = getLastReader(value, libraries);
    if (!reader || isPart(reader, findAttention(reader, libraries)) ||
        isEpilogue(reader, libraries))
      return false;
    return worksOnRows(reader) || isa<ConcatenateOp>(reader);
  }
  if (looksUpRows(producer))
    return readsAnywhere(reader, libraries);
  return (isMoved || isRowWise(producer) || reducesRows(producer)) && isElementwise(reader);
}

Place gridloom::loom::findPlace(Operation *op, const Libraries &libraries) {
  if (isAddress(op, libraries))
    return Place::Address;
  if (isPart(op, findAttention(op, libraries)) || isEpilogue(op, libraries) ||
      isMerged(op, libraries))
    return Place::Call;
  bool isJoined = !isa<DotGeneralOp, ConvolutionOp>(op) &&
                  llvm::any_of(op->getResults(),
                               [&](Value result) { return staysInRegisters(result, libraries); });
  return isJoined ? Place::Joined : Place::Kernel;
}

double gridloom::loom::getReadShare(OpOperand &operand, const Libraries &libraries) {
  Value value = operand.get();
  Operation *reader = operand.getOwner();
  if (staysInRegisters(value, libraries))
    return 0;
  if (isa<DotGeneralOp, ConvolutionOp>(reader))
    return operand.getOperandNumber() == 0 && isMerged(reader, libraries) ? 0 : 1;
  if (llvm::is_contained(reader->getOperands().take_front(operand.getOperandNumber()), value))
    return 0;
  // Scans, scatters and sorts start from memory.
  if (getFloatSplat(value) || value.getDefiningOp<IotaOp>())
    return isLaneOp(reader) ? 1 : 0;
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (broadcast && staysInRegisters(broadcast.getInput(), libraries))
    return 0;
  int64_t all = getType(value).getNumElements();
  return broadcast && all ? static_cast<double>(getType(broadcast.getInput()).getNumElements()) /
                                static_cast<double>(all)
                          : 1;
}

double gridloom::loom::getWrittenShare(Value value, const Libraries &libraries) {
  Operation *producer = value.getDefiningOp();
  // The call writes as much as its contraction would.
  if (isa<DotGeneralOp, ConvolutionOp>(producer))
    return isPart(producer, findAttention(producer, libraries)) ? 0 : 1;
  return isEpilogue(producer, libraries) || staysInRegisters(value, libraries) ? 0 : 1;
}

Columns gridloom::loom::findColumns(Operation *op, const Libraries &libraries) {
  auto convolution = dyn_cast<ConvolutionOp>(op);
  if (!convolution || isLibraryConvolution(convolution, libraries.convolutions) ||
      isDepthwise(convolution))
    return {};
  ArrayRef<int64_t> weight = getType(convolution.getWeight()).getShape();
  Columns columns;
  for (int64_t dilation : convolution.getInputDilations())
    columns.zeros *= dilation;
  columns.isPadded =
      columns.zeros > 1 || !areAll(convolution.getLow(), 0) || !areAll(convolution.getHigh(), 0);
  columns.isPadded &= !libraries.isBound;
  columns.areCopied =
      columns.isPadded || !areAll(weight.drop_front(2), 1) || !areAll(convolution.getStrides(), 1);
  return columns;
}

std::string gridloom::loom::describePlace(Operation *op, const Libraries &libraries) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << static_cast<int>(findPlace(op, libraries));
  // Training steps have other kernels for convolutions.
  if (auto function = op->getParentOfType<func::FuncOp>(); function && isTrainStep(function))
    os << " s";
  for (OpOperand &operand : op->getOpOperands())
    os << ' ' << getReadShare(operand, libraries);
  for (Value result : op->getResults())
    os << ' ' << (staysInRegisters(result, libraries) ? 'r' : 'm');
  if (libraries.isBound && isa<TransposeOp>(op)) {
    Libraries exact = libraries;
    exact.isBound = false;
    os << (isTransposed(op->getResult(0)) ? " t " : " ") << describePlace(op, exact);
  }
  return text;
}
