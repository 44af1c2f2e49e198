//===- Factors.cpp - from shardings to factors and back -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Factors.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace gridloom::dist;

SmallVector<RankedTensorType> gridloom::dist::getTensorTypes(Operation *op) {
  SmallVector<RankedTensorType> types;
  for (Type type : op->getOperandTypes())
    types.push_back(cast<RankedTensorType>(type));
  for (Type type : op->getResultTypes())
    types.push_back(cast<RankedTensorType>(type));
  return types;
}

/// The axes of a dimension that fall on each of its factors: a factor takes axes, major first, while
/// they divide it; the next factor goes on only when this one is used up.
static SmallVector<AxisList> splitOverFactors(const ShardingRule &rule, ArrayRef<int64_t> factors,
                                              ArrayRef<StringAttr> axes, const Mesh &mesh) {
  SmallVector<AxisList> result(factors.size());
  for (auto [position, factor] : llvm::enumerate(factors)) {
    int64_t rest = rule.sizes[factor];
    while (!axes.empty() && rest % mesh.getSize(axes.front()) == 0) {
      rest /= mesh.getSize(axes.front());
      result[position].push_back(axes.front());
      axes = axes.drop_front();
    }
    if (rest != 1)
      break;
  }
  return result;
}

namespace {
/// What tensors ask of one factor: candidate axis lists with the bytes that already have them.
struct Request {
  AxisList axes;
  int64_t bytes;
  int64_t tensor;
};
} // namespace

static bool isPrefix(ArrayRef<StringAttr> shorter, ArrayRef<StringAttr> longer) {
  return shorter.size() <= longer.size() && shorter == longer.take_front(shorter.size());
}

static int64_t bytesOf(RankedTensorType type) {
  return type.getNumElements() * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// Leaves whole what no sharding could say: a factor with a major neighbour, in any tensor's
/// dimension, that is not cut down to single elements.
static void dropMinorCuts(const ShardingRule &rule, const Mesh &mesh, MutableArrayRef<AxisList> chosen,
                          ArrayRef<SmallVector<Request>> requests, SmallVectorImpl<FactorConflict> *conflicts) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const TensorFactors &tensor : rule.tensors) {
      for (ArrayRef<int64_t> factors : tensor) {
        const int64_t *major = llvm::find_if(
            factors, [&](int64_t factor) { return mesh.getSize(chosen[factor]) != rule.sizes[factor]; });
        for (const int64_t *minor = major; minor != factors.end() && ++minor != factors.end();) {
          if (chosen[*minor].empty())
            continue;
          chosen[*minor].clear();
          changed = true;
          if (conflicts)
            for (const Request &request : requests[*minor])
              conflicts->push_back({*minor, request.tensor});
        }
      }
    }
  }
}

SmallVector<AxisList> gridloom::dist::mergeFactors(const ShardingRule &rule, ArrayRef<Layout> layouts,
                                                   ArrayRef<RankedTensorType> types, const Mesh &mesh,
                                                   SmallVectorImpl<FactorConflict> *conflicts) {
  size_t numFactors = rule.sizes.size();
  SmallVector<SmallVector<Request>> requests(numFactors);
  for (auto [tensor, factors] : llvm::enumerate(rule.tensors))
    for (auto [dim, list] : llvm::enumerate(factors))
      for (auto [factor, axes] :
           llvm::zip_equal(list, splitOverFactors(rule, list, layouts[tensor].dims[dim].axes, mesh)))
        if (!axes.empty() && rule.kinds[factor] != FactorKind::NeedReplication)
          requests[factor].push_back({axes, bytesOf(types[tensor]), static_cast<int64_t>(tensor)});

  // Per factor: the list most bytes agree with; a longer list that extends it wins over it.
  SmallVector<AxisList> chosen(numFactors);
  SmallVector<int64_t> weight(numFactors, 0);
  for (size_t factor = 0; factor < numFactors; ++factor) {
    const Request *best = nullptr;
    int64_t bestBytes = -1;
    for (const Request &candidate : requests[factor]) {
      int64_t bytes = 0;
      for (const Request &other : requests[factor])
        if (isPrefix(other.axes, candidate.axes))
          bytes += other.bytes;
      if (bytes > bestBytes || (bytes == bestBytes && candidate.axes.size() > best->axes.size())) {
        best = &candidate;
        bestBytes = bytes;
      }
    }
    if (!best)
      continue;
    chosen[factor] = best->axes;
    weight[factor] = bestBytes;
    if (conflicts)
      for (const Request &other : requests[factor])
        if (!isPrefix(other.axes, best->axes))
          conflicts->push_back({static_cast<int64_t>(factor), other.tensor});
  }

  // An axis serves one factor: the one with more bytes behind it.
  llvm::MapVector<StringAttr, size_t> owner;
  for (size_t factor = 0; factor < numFactors; ++factor)
    for (StringAttr axis : chosen[factor]) {
      auto [it, inserted] = owner.insert({axis, factor});
      if (!inserted && weight[factor] > weight[it->second])
        it->second = factor;
    }
  for (size_t factor = 0; factor < numFactors; ++factor) {
    AxisList &axes = chosen[factor];
    for (size_t i = 0; i < axes.size(); ++i) {
      if (owner.lookup(axes[i]) == factor)
        continue;
      if (conflicts)
        for (const Request &other : requests[factor])
          if (llvm::is_contained(other.axes, axes[i]))
            conflicts->push_back({static_cast<int64_t>(factor), other.tensor});
      axes.truncate(i);
      break;
    }
  }
  dropMinorCuts(rule, mesh, chosen, requests, conflicts);
  return chosen;
}

Layout gridloom::dist::project(const ShardingRule &rule, size_t index, FactorAxes axes, const Mesh &mesh) {
  Layout layout;
  for (const auto &factors : rule.tensors[index]) {
    Layout::Dim dim;
    for (int64_t factor : factors) {
      dim.axes.append(axes[factor].begin(), axes[factor].end());
      // A minor factor can only be cut where the major ones are cut down to single elements.
      if (mesh.getSize(axes[factor]) != rule.sizes[factor])
        break;
    }
    layout.dims.push_back(dim);
  }
  return layout;
}
