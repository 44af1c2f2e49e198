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

bool FactorSplits::isPadded(const ShardingRule &rule, size_t factor, const Mesh &mesh) const {
  int64_t parts = mesh.getSize(axes[factor]);
  return parts > 1 &&
         getLocalSize(rule.sizes[factor], parts, granules[factor]) * parts != rule.sizes[factor];
}

/// What of a dimension's split falls on each of its factors. A factor takes axes, major first,
/// while they divide it; the next factor goes on only when this one is used up. A split that does
/// not come out even falls whole on the first factor with more than one element, if its shards are
/// whole elements of that factor.
static FactorSplits splitOverFactors(const ShardingRule &rule, ArrayRef<int64_t> factors,
                                     const Layout::Dim &dim, const Mesh &mesh) {
  FactorSplits even(factors.size());
  ArrayRef<StringAttr> axes = dim.axes;
  for (auto [position, factor] : llvm::enumerate(factors)) {
    int64_t rest = rule.sizes[factor];
    while (!axes.empty() && rest % mesh.getSize(axes.front()) == 0) {
      rest /= mesh.getSize(axes.front());
      even.axes[position].push_back(axes.front());
      axes = axes.drop_front();
    }
    if (rest != 1)
      break;
  }
  int64_t size = 1, minor = 1;
  for (int64_t factor : factors)
    size *= rule.sizes[factor];
  bool isEven = size % (mesh.getSize(dim.axes) * dim.granule) == 0;
  if (isEven || factors.empty())
    return even;

  const int64_t *first =
      llvm::find_if(factors, [&](int64_t factor) { return rule.sizes[factor] != 1; });
  if (first == factors.end())
    return FactorSplits(factors.size());
  for (int64_t factor : llvm::make_range(first + 1, factors.end()))
    minor *= rule.sizes[factor];
  int64_t parts = mesh.getSize(dim.axes), local = getLocalSize(size, parts, dim.granule);
  int64_t granule = dim.granule % minor == 0 ? dim.granule / minor : 1;
  FactorSplits uneven(factors.size());
  if (local % minor != 0 || getLocalSize(rule.sizes[*first], parts, granule) * minor != local)
    return uneven;
  uneven.axes[first - factors.begin()] = dim.axes;
  uneven.granules[first - factors.begin()] = granule;
  return uneven;
}

/// The split of a window's dimension on its one factor: by the same axes. Its granule is its own.
static FactorSplits splitWindow(const Layout::Dim &dim) {
  FactorSplits splits(1);
  splits.axes[0] = dim.axes;
  return splits;
}

/// A window is fetched from other devices, which what is cut in time has not. Leaves whole such
/// factors' micro-batch axis and what is under it.
static void dropWindowsInTime(const ShardingRule &rule, FactorSplits &chosen) {
  for (auto [tensor, dim] : rule.windows)
    for (int64_t factor : rule.tensors[tensor][dim]) {
      AxisList &axes = chosen.axes[factor];
      for (size_t i = 0; i < axes.size(); ++i)
        if (axes[i].getValue() == MeshOp::kMicroAxis)
          axes.truncate(i);
    }
}

namespace {
/// What tensors ask of one factor: candidate axis lists with the bytes that already have them.
struct Request {
  AxisList axes;
  int64_t granule;
  int64_t bytes;
  int64_t tensor;
};
} // namespace

static int64_t bytesOf(RankedTensorType type) {
  return type.getNumElements() * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// True when the first request is met by the second: the same axes or the first of them.
static bool agrees(const Request &shorter, const Request &longer) {
  return isPrefix(shorter.axes, longer.axes) && shorter.granule == longer.granule;
}

/// Leaves whole what no sharding could say, in any tensor's dimension: a factor under a major one
/// that is not cut down to single elements, and an uneven one under any major one.
static void dropMinorCuts(const ShardingRule &rule, const Mesh &mesh, FactorSplits &chosen,
                          ArrayRef<SmallVector<Request>> requests,
                          SmallVectorImpl<FactorConflict> *conflicts) {
  auto drop = [&](int64_t factor) {
    chosen.axes[factor].clear();
    chosen.granules[factor] = 1;
    if (conflicts)
      for (const Request &request : requests[factor])
        conflicts->push_back({factor, request.tensor});
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const TensorFactors &tensor : rule.tensors)
      for (ArrayRef<int64_t> factors : tensor) {
        bool whole = true, first = true; // all factors so far: cut down to elements; of one element
        for (int64_t factor : factors) {
          bool cut = !chosen.axes[factor].empty();
          if (cut && (!whole || (!first && chosen.isPadded(rule, factor, mesh)))) {
            drop(factor);
            changed = true;
          }
          whole &= mesh.getSize(chosen.axes[factor]) == rule.sizes[factor] &&
                   !chosen.isPadded(rule, factor, mesh);
          first &= rule.sizes[factor] == 1;
        }
      }
  }
}

