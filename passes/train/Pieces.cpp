//===- Pieces.cpp - a batch computed in parts -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Pieces.h"

#include "passes/differentiate/Term.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

Pieces::Pieces(func::FuncOp function)
    : function(function), builder(function.front().getTerminator()) {
  auto batch = function->getAttrOfType<DictionaryAttr>(loom::kBatch);
  auto parts = batch ? batch.getAs<IntegerAttr>("parts") : IntegerAttr();
  if (!parts || !batch.getAs<StringAttr>("name") || parts.getInt() < 1)
    return;
  name = batch.getAs<StringAttr>("name");
  count = parts.getInt();
  function->removeAttr(loom::kBatch);
}

bool Pieces::isCut(BlockArgument argument) {
  auto names = function.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), loom::kDimNames);
  return name && !loom::isOfTraining(argument) && names && !names.empty() && names[0] == name;
}

Value Pieces::cut(Value whole, int64_t index) {
  Term term(builder, whole.getLoc(), whole);
  ArrayRef<int64_t> shape = term.getShape();
  SmallVector<int64_t> apart{shape[0] / count, count}, part{shape[0] / count};
  llvm::append_range(apart, shape.drop_front());
  llvm::append_range(part, shape.drop_front());
  return term.reshape(apart).slice(1, index, index + 1).reshape(part);
}

namespace {

/// Finds the rows of a batch in the values of a block, by the factors that operations share between
/// their tensors. The rows of a value have a stride in its row-major order: 64 in [rows, 64], also
/// in [8, rows, 64] and [8 * rows, 64] with the rows inside.
class RowStrides {
public:
  explicit RowStrides(int64_t rows) : rows(rows) {}
  void set(Value value, int64_t stride) { strides[value] = stride; }
  /// 0 for a value without rows.
  int64_t lookup(Value value) const { return strides.lookup(value); }
  /// Follows the rows along and against the flow of data until nothing is found.
  void find(ArrayRef<Operation *> ops) {
    bool isNew = true;
    while (isNew) {
      isNew = false;
      for (Operation *op : ops)
        isNew |= visit(op);
      for (Operation *op : llvm::reverse(ops))
        isNew |= visit(op);
    }
  }

  /// Whether the operation sums over the rows.
  bool isSum(loom::ReduceOp op) const {
    int64_t stride = lookup(op.getInput());
    if (!stride || op.getKind() != dist::ReductionKind::Sum)
      return false;
    dist::ShardingRule rule =
        cast<dist::ShardingRuleInterface>(op.getOperation()).getShardingRule();
    std::optional<Place> place = findPlace(rule, 0, stride);
    return place && rule.kinds[place->first] == dist::FactorKind::Reduction;
  }

private:
  /// A factor of a rule, and the stride of the rows in it.
  using Place = std::pair<int64_t, int64_t>;

  template <typename Visitor>
  static void forEachFactor(const dist::ShardingRule &rule, size_t tensor, Visitor visit) {
    int64_t stride = 1;
    for (const auto &dim : llvm::reverse(rule.tensors[tensor]))
      for (int64_t factor : llvm::reverse(dim)) {
        visit(factor, stride);
        stride *= rule.sizes[factor];
      }
  }

  std::optional<Place> findPlace(const dist::ShardingRule &rule, size_t tensor,
                                 int64_t stride) const {
    std::optional<Place> place;
    forEachFactor(rule, tensor, [&](int64_t factor, int64_t begin) {
      int64_t size = rule.sizes[factor];
      if (begin <= stride && stride * rows <= begin * size && stride % begin == 0)
        place = {factor, stride / begin};
    });
    return place;
  }

  bool visit(Operation *op) {
    auto interface = dyn_cast<dist::ShardingRuleInterface>(op);
    if (!interface)
      return false;
    SmallVector<Value> values(op->getOperands());
    llvm::append_range(values, op->getResults());
    if (llvm::none_of(values, [&](Value value) { return strides.contains(value); }) ||
        llvm::all_of(values, [&](Value value) { return strides.contains(value); }))
      return false;
    dist::ShardingRule rule = interface.getShardingRule();
    std::optional<Place> place;
    for (auto [tensor, value] : llvm::enumerate(values))
      if (int64_t stride = lookup(value); stride && !place)
        place = findPlace(rule, tensor, stride);
    bool isNew = false;
    for (auto [tensor, value] : llvm::enumerate(values))
      if (place && !strides.contains(value))
        forEachFactor(rule, tensor, [&](int64_t factor, int64_t begin) {
          if (factor == place->first)
            isNew |= strides.try_emplace(value, begin * place->second).second;
        });
    return isNew;
  }

