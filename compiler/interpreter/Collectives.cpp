//===- Collectives.cpp - reference collectives ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Machine.h"

#include "dialects/loom/LoomEvaluate.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

/// Part `index` of `count` equal parts of dimension `dim`.
static HostTensor getPart(const HostTensor &tensor, int64_t dim, int64_t index, int64_t count) {
  SmallVector<int64_t> starts(tensor.getRank(), 0), sizes(tensor.getShape());
  sizes[dim] /= count;
  starts[dim] = index * sizes[dim];
  return tensor.extract(starts, sizes);
}

static HostTensor concatenate(ArrayRef<HostTensor> parts, int64_t dim) {
  SmallVector<int64_t> shape(parts.front().getShape()), starts(shape.size(), 0);
  shape[dim] = 0;
  for (const HostTensor &part : parts)
    shape[dim] += part.getShape()[dim];
  HostTensor result(parts.front().getKind(), shape);
  for (const HostTensor &part : parts) {
    result.insert(part, starts);
    starts[dim] += part.getShape()[dim];
  }
  return result;
}

/// Value `index` of every member.
static TensorList getColumn(ArrayRef<TensorList> inputs, size_t index) {
  TensorList column;
  for (const TensorList &list : inputs)
    column.push_back(list[index]);
  return column;
}

FailureOr<SmallVector<TensorList>> gridloom::evaluateCollective(Operation *op,
                                                                ArrayRef<TensorList> inputs) {
  int64_t count = inputs.size();
  SmallVector<TensorList> results(count);
  if (auto reduce = dyn_cast<dist::AllReduceOp>(op)) {
    for (size_t i = 0; i < reduce.getInputs().size(); ++i) {
      HostTensor sum = loom::combine(reduce.getReduction(), getColumn(inputs, i));
      for (TensorList &list : results)
        list.push_back(sum);
    }
    return results;
  }
  TensorList column = getColumn(inputs, 0);
  for (auto [i, list] : llvm::enumerate(results)) {
    int64_t member = i;
    if (auto gather = dyn_cast<dist::AllGatherOp>(op)) {
      list.push_back(member == 0 ? concatenate(column, gather.getDim()) : results[0][0]);
    } else if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op)) {
      TensorList parts;
      for (const HostTensor &tensor : column)
        parts.push_back(getPart(tensor, scatter.getDim(), member, count));
      list.push_back(loom::combine(scatter.getReduction(), parts));
    } else if (auto exchange = dyn_cast<dist::AllToAllOp>(op)) {
      TensorList parts;
      for (const HostTensor &tensor : column)
        parts.push_back(getPart(tensor, exchange.getSplitDim(), member, count));
      list.push_back(concatenate(parts, exchange.getConcatDim()));
    } else if (auto permute = dyn_cast<dist::PermuteOp>(op)) {
      ArrayRef<int64_t> permutation = permute.getPermutation();
      if (static_cast<int64_t>(permutation.size()) != count || permutation[member] < 0 ||
          permutation[member] >= count)
        return op->emitOpError() << "does not permute its group of " << count;
      list.push_back(column[permutation[member]]);
    } else {
      return op->emitOpError("is not a collective that the interpreter knows");
    }
  }
  return results;
}