FactorSplits gridloom::dist::mergeFactors(const ShardingRule &rule, ArrayRef<Layout> layouts,
                                          ArrayRef<RankedTensorType> types, const Mesh &mesh,
                                          SmallVectorImpl<FactorConflict> *conflicts) {
  size_t numFactors = rule.sizes.size();
  SmallVector<SmallVector<Request>> requests(numFactors);
  for (auto [tensor, factors] : llvm::enumerate(rule.tensors))
    for (auto [dim, list] : llvm::enumerate(factors)) {
      FactorSplits splits = rule.isWindow(tensor, dim)
                                ? splitWindow(layouts[tensor].dims[dim])
                                : splitOverFactors(rule, list, layouts[tensor].dims[dim], mesh);
      for (auto [factor, axes, granule] : llvm::zip_equal(list, splits.axes, splits.granules))
        if (!axes.empty() && rule.kinds[factor] != FactorKind::NeedReplication)
          requests[factor].push_back(
              {axes, granule, bytesOf(types[tensor]), static_cast<int64_t>(tensor)});
    }

  // Per factor: the list most bytes agree with; a longer list that extends it wins over it.
  FactorSplits chosen(numFactors);
  SmallVector<int64_t> weight(numFactors, 0);
  for (size_t factor = 0; factor < numFactors; ++factor) {
    const Request *best = nullptr;
    int64_t bestBytes = -1;
    for (const Request &candidate : requests[factor]) {
      int64_t bytes = 0;
      for (const Request &other : requests[factor])
        if (agrees(other, candidate))
          bytes += other.bytes;
      if (!best || bytes > bestBytes ||
          (bytes == bestBytes && candidate.axes.size() > best->axes.size())) {
        best = &candidate;
        bestBytes = bytes;
      }
    }
    if (!best)
      continue;
    chosen.axes[factor] = best->axes;
    chosen.granules[factor] = best->granule;
    weight[factor] = bestBytes;
    if (conflicts)
      for (const Request &other : requests[factor])
        if (!agrees(other, *best))
          conflicts->push_back({static_cast<int64_t>(factor), other.tensor});
  }

  // An axis serves one factor: the one with more bytes behind it.
  llvm::MapVector<StringAttr, size_t> owner;
  for (size_t factor = 0; factor < numFactors; ++factor)
    for (StringAttr axis : chosen.axes[factor]) {
      auto [it, inserted] = owner.insert({axis, factor});
      if (!inserted && weight[factor] > weight[it->second])
        it->second = factor;
    }
  for (size_t factor = 0; factor < numFactors; ++factor) {
    AxisList &axes = chosen.axes[factor];
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
  dropWindowsInTime(rule, chosen);
  return chosen;
}

Layout gridloom::dist::project(const ShardingRule &rule, size_t index, const FactorSplits &splits,
                               const Mesh &mesh) {
  Layout layout;
  for (auto [number, factors] : llvm::enumerate(rule.tensors[index])) {
    Layout::Dim dim;
    if (rule.isWindow(index, number)) {
      dim.axes = splits.axes[factors.front()];
      layout.dims.push_back(dim);
      continue;
    }
    for (auto [position, factor] : llvm::enumerate(factors)) {
      dim.axes.append(splits.axes[factor].begin(), splits.axes[factor].end());
      if (splits.isPadded(rule, factor, mesh)) {
        dim.granule = splits.granules[factor];
        for (int64_t minor : ArrayRef(factors).drop_front(position + 1))
          dim.granule *= rule.sizes[minor];
      }
      // A minor factor can only be cut where the major ones are cut down to single elements.
      if (mesh.getSize(splits.axes[factor]) != rule.sizes[factor])
        break;
    }
    layout.dims.push_back(dim);
  }
  return layout;
}
