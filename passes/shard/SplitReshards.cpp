//===- SplitReshards.cpp - what lies between two splits -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitReshards.h"

#include "dialects/dist/MoveCost.h"
#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Whether a partial value can be reduced straight into the parts that `to` has of dimension `dim`.
static bool scatters(const Sharding &from, const Sharding &to, size_t dim) {
  const Sharding::Dim &have = from.dims[dim], &want = to.dims[dim];
  return want.axes.size() > have.axes.size() && isPrefix(have.axes, want.axes) &&
         (have.axes.empty() || have.granule == want.granule) &&
         llvm::all_of(ArrayRef(want.axes).drop_front(have.axes.size()),
                      [&](StringAttr axis) { return llvm::is_contained(from.unreduced, axis); });
}

/// The time to reduce what `to` does not leave partial; nothing else is done to partial sums.
static double getPartialSeconds(RankedTensorType type, const Sharding &from, const Sharding &to,
                                const Mesh &mesh) {
  AxisList reduced = from.unreduced;
  for (StringAttr axis : to.unreduced) {
    auto *found = llvm::find(reduced, axis);
    if (found == reduced.end() || from.reduction != ReductionKind::Sum || from.dims != to.dims)
      return std::numeric_limits<double>::infinity();
    reduced.erase(found);
  }
  auto bytes = static_cast<double>(loom::getByteSize(getLocalType(type, from, mesh)));
  return reduced.empty() ? 0 : mesh.getSeconds(cluster::Collective::AllReduce, bytes, reduced);
}

/// Seconds, without a launch, to copy a device's part out of what it has, and to pad a whole
/// dimension to equal parts; nullopt if nothing is cut out.
static std::optional<double> getCutSeconds(RankedTensorType type, const Sharding &from,
                                           const Sharding &to, const Mesh &mesh) {
  auto whole = static_cast<double>(loom::getByteSize(getLocalType(type, from, mesh)));
  double share = 1, padded = 0;
  for (auto [size, have, want] : llvm::zip_equal(type.getShape(), from.dims, to.dims)) {
    if (want.axes.size() <= have.axes.size() || !isPrefix(have.axes, want.axes))
      continue;
    int64_t parts = 1;
    for (StringAttr axis : ArrayRef(want.axes).drop_front(have.axes.size()))
      parts *= from.usesAxis(axis) ? 1 : mesh.getSize(axis);
    share /= static_cast<double>(parts);
    if (parts > 1 && have.axes.empty() && size % (parts * want.granule) != 0)
      padded = whole;
  }
  if (share == 1)
    return std::nullopt;
  cluster::Work copy;
  copy.readBytes = copy.writtenBytes = padded + share * whole;
  double seconds = 0;
  for (const cluster::DeviceKind &kind : mesh.getMachine().kinds)
    seconds = std::max(seconds, cluster::getComputeParts(kind, copy).memory);
  return seconds;
}

/// Whether equal parts of a dimension are more than it holds.
static bool isPadded(int64_t size, const Sharding::Dim &dim, const Mesh &mesh) {
  int64_t parts = mesh.getSize(dim.axes);
  return parts > 1 && size % (parts * dim.granule) != 0;
}

/// The time to cut the padding of dimensions that are gathered. In the outermost one it stays
/// behind what is read.
static double getTrimSeconds(RankedTensorType type, const Sharding &from, const Sharding &to,
                             const Mesh &mesh) {
  RankedTensorType gathered = getLocalType(type, to, mesh);
  double seconds = 0;
  for (auto [dim, size, have, want] : llvm::enumerate(type.getShape(), from.dims, to.dims))
    if (want.axes.empty() && isPadded(size, have, mesh))
      seconds += getOrderSeconds(gathered, dim, mesh);
  return seconds;
}

ReshardCost gridloom::getReshardCost(RankedTensorType type, const Sharding &from,
                                     const Sharding &to, const Mesh &mesh) {
  ReshardCost cost;
  if (!to.unreduced.empty()) {
    cost.seconds = getPartialSeconds(type, from, to, mesh);
    return cost;
  }
  Sharding reduced = from;
  for (size_t dim = 0; dim < to.dims.size() && !reduced.unreduced.empty(); ++dim) {
    if (!scatters(reduced, to, dim))
      continue;
    RankedTensorType local = getLocalType(type, reduced, mesh);
    ArrayRef<StringAttr> parts =
        ArrayRef(to.dims[dim].axes).drop_front(reduced.dims[dim].axes.size());
    cost.seconds += mesh.getSeconds(cluster::Collective::ReduceScatter,
                                    static_cast<double>(loom::getByteSize(local)), parts);
    cost.order += getOrderSeconds(local, dim, mesh);
    if (reduced.dims[dim].axes.empty() && isPadded(type.getDimSize(dim), to.dims[dim], mesh))
      cost.cuts += getCopySeconds(static_cast<double>(loom::getByteSize(local)), mesh);
    llvm::erase_if(reduced.unreduced,
                   [&](StringAttr axis) { return llvm::is_contained(parts, axis); });
    reduced.dims[dim] = to.dims[dim];
  }
  if (!reduced.unreduced.empty())
    cost.seconds +=
        mesh.getSeconds(cluster::Collective::AllReduce,
                        static_cast<double>(loom::getByteSize(getLocalType(type, reduced, mesh))),
                        reduced.unreduced);
  reduced.unreduced.clear();
  MoveCost move = getMoveCost(type, reduced, to, mesh);
  cost.seconds += move.seconds;
  cost.order += move.copySeconds;
  std::optional<double> cut = getCutSeconds(type, reduced, to, mesh);
  cost.isCut = cut.has_value();
  cost.cuts += cut.value_or(0) + getTrimSeconds(type, reduced, to, mesh);
  return cost;
}

double gridloom::getApartSeconds(RankedTensorType type, const Sharding &from, const Sharding &to,
                                 const Mesh &mesh) {
  cluster::Work work;
  work.writtenBytes = static_cast<double>(loom::getByteSize(getLocalType(type, from, mesh)));
  work.readBytes = static_cast<double>(loom::getByteSize(getLocalType(type, to, mesh)));
  return cluster::getComputeSeconds(mesh.getMachine(), work);
}
