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

/// Gives random numbers their indices in the whole batch: row r of the part is row r * count +
/// index there.
void Pieces::renumber(loom::RandomBitsOp op, int64_t index) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getType()).getShape();
  if (shape.empty() || shape[0] != rows)
    return;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  int64_t row = loom::countElements(shape) / rows;
  Term number(builder, op.getLoc(), op.getIndex());
  Term within = number.apply<loom::RemainderOp>(number.splat(double(row)));
  Term whole = number * double(count) - within * double(count - 1) + double(index * row);
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
  for (Operation *op : original)
    if (auto bits = dyn_cast<loom::RandomBitsOp>(op))
      random.push_back({bits, bits.getIndex()});
  for (auto &[op, index] : random)
    renumber(op, 0);
}

IRMapping Pieces::copy(int64_t index) {
  IRMapping mapping;
  for (auto [whole, first] : wholes)
    mapping.map(first, cut(whole, index));
  for (Operation *op : original)
    builder.clone(*op, mapping);
  for (auto [op, number] : random) {
    auto copied = cast<loom::RandomBitsOp>(mapping.lookup(op.getOutput()).getDefiningOp());
    copied.getIndexMutable().assign(mapping.lookupOrDefault(number));
    renumber(copied, index);
  }
  return mapping;
}
