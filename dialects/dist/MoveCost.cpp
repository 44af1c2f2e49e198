//===- MoveCost.cpp - cost of splitting an operation ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/MoveCost.h"

#include "dialects/dist/MachineAttr.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// The cost of moving data between micro-batches, which is impossible.
static constexpr double kImpossible = 1e18;

static double bytesOf(RankedTensorType type) {
  return static_cast<double>(type.getNumElements()) *
         std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// The number of leading axes that stay the same for a dimension of `size`: padding may move the
/// borders of parts.
static size_t getCommonAxes(int64_t size, const Sharding::Dim &from, const Sharding::Dim &to,
                            const Mesh &mesh) {
  size_t common = 0;
  while (common < from.axes.size() && common < to.axes.size() &&
         from.axes[common] == to.axes[common])
    ++common;
  auto joined = [&](const Sharding::Dim &dim) {
    return getLocalSize(size, mesh.getSize(dim.axes), dim.granule) *
           mesh.getSize(ArrayRef(dim.axes).drop_front(common));
  };
  while (common > 0 && joined(from) != joined(to))
    --common;
  return common;
}

static void addCollective(MoveCost &cost, cluster::Collective kind, double bytes,
                          ArrayRef<StringAttr> axes, const Mesh &mesh) {
  cost.sent += cluster::getSentBytes(kind, bytes, mesh.getSize(axes));
  cost.seconds += mesh.getSeconds(kind, bytes, axes);
}

double gridloom::dist::getCopySeconds(double bytes, const Mesh &mesh) {
  cluster::Work copy;
  copy.readBytes = copy.writtenBytes = bytes;
  return cluster::getComputeSeconds(mesh.getMachine(), copy);
}

/// Whether the parts along a dimension are interleaved in memory.
static bool isInner(ArrayRef<int64_t> shape, size_t dim) {
  return llvm::any_of(shape.take_front(dim), [](int64_t size) { return size != 1; });
}

double gridloom::dist::getOrderSeconds(RankedTensorType local, size_t dim, const Mesh &mesh) {
  return isInner(local.getShape(), dim) ? getCopySeconds(bytesOf(local), mesh) : 0;
}

MoveCost gridloom::dist::getMoveCost(RankedTensorType type, const Sharding &from,
                                     const Sharding &to, const Mesh &mesh) {
  RankedTensorType local = getLocalType(type, from, mesh);
  double bytes = bytesOf(local);
  AxisList gathered, moved;
  MoveCost cost;
  bool ordersGathered = false, ordersSplit = false, ordersJoined = false;
  for (auto [dim, size, have, want] : llvm::enumerate(type.getShape(), from.dims, to.dims)) {
    size_t common = getCommonAxes(size, have, want, mesh);
    for (StringAttr axis : ArrayRef(have.axes).drop_front(common)) {
      bool isMoved = to.usesAxis(axis);
      (isMoved ? moved : gathered).push_back(axis);
      (isMoved ? ordersJoined : ordersGathered) |= isInner(local.getShape(), dim);
      cost.seconds += isMicroAxis(axis) ? kImpossible : 0;
    }
    if (common == have.axes.size())
      for (StringAttr axis : ArrayRef(want.axes).drop_front(common)) {
        if (!from.usesAxis(axis))
          bytes /= static_cast<double>(mesh.getSize(axis));
        else
          ordersSplit |= isInner(local.getShape(), dim);
      }
  }
  bytes *= static_cast<double>(mesh.getSize(gathered));
  addCollective(cost, cluster::Collective::AllGather, bytes, gathered, mesh);
  addCollective(cost, cluster::Collective::AllToAll, bytes, moved, mesh);
  int copies = (ordersGathered ? 1 : 0) + (ordersSplit ? 1 : 0) + (ordersJoined ? 1 : 0);
  cost.copySeconds = copies ? copies * getCopySeconds(bytes, mesh) : 0;
  return cost;
}

MoveCost gridloom::dist::getSplitCost(const ShardingRule &rule, ArrayRef<Sharding> shardings,
                                      ArrayRef<RankedTensorType> types, const FactorSplits &splits,
                                      const Mesh &mesh) {
  MoveCost cost;
  AxisList partial;
  double points = 1;
  bool contracts = false;
  for (auto [size, kind, axes, granule] :
       llvm::zip_equal(rule.sizes, rule.kinds, splits.axes, splits.granules)) {
    int64_t parts = mesh.getSize(axes);
    points *= static_cast<double>(parts > 1 ? getLocalSize(size, parts, granule) : size);
    if (kind != FactorKind::Reduction)
      continue;
    contracts = true;
    partial.append(axes.begin(), axes.end());
  }
  // The last tensor is the result; several results move together.
  cluster::Work work;
  for (size_t index = 0; index < shardings.size(); ++index) {
    Sharding used = project(rule, index, splits, mesh);
    bool isResult = index + 1 == shardings.size();
    const Sharding &there = shardings[index];
    MoveCost move = isResult ? getMoveCost(types[index], used, there, mesh)
                             : getMoveCost(types[index], there, used, mesh);
    cost.sent += move.sent;
    cost.seconds += move.seconds;
    double bytes = bytesOf(getLocalType(types[index], used, mesh));
    (isResult ? work.writtenBytes : work.readBytes) += bytes;
    if (isResult)
      addCollective(cost, cluster::Collective::AllReduce, bytes, partial, mesh);
  }
  bool isProduct = contracts && types.size() > 2; // else a reduction of one tensor
  work.kind = isProduct ? cluster::WorkClass::Contraction : cluster::WorkClass::Other;
  work.type = getNumberType(types.front().getElementType());
  work.flops = isProduct ? 2 * points : points;
  cost.seconds += cluster::getComputeSeconds(mesh.getMachine(), work);
  return cost;
}