  int64_t rows;
  llvm::DenseMap<Value, int64_t> strides;
};

} // namespace

Operation *Pieces::findSum(ArrayRef<Value> values, Operation *last) {
  SmallVector<BlockArgument> arguments;
  for (BlockArgument argument : function.getArguments())
    if (isCut(argument))
      arguments.push_back(argument);
  if (count == 1 || arguments.empty() || !last)
    return nullptr;
  int64_t size = cast<RankedTensorType>(arguments.front().getType()).getDimSize(0);
  if (size < 2) // a dimension of one element may be any
    return nullptr;
  RowStrides strides(size);
  for (BlockArgument argument : arguments)
    strides.set(argument,
                loom::countElements(cast<RankedTensorType>(argument.getType()).getShape()) / size);
  SmallVector<Operation *> ops;
  for (Operation *op = last; op; op = op->getPrevNode())
    ops.push_back(op);
  std::reverse(ops.begin(), ops.end());
  strides.find(ops);
  llvm::DenseSet<Value> used(values.begin(), values.end());
  Operation *first = nullptr;
  bool isReached = false;
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    isReached |= &op == last;
    if (llvm::none_of(op.getResults(), [&](Value each) { return used.contains(each); }))
      continue;
    used.insert(op.operand_begin(), op.operand_end());
    auto reduce = dyn_cast<loom::ReduceOp>(op);
    if (reduce && isReached && loom::isFloatTensor(reduce.getOutput()) && strides.isSum(reduce))
      first = &op;
  }
  return first;
}

/// Gives random numbers their indices in the whole batch: row r of the part is row r * count +
/// index there. `stride` is that of rows in the numbers.
void Pieces::renumber(loom::RandomBitsOp op, int64_t stride, int64_t index) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  Term number(builder, op.getLoc(), op.getIndex());
  Term within = number.apply<loom::RemainderOp>(number.splat(double(stride)));
  Term whole = number * double(count) - within * double(count - 1) + double(index * stride);
  op.getIndexMutable().assign(whole);
}

void Pieces::widen() {
  if (count == 1)
    return;
  for (Operation &op : function.front().without_terminator())
    original.push_back(&op);
  builder.setInsertionPointToStart(&function.front());
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    BlockArgument argument = function.getArgument(i);
    if (!isCut(argument))
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    SmallVector<int64_t> shape(type.getShape());
    rows = shape[0];
    shape[0] *= count;
    [[maybe_unused]] LogicalResult added = function.insertArgument(
        i, type.clone(shape), function.getArgAttrDict(i), argument.getLoc());
    assert(succeeded(added));
    Value whole = function.getArgument(i), first = cut(whole, 0);
    function.getArgument(i + 1).replaceAllUsesWith(first);
    [[maybe_unused]] LogicalResult erased = function.eraseArgument(i + 1);
    assert(succeeded(erased));
    wholes.push_back({whole, first});
  }
  builder.setInsertionPoint(function.front().getTerminator());
  RowStrides strides(rows);
  for (auto [whole, first] : wholes)
    strides.set(first,
                loom::countElements(cast<RankedTensorType>(first.getType()).getShape()) / rows);
  strides.find(original);
  for (Operation *op : original)
    if (auto bits = dyn_cast<loom::RandomBitsOp>(op))
      if (int64_t stride = strides.lookup(bits.getOutput()))
        random.push_back({bits, bits.getIndex(), stride});
  for (Random &each : random)
    renumber(each.op, each.stride, 0);
}

IRMapping Pieces::copy(int64_t index) {
  IRMapping mapping;
  for (auto [whole, first] : wholes)
    mapping.map(first, cut(whole, index));
  for (Operation *op : original)
    builder.clone(*op, mapping);
  for (Random &each : random) {
    auto copied = cast<loom::RandomBitsOp>(mapping.lookup(each.op.getOutput()).getDefiningOp());
    copied.getIndexMutable().assign(mapping.lookupOrDefault(each.index));
    renumber(copied, each.stride, index);
  }
  return mapping;
}
