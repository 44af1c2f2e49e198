//===- Factors.cpp - from shardings to factors and back -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Factors.h"

#include "dialects/dist/Limits.h"
#include "dialects/dist/MoveCost.h"

#include "llvm/ADT/DenseSet.h"

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

/// Distributes a dimension's split over its factors. A factor takes axes, major first, as long as
/// they divide it; the next factor gets axes only if this one is used up. A split that does not
/// divide evenly goes to the first factor with more than one element as a whole, if its shards are
/// whole elements of that factor.
static FactorSplits splitOverFactors(const ShardingRule &rule, ArrayRef<int64_t> factors,
                                     const Sharding::Dim &dim, const Mesh &mesh) {
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

/// The split of a window's dimension for its one factor: the same axes, without the granule.
static FactorSplits splitWindow(const Sharding::Dim &dim) {
  FactorSplits splits(1);
  splits.axes[0] = dim.axes;
  return splits;
}

/// Windows are fetched from other devices, so micro-batches cannot split them: removes the
/// micro-batch axis, and what is minor to it, from their factors.
static void dropWindowsInTime(const ShardingRule &rule, FactorSplits &chosen) {
  for (const WindowDim &window : rule.windows)
    for (int64_t factor : rule.tensors[window.tensor][window.dim]) {
      AxisList &axes = chosen.axes[factor];
      for (size_t i = 0; i < axes.size(); ++i)
        if (isMicroAxis(axes[i]))
          axes.truncate(i);
    }
}

namespace {
/// A split that tensors request for one factor, with the bytes of the tensors that agree with it.
struct Request {
  int64_t factor;
  AxisList axes;
  int64_t granule;
  int64_t bytes;
  int64_t tensor; ///< the first tensor with this request
};
} // namespace

static int64_t bytesOf(RankedTensorType type) {
  return type.getNumElements() * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// True if the factor is split as requested, or over more axes.
static bool isMet(const Request &request, const FactorSplits &splits) {
  return isPrefix(request.axes, splits.axes[request.factor]) &&
         request.granule == splits.granules[request.factor];
}

/// The requests of all tensors, in the order of the tensors.
static SmallVector<Request> collectRequests(const ShardingRule &rule, ArrayRef<Sharding> shardings,
                                            ArrayRef<RankedTensorType> types, const Mesh &mesh) {
  SmallVector<Request> requests;
  for (auto [tensor, factors] : llvm::enumerate(rule.tensors))
    for (auto [dim, list] : llvm::enumerate(factors)) {
      FactorSplits splits = rule.isWindow(tensor, dim)
                                ? splitWindow(shardings[tensor].dims[dim])
                                : splitOverFactors(rule, list, shardings[tensor].dims[dim], mesh);
      for (auto [factor, axes, granule] : llvm::zip_equal(list, splits.axes, splits.granules))
        if (!axes.empty() && rule.kinds[factor] != FactorKind::NeedReplication)
          requests.push_back(
              {factor, axes, granule, bytesOf(types[tensor]), static_cast<int64_t>(tensor)});
    }
  return requests;
}

/// The distinct requests, those that most bytes agree with first; of equal ones, those with more
/// axes.
static SmallVector<Request> rankRequests(ArrayRef<Request> requests) {
  SmallVector<Request> ranked;
  for (const Request &request : requests) {
    if (llvm::any_of(ranked, [&](const Request &other) {
          return other.factor == request.factor && other.axes == request.axes &&
                 other.granule == request.granule;
        }))
      continue;
    ranked.push_back(request);
    ranked.back().bytes = 0;
    for (const Request &other : requests)
      if (other.factor == request.factor && other.granule == request.granule &&
          isPrefix(other.axes, request.axes))
        ranked.back().bytes += other.bytes;
  }
  llvm::stable_sort(ranked, [](const Request &a, const Request &b) {
    return std::pair(a.bytes, a.axes.size()) > std::pair(b.bytes, b.axes.size());
  });
  return ranked;
}

/// Leaves factors whole that no sharding could express as split, in any tensor's dimension: one
/// minor to a factor that is not split into single elements, an uneven one minor to any other, and
/// one minor to a factor cut into micro-batches.
static void dropMinorCuts(const ShardingRule &rule, const Mesh &mesh, FactorSplits &chosen) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const TensorFactors &tensor : rule.tensors)
      for (ArrayRef<int64_t> factors : tensor) {
        bool whole = true, first = true; // all factors so far: cut down to elements; of one element
        for (int64_t factor : factors) {
          bool cut = !chosen.axes[factor].empty();
          if (cut && (!whole || (!first && chosen.isPadded(rule, factor, mesh)))) {
            chosen.axes[factor].clear();
            chosen.granules[factor] = 1;
            changed = true;
          }
          whole &= mesh.getSize(chosen.axes[factor]) == rule.sizes[factor] &&
                   !chosen.isPadded(rule, factor, mesh) &&
                   llvm::none_of(chosen.axes[factor], isMicroAxis);
          first &= rule.sizes[factor] == 1;
        }
      }
  }
}

