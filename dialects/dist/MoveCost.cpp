//===- MoveCost.cpp - cost of splitting an operation ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/MoveCost.h"

using namespace mlir;
using namespace gridloom::dist;

/// The cost of moving data between micro-batches, which is impossible.
static constexpr double kImpossible = 1e18;

static double bytesOf(RankedTensorType type) {
  return static_cast<double>(type.getNumElements()) *
         std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// The number of a dimension's leading axes that stay in place.
static size_t getCommonAxes(const Sharding::Dim &from, const Sharding::Dim &to) {
  size_t common = 0;
  while (common < from.axes.size() && common < to.axes.size() &&
         from.axes[common] == to.axes[common])
    ++common;
  return from.granule == to.granule || from.axes.empty() || to.axes.empty() ? common : 0;
}

MoveCost gridloom::dist::getMoveCost(RankedTensorType type, const Sharding &from,
                                     const Sharding &to, const Mesh &mesh) {
  double bytes = bytesOf(getLocalType(type, from, mesh));
  int64_t gathered = 1, moved = 1;
  MoveCost cost;
  for (auto [have, want] : llvm::zip_equal(from.dims, to.dims)) {
    size_t common = getCommonAxes(have, want);
    for (StringAttr axis : ArrayRef(have.axes).drop_front(common)) {
      (to.usesAxis(axis) ? moved : gathered) *= mesh.getSize(axis);
      cost.rest += isMicroAxis(axis) ? kImpossible : 0;
    }
    if (common == have.axes.size())
      for (StringAttr axis : ArrayRef(want.axes).drop_front(common))
        if (!from.usesAxis(axis))
          bytes /= static_cast<double>(mesh.getSize(axis));
  }
  if (gathered > 1) {
    cost.sent += bytes * static_cast<double>(gathered - 1);
    cost.rest += kStepBytes;
    bytes *= static_cast<double>(gathered);
  }
  if (moved > 1) {
    cost.sent += bytes * static_cast<double>(moved - 1) / static_cast<double>(moved);
    cost.rest += kStepBytes;
  }
  return cost;
}

MoveCost gridloom::dist::getSplitCost(const ShardingRule &rule, ArrayRef<Sharding> shardings,
                                      ArrayRef<RankedTensorType> types, const FactorSplits &splits,
                                      const Mesh &mesh) {
  MoveCost cost;
  auto add = [&](const MoveCost &more) {
    cost.sent += more.sent;
    cost.rest += more.rest;
  };
  int64_t partial = 1;
  double points = 1;
  bool contracts = false;
  for (auto [size, kind, axes, granule] :
       llvm::zip_equal(rule.sizes, rule.kinds, splits.axes, splits.granules)) {
    int64_t parts = mesh.getSize(axes);
    points *= static_cast<double>(parts > 1 ? getLocalSize(size, parts, granule) : size);
    contracts |= kind == FactorKind::Reduction;
    partial *= kind == FactorKind::Reduction ? parts : 1;
  }
  // The last tensor is the result; of several results the others go along with it.
  for (size_t index = 0; index < shardings.size(); ++index) {
    Sharding used = project(rule, index, splits, mesh);
    bool isResult = index + 1 == shardings.size();
    const Sharding &there = shardings[index];
    add(isResult ? getMoveCost(types[index], used, there, mesh)
                 : getMoveCost(types[index], there, used, mesh));
    double bytes = bytesOf(getLocalType(types[index], used, mesh));
    if (isResult && partial > 1)
      add({2 * bytes * static_cast<double>(partial - 1) / static_cast<double>(partial),
           kStepBytes});
    if (isResult)
      cost.rest +=
          std::max(bytes * kBytesPerMemoryByte, contracts ? points * kBytesPerMultiplyAdd : 0.0);
  }
  return cost;
}