/// Grants request number `first`, then the others in order, as far as earlier grants allow: one
/// list of axes per factor, which later requests may only extend, and one factor per axis.
static FactorSplits grant(const ShardingRule &rule, ArrayRef<Request> requests, size_t first,
                          const Mesh &mesh) {
  FactorSplits chosen(rule.sizes.size());
  llvm::SmallDenseSet<StringAttr> taken;
  auto take = [&](const Request &request) {
    AxisList &axes = chosen.axes[request.factor];
    if (!axes.empty() &&
        (!isPrefix(axes, request.axes) || chosen.granules[request.factor] != request.granule))
      return;
    for (StringAttr axis : ArrayRef(request.axes).drop_front(axes.size())) {
      if (!taken.insert(axis).second)
        break;
      axes.push_back(axis);
      chosen.granules[request.factor] = request.granule;
    }
  };
  take(requests[first]);
  for (const Request &request : requests)
    take(request);
  dropMinorCuts(rule, mesh, chosen);
  dropWindowsInTime(rule, chosen);
  return chosen;
}

/// Groups tensors that have factors in common.
static SmallVector<SmallVector<size_t>> groupTensors(const ShardingRule &rule) {
  SmallVector<SmallVector<size_t>> groups;
  SmallVector<bool> known(rule.tensors.size(), false);
  for (size_t first = 0; first < rule.tensors.size(); ++first) {
    if (known[first])
      continue;
    llvm::DenseSet<int64_t> factors;
    auto shares = [&](const TensorFactors &tensor) {
      return llvm::any_of(tensor, [&](ArrayRef<int64_t> dim) {
        return llvm::any_of(dim, [&](int64_t factor) { return factors.contains(factor); });
      });
    };
    SmallVector<size_t> &group = groups.emplace_back();
    for (size_t tensor = first; tensor < rule.tensors.size(); ++tensor) {
      if (known[tensor] || (tensor != first && !shares(rule.tensors[tensor])))
        continue;
      known[tensor] = true;
      group.push_back(tensor);
      for (ArrayRef<int64_t> dim : rule.tensors[tensor])
        factors.insert(dim.begin(), dim.end());
    }
  }
  return groups;
}

/// Merges the factors of each group of tensors that have some in common.
static FactorSplits mergeSeparately(const ShardingRule &rule, ArrayRef<Sharding> shardings,
                                    ArrayRef<RankedTensorType> types, const Mesh &mesh,
                                    SmallVectorImpl<FactorConflict> *conflicts) {
  FactorSplits splits(rule.sizes.size());
  for (ArrayRef<size_t> members : groupTensors(rule)) {
    ShardingRule part = rule;
    part.isSeparable = false;
    part.tensors.clear();
    SmallVector<Sharding> partShardings;
    SmallVector<RankedTensorType> partTypes;
    for (size_t tensor : members) {
      part.tensors.push_back(rule.tensors[tensor]);
      partShardings.push_back(shardings[tensor]);
      partTypes.push_back(types[tensor]);
    }
    SmallVector<FactorConflict> partConflicts;
    FactorSplits found =
        mergeFactors(part, partShardings, partTypes, mesh, conflicts ? &partConflicts : nullptr);
    for (const TensorFactors &tensor : part.tensors)
      for (ArrayRef<int64_t> dim : tensor)
        for (int64_t factor : dim) {
          splits.axes[factor] = found.axes[factor];
          splits.granules[factor] = found.granules[factor];
        }
    for (FactorConflict &conflict : partConflicts) {
      conflict.loser = members[conflict.loser];
      conflicts->push_back(conflict);
    }
  }
  return splits;
}

FactorSplits gridloom::dist::mergeFactors(const ShardingRule &rule, ArrayRef<Sharding> shardings,
                                          ArrayRef<RankedTensorType> types, const Mesh &mesh,
                                          SmallVectorImpl<FactorConflict> *conflicts) {
  if (rule.isSeparable)
    return mergeSeparately(rule, shardings, types, mesh, conflicts);
  SmallVector<Request> requests = collectRequests(rule, shardings, types, mesh);
  SmallVector<Request> ranked = rankRequests(requests);
  if (ranked.empty())
    return FactorSplits(rule.sizes.size());
  FactorSplits best = grant(rule, ranked, 0, mesh);
  if (llvm::all_of(ranked, [&](const Request &request) { return isMet(request, best); }))
    return best;

  // Each request once comes first. Differences due to rounding do not count.
  constexpr double rounding = 1 - 1e-9;
  MoveCost least = getSplitCost(rule, shardings, types, best, mesh);
  SmallVector<MoveCost> costs = {least};
  for (size_t first = 1; first < ranked.size(); ++first) {
    FactorSplits splits = grant(rule, ranked, first, mesh);
    costs.push_back(getSplitCost(rule, shardings, types, splits, mesh));
    if (costs.back().seconds < least.seconds * rounding) {
      best = std::move(splits);
      least = costs.back();
    }
  }
  if (!conflicts)
    return best;
  for (const Request &request : requests) {
    if (isMet(request, best))
      continue;
    const Request *same = llvm::find_if(ranked, [&](const Request &other) {
      return other.factor == request.factor && other.axes == request.axes &&
             other.granule == request.granule;
    });
    conflicts->push_back({request.factor, request.tensor, request.axes, least.sent,
                          costs[same - ranked.begin()].sent});
  }
  return best;
}

/// A mesh axis that two factors claim; null if none. With a separable rule, tensors without a
/// common factor may share axes.
static StringAttr findSharedAxis(const ShardingRule &rule, const FactorSplits &splits) {
  SmallVector<int64_t> group(rule.sizes.size(), 0);
  if (rule.isSeparable)
    for (auto [number, members] : llvm::enumerate(groupTensors(rule)))
      for (size_t tensor : members)
        for (ArrayRef<int64_t> dim : rule.tensors[tensor])
          for (int64_t factor : dim)
            group[factor] = static_cast<int64_t>(number);
  llvm::DenseSet<std::pair<int64_t, StringAttr>> taken;
  for (auto [number, axes] : llvm::zip_equal(group, splits.axes))
    for (StringAttr axis : axes)
      if (!taken.insert({number, axis}).second)
        return axis;
  return {};
}

/// Why factor `number`, which is split, cannot be; empty if it can.
static std::string findFactorFault(const ShardingRule &rule, const FactorSplits &splits,
                                   size_t number, const Mesh &mesh) {
  ArrayRef<StringAttr> axes = splits.axes[number];
  std::string factor = "factor " + std::to_string(number);
  for (auto [i, axis] : llvm::enumerate(axes)) {
    if (llvm::none_of(mesh.getAxes(), [&](const Mesh::Axis &known) { return known.name == axis; }))
      return "splits " + factor + " over axis '" + axis.str() + "', which is not in the mesh";
    if (isMicroAxis(axis) && i + 1 != axes.size())
      return "splits " + factor + " over '" + axes[i + 1].str() +
             "' within micro-batches, which are minor to all axes";
  }
  if (rule.kinds[number] == FactorKind::NeedReplication)
    return "splits " + factor + ", all of which every device needs";
  if (splits.granules[number] < 1 || splits.granules[number] > kMaxGranule)
    return "cuts " + factor + " on multiples of " + std::to_string(splits.granules[number]);
  bool isCoupled = rule.kinds[number] == FactorKind::Reduction ||
                   llvm::is_contained(rule.coupled, static_cast<int64_t>(number));
  for (const WindowDim &window : rule.windows)
    isCoupled |=
        llvm::is_contained(rule.tensors[window.tensor][window.dim], static_cast<int64_t>(number));
  if (isCoupled && llvm::any_of(axes, isMicroAxis))
    return "cuts " + factor + " into micro-batches, which need each other's elements along it";
  return "";
}

std::string gridloom::dist::findFault(const ShardingRule &rule, const FactorSplits &splits,
                                      const Mesh &mesh) {
  for (size_t factor = 0; factor < rule.sizes.size(); ++factor)
    if (!splits.axes[factor].empty())
      if (std::string fault = findFactorFault(rule, splits, factor, mesh); !fault.empty())
        return fault;
  if (StringAttr axis = findSharedAxis(rule, splits))
    return "splits over axis '" + axis.str() + "' twice";
  FactorSplits possible = splits;
  dropMinorCuts(rule, mesh, possible);
  for (auto [factor, axes] : llvm::enumerate(splits.axes))
    if (axes != possible.axes[factor])
      return "splits factor " + std::to_string(factor) +
             ", which lies in a dimension under one that is not cut evenly down to single elements";
  return "";
}

Sharding gridloom::dist::project(const ShardingRule &rule, size_t index, const FactorSplits &splits,
                                 const Mesh &mesh) {
  Sharding sharding;
  for (auto [number, factors] : llvm::enumerate(rule.tensors[index])) {
    Sharding::Dim dim;
    if (rule.isWindow(index, number)) {
      dim.axes = splits.axes[factors.front()];
      sharding.dims.push_back(dim);
      continue;
    }
    for (auto [position, factor] : llvm::enumerate(factors)) {
      dim.axes.append(splits.axes[factor].begin(), splits.axes[factor].end());
      if (splits.isPadded(rule, factor, mesh)) {
        dim.granule = splits.granules[factor];
        for (int64_t minor : ArrayRef(factors).drop_front(position + 1))
          dim.granule *= rule.sizes[minor];
      }
      // A minor factor can be split only if the major ones are split into single elements.
      if (mesh.getSize(splits.axes[factor]) != rule.sizes[factor])
        break;
    }
    sharding.dims.push_back(dim);
  }
  return sharding;
}
