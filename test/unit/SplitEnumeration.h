//===- SplitEnumeration.h - all splits of a small program ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Finds by exhaustive enumeration what the search of splits must find. Independent of the search:
// it uses none of its nodes, choices, edges and tables, nor its solver. The ways to split an
// operation are built from its rule here, and the cost of resharding is implemented again from
// docs/planner.md. Shared with the search are the rules themselves, the arithmetic of shardings
// (dialects/dist: the shardings of a split, whether they can express it, and the price of moving
// without reductions), the cost library, and the choice of values that stay inside a kernel
// (dialects/loom/Kernels.h).
//
// A way is skipped only if its known cost is no less than the best: all costs are at least 0.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_SPLITENUMERATION_H
#define GRIDLOOM_TEST_UNIT_SPLITENUMERATION_H

#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/MoveCost.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Kernels.h"
#include "dialects/loom/Uses.h"
#include "dialects/loom/Work.h"
#include "passes/shard/StageCuts.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <set>

namespace gridloom::testing {

/// Costs are in hundredths of a picosecond, as a search has them for a program that takes at most
/// 100 seconds on one device.
inline constexpr double kCostsPerSecond = 1e14;

/// The least cost of a function's splits. The function has one block of operations without windows,
/// and each weight is read once; nothing in it is pinned.
class SplitEnumeration {
public:
  /// With `countsAll`, memory costs a little, too, as where a search breaks ties, and so do copies
  /// of a device's part.
  SplitEnumeration(mlir::func::FuncOp func, llvm::ArrayRef<mlir::StringAttr> axes,
                   const dist::Mesh &mesh, bool countsAll)
      : mesh(mesh), axes(axes), countsAll(countsAll) {
    for (mlir::Operation &op : func.front().without_terminator())
      if (!mlir::isa<loom::GetWeightOp>(op))
        addOperation(&op);
    for (mlir::BlockArgument argument : func.getArguments())
      addValue(argument);
    for (mlir::Operation &op : func.front().without_terminator())
      for (mlir::Value result : op.getResults())
        addValue(result);
    rest.assign(operations.size() + 1, 0);
    for (size_t i = operations.size(); i > 0; --i)
      rest[i - 1] = rest[i] + operations[i - 1].ways.front().cost;
    chosen.resize(operations.size());
  }

  /// The least cost that is less than `below`, or `below`.
  double findLess(double below) {
    best = below;
    tried = 0;
    descend(0, 0);
    return best;
  }
  /// The number of partial assignments tried.
  uint64_t countTried() const { return tried; }

private:
  struct Way {
    double cost;
    std::vector<dist::ShardingAttr> tensors; ///< operands, then results
  };
  struct Operation {
    mlir::Operation *op;
    std::vector<Way> ways; ///< cheapest first
  };
  struct Read {
    size_t operation, operand;
    bool cutsApart; ///< cutting out a device's part for it takes a kernel
  };
  struct Value {
    mlir::RankedTensorType type;
    int64_t maker = -1; ///< index of the operation; -1 for arguments and weights
    size_t result = 0;
    std::vector<Read> reads;
    /// Shardings in which it may be kept between its maker and its readers; empty for a single
    /// reader.
    std::vector<dist::ShardingAttr> places;
    bool isWeight = false, isInKernel = false;
    bool isInCall = false;       ///< its reader is in the epilogue of a library call
    bool cutsApart = false;      ///< cutting it before all readers takes a kernel
    loom::TransposeOp transpose; ///< its reader, which its maker spares
    std::map<std::vector<const void *>, double> known;
  };

  double getSeconds(cluster::Collective kind, double bytes,
                    llvm::ArrayRef<mlir::StringAttr> along) const {
    return mesh.getSeconds(kind, bytes, along);
  }
  static double round(double seconds) { return std::round(seconds * kCostsPerSecond); }
  double bytesOf(mlir::RankedTensorType type, const dist::Sharding &sharding) const {
    return static_cast<double>(loom::getByteSize(dist::getLocalType(type, sharding, mesh)));
  }
  /// Breaks ties in favour of less memory: one per KiB.
  double tieOf(mlir::RankedTensorType type, dist::ShardingAttr sharding) const {
    return countsAll ? std::floor(bytesOf(type, dist::Sharding(sharding)) / 1024) : 0;
  }

  /// A device's share of the work, and the communication along coupled factors.
  double getOwnSeconds(mlir::Operation *op, const dist::ShardingRule &rule,
                       const dist::FactorSplits &splits,
                       llvm::ArrayRef<mlir::RankedTensorType> local) const {
    auto lengthOf = [&](size_t factor) {
      return static_cast<double>(dist::getLocalSize(
          rule.sizes[factor], mesh.getSize(splits.axes[factor]), splits.granules[factor]));
    };
    double share = 1, seconds = 0;
    for (size_t factor = 0; factor < rule.sizes.size(); ++factor)
      if (!splits.axes[factor].empty())
        share *= lengthOf(factor) / static_cast<double>(rule.sizes[factor]);
    for (int64_t factor : rule.coupled)
      if (!splits.axes[factor].empty())
        seconds +=
            (llvm::isa<loom::RmsNormOp, loom::CumulativeOp>(op) ? 1 : 2) *
            getSeconds(cluster::Collective::AllReduce,
                       static_cast<double>(loom::getByteSize(local.back())) / lengthOf(factor),
                       splits.axes[factor]);
    return seconds + loom::SharedWork(op, mesh.getMachine(), !countsAll).getSeconds(share, local);
  }

  /// Adds the way that splits the factors so, unless shardings cannot express it.
  void addWay(Operation &operation, const dist::ShardingRule &rule, const dist::OpSplits &splits) {
    llvm::SmallVector<mlir::RankedTensorType> types = dist::getTensorTypes(operation.op), local;
    llvm::SmallVector<dist::Sharding> shardings;
    for (size_t i = 0; i < types.size(); ++i)
      shardings.push_back(dist::project(rule, i, splits.factors, mesh));
    if (dist::mergeFactors(rule, shardings, types, mesh).axes != splits.factors.axes)
      return;
    Way way;
    way.cost = 0;
    for (auto [type, sharding] :
         llvm::zip_equal(types, dist::getSplitShardings(operation.op, rule, splits, mesh))) {
      local.push_back(dist::getLocalType(type, sharding, mesh));
      way.tensors.push_back(sharding.getAttr(mesh));
      way.cost += tieOf(type, way.tensors.back());
    }
    way.cost += round(getOwnSeconds(operation.op, rule, splits.factors, local));
    operation.ways.push_back(std::move(way));
  }

  /// Puts each axis in turn on each factor that has room, and on none; if sums may pass, each axis
  /// that splits nothing may also leave them partial.
  void addWays(Operation &operation, const dist::ShardingRule &rule, size_t axis,
               const dist::OpSplits &splits, bool passes) {
    if (axis == axes.size())
      return addWay(operation, rule, splits);
    addWays(operation, rule, axis + 1, splits, passes);
    if (passes) {
      dist::OpSplits other = splits;
      other.unreduced.push_back(axes[axis]);
      addWays(operation, rule, axis + 1, other, passes);
    }
    for (size_t factor = 0; factor < rule.sizes.size(); ++factor) {
      dist::OpSplits other = splits;
      other.factors.axes[factor].push_back(axes[axis]);
      if (rule.kinds[factor] != dist::FactorKind::NeedReplication &&
          mesh.getSize(other.factors.axes[factor]) <= rule.sizes[factor])
        addWays(operation, rule, axis + 1, other, passes);
    }
  }

  static bool isPartialSum(dist::ShardingAttr sharding) {
    return !sharding.getUnreduced().empty() && sharding.getReduction() == dist::ReductionKind::Sum;
  }

  void addOperation(mlir::Operation *op) {
    auto ruled = mlir::cast<dist::ShardingRuleInterface>(op);
    dist::ShardingRule rule = ruled.getShardingRule();
    bool passes = ruled.isLinear() && op->getNumOperands() > 0 &&
                  llvm::all_of(op->getOperands(),
                               [&](mlir::Value operand) { return sums.contains(operand); });
    Operation operation{op, {}};
    dist::OpSplits none;
    none.factors = dist::FactorSplits(rule.sizes.size());
    addWays(operation, rule, 0, none, passes);
    llvm::stable_sort(operation.ways, [](const Way &a, const Way &b) { return a.cost < b.cost; });
    for (const Way &way : operation.ways)
      if (isPartialSum(way.tensors.back()))
        sums.insert(op->getResult(0));
    numbers[op] = operations.size();
    operations.push_back(std::move(operation));
  }

  void addValue(mlir::Value made) {
    Value value;
    value.type = mlir::cast<mlir::RankedTensorType>(made.getType());
    mlir::Operation *maker = made.getDefiningOp();
    loom::Libraries libraries = loom::Libraries::of(mesh.getMachine(), !countsAll);
    mlir::Operation *reader = loom::getOnlyReader(made);
    value.isInKernel = loom::staysInRegisters(made, libraries);
    value.isInCall = value.isInKernel && reader && loom::isEpilogue(reader, libraries);
    if (reader && loom::isWrittenTransposed(reader, libraries))
      value.transpose = mlir::cast<loom::TransposeOp>(reader);
    value.isWeight = maker && mlir::isa<loom::GetWeightOp>(maker);
    if (maker && !value.isWeight) {
      value.maker = static_cast<int64_t>(numbers.lookup(maker));
      value.result = maker->getNumOperands();
    }
    value.cutsApart = cutsApart(maker, reader);
    bool isReturned = false;
    int64_t ready = value.maker;
    for (mlir::OpOperand &use : made.getUses()) {
      if (mlir::isa<mlir::func::ReturnOp>(use.getOwner())) {
        isReturned = true;
        continue;
      }
      value.reads.push_back({numbers.lookup(use.getOwner()), use.getOperandNumber(),
                             cutsApart(maker, use.getOwner())});
      ready = std::max(ready, static_cast<int64_t>(value.reads.back().operation));
    }
    if (value.isWeight)
      value.places = listStorages(maker);
    else if (!maker || isReturned || !made.hasOneUse())
      value.places = listPlaces(value, isReturned);
    if (ready >= 0) // a value without reads costs nothing
      readyAt[static_cast<size_t>(ready)].push_back(std::move(value));
  }

  /// A weight may be stored in every sharding.
  std::vector<dist::ShardingAttr> listStorages(mlir::Operation *weight) const {
    std::vector<dist::Sharding> all{dist::Sharding::replicated(static_cast<int64_t>(
        mlir::cast<mlir::RankedTensorType>(weight->getResult(0).getType()).getRank()))};
    auto type = mlir::cast<mlir::RankedTensorType>(weight->getResult(0).getType());
    for (mlir::StringAttr axis : axes)
      for (size_t i = 0, count = all.size(); i < count; ++i)
        for (size_t dim = 0; dim < all[i].dims.size(); ++dim) {
          dist::Sharding other = all[i];
          other.dims[dim].axes.push_back(axis);
          if (mesh.getSize(other.dims[dim].axes) <= type.getDimSize(dim))
            all.push_back(std::move(other));
        }
    std::vector<dist::ShardingAttr> places;
    for (const dist::Sharding &sharding : all)
      places.push_back(sharding.getAttr(mesh));
    return places;
  }

  /// Replicated, or any sharding of its maker or readers without partial sums; a partial sum only
  /// if all readers accept it.
  std::vector<dist::ShardingAttr> listPlaces(const Value &value, bool isReturned) const {
    std::vector<dist::ShardingAttr> offered{
        dist::Sharding::replicated(value.type.getRank()).getAttr(mesh)};
    if (value.maker >= 0)
      for (const Way &way : operations[value.maker].ways)
        offered.push_back(way.tensors[value.result]);
    for (const Read &read : value.reads)
      for (const Way &way : operations[read.operation].ways)
        offered.push_back(way.tensors[read.operand]);
    std::vector<dist::ShardingAttr> places;
    auto add = [&](dist::ShardingAttr place) {
      if (!llvm::is_contained(places, place))
        places.push_back(place);
    };
    std::set<const void *> seen;
    for (dist::ShardingAttr offer : offered) {
      if (!seen.insert(offer.getAsOpaquePointer()).second)
        continue;
      dist::Sharding whole(offer);
      whole.unreduced.clear();
      add(offer.getUnreduced().empty() ? offer : whole.getAttr(mesh));
      bool isReadSo =
          isPartialSum(offer) && !isReturned && llvm::all_of(value.reads, [&](const Read &read) {
            return llvm::any_of(operations[read.operation].ways,
                                [&](const Way &way) { return way.tensors[read.operand] == offer; });
          });
      if (isReadSo)
        add(offer);
    }
    return places;
  }

  /// Whether cutting a device's part out of what `maker` makes takes a kernel of its own. `reader`
  /// is the only one, or null. Parts of weights, and of operations that float, are made directly.
  bool cutsApart(mlir::Operation *maker, mlir::Operation *reader) const {
    if (!maker || isFloating(maker) || mlir::isa<loom::GetWeightOp>(maker))
      return false;
    if (!countsAll)
      return maker->hasOneUse() && reader &&
             mlir::isa<loom::DotGeneralOp, loom::ConvolutionOp>(reader);
    return !reader || !loom::readsAnywhere(reader, loom::Libraries::of(mesh.getMachine()));
  }

  /// The cost of changing a value's sharding for all readers, or for one of several.
  double getPrice(mlir::RankedTensorType type, dist::ShardingAttr from, dist::ShardingAttr to,
                  bool cutsApart) {
    if (from == to)
      return 0;
    const Price &price = findPrice(type, from, to);
    return price.all + (cutsApart ? price.alone : 0);
  }

  /// The same for its only reader, which takes it from its maker.
  double getPrice(const Value &value, dist::ShardingAttr from, dist::ShardingAttr to) {
    bool isJoined = value.isInKernel;
    double seconds = getPrice(value.type, from, to, !isJoined && value.reads.front().cutsApart);
    if (from == to)
      return seconds;
    const Price &price = findPrice(value.type, from, to);
    if (isJoined)
      seconds += value.isInCall ? price.call : price.apart;
    loom::TransposeOp transpose = value.transpose;
    if (transpose &&
        !loom::keepsOrder(transpose.getPermutation(),
                          dist::getLocalType(value.type, dist::Sharding(to), mesh).getShape()))
      seconds += price.copy;
    return seconds;
  }

  struct Price {
    double all = 0;
    double apart = 0; ///< more, if the value would otherwise stay in a kernel
    double call = 0;  ///< more, if it would otherwise stay in a library call
    double alone = 0; ///< more, if the reader cannot cut out a device's part itself
    double copy = 0;  ///< more, if the maker cannot write in the reader's order
  };

  const Price &findPrice(mlir::RankedTensorType type, dist::ShardingAttr from,
                         dist::ShardingAttr to) {
    auto [entry, isNew] = prices.try_emplace({type, from, to});
    Price &price = entry->second;
    if (isNew) {
      dist::Sharding source(from), target(to);
      Between between = getMove(type, source, target);
      price.all = round(between.seconds + between.copies);
      double launch = mesh.getMachine().kinds.front().launchSeconds;
      cluster::Work work;
      work.readBytes = work.writtenBytes = bytesOf(type, target);
      double copy = cluster::getComputeSeconds(mesh.getMachine(), work);
      if (between.seconds > 0 || between.isCut)
        price.apart = round(getApartSeconds(type, source, target));
      price.copy = between.seconds > 0 ? round(std::max(0.0, copy - between.order)) : 0;
      if (between.seconds > 0)
        price.call = round(copy);
      else if (between.isCut)
        price.call = round(countsAll ? copy : launch);
      if (between.isCut)
        price.alone = round(launch);
    }
    return price;
  }

  struct Between {
    double seconds;   ///< of communication
    double copies;    ///< seconds, before and after it
    bool isCut;       ///< whether a device's part is cut out of a larger one
    double order = 0; ///< seconds of `copies` that put in order what is sent
  };

  Between getMove(mlir::RankedTensorType type, const dist::Sharding &from,
                  const dist::Sharding &to) const {
    using cluster::Collective;
    // Partial sums may be reduced over some axes, but never arise from a value that is not partial.
    if (!to.unreduced.empty()) {
      dist::AxisList reduced;
      for (mlir::StringAttr axis : from.unreduced)
        if (!llvm::is_contained(to.unreduced, axis))
          reduced.push_back(axis);
      bool isPossible = reduced.size() + to.unreduced.size() == from.unreduced.size() &&
                        from.reduction == dist::ReductionKind::Sum && from.dims == to.dims;
      if (!isPossible)
        return {std::numeric_limits<double>::infinity(), 0, false};
      return {reduced.empty() ? 0 : getSeconds(Collective::AllReduce, bytesOf(type, from), reduced),
              0, false};
    }
    dist::Sharding now = from;
    double seconds = 0, copies = 0, order = 0;
    for (size_t dim = 0; dim < to.dims.size(); ++dim) {
      const dist::Sharding::Dim &have = now.dims[dim], &want = to.dims[dim];
      if (now.unreduced.empty() || want.axes.size() <= have.axes.size() ||
          !dist::isPrefix(have.axes, want.axes) ||
          (!have.axes.empty() && have.granule != want.granule))
        continue;
      llvm::ArrayRef<mlir::StringAttr> more =
          llvm::ArrayRef(want.axes).drop_front(have.axes.size());
      if (!llvm::all_of(
              more, [&](mlir::StringAttr axis) { return llvm::is_contained(now.unreduced, axis); }))
        continue;
      seconds += getSeconds(Collective::ReduceScatter, bytesOf(type, now), more);
      if (have.axes.empty() && type.getDimSize(dim) % (mesh.getSize(want.axes) * want.granule))
        copies += getPaddingSeconds(bytesOf(type, now));
      order += dist::getOrderSeconds(dist::getLocalType(type, now, mesh), dim, mesh);
      llvm::erase_if(now.unreduced,
                     [&](mlir::StringAttr axis) { return llvm::is_contained(more, axis); });
      now.dims[dim] = want;
    }
    if (!now.unreduced.empty())
      seconds += getSeconds(Collective::AllReduce, bytesOf(type, now), now.unreduced);
    now.unreduced.clear();
    dist::MoveCost move = dist::getMoveCost(type, now, to, mesh);
    seconds += move.seconds;
    auto [parts, isPadded] = countCutParts(type, now, to);
    order += move.copySeconds;
    if (parts > 1 && countsAll)
      copies += getCutSeconds(bytesOf(type, now), parts, isPadded);
    // A gathered dimension loses its padding, unless that is behind all elements.
    int64_t before = 1;
    for (size_t dim = 0; dim < to.dims.size(); ++dim) {
      const dist::Sharding::Dim &have = now.dims[dim];
      if (to.dims[dim].axes.empty() && !have.axes.empty() && before > 1 &&
          type.getDimSize(dim) % (mesh.getSize(have.axes) * have.granule))
        copies += getPaddingSeconds(bytesOf(type, to));
      before *= dist::getLocalType(type, to, mesh).getDimSize(dim);
    }
    return {seconds, copies + order, parts > 1, order};
  }

  /// A kernel that copies so many bytes, with countsAll.
  double getPaddingSeconds(double bytes) const {
    cluster::Work copy;
    copy.readBytes = copy.writtenBytes = bytes;
    return countsAll ? cluster::getComputeSeconds(mesh.getMachine(), copy) : 0;
  }

  /// The cost of splitting a kernel in two by communication: another launch and, with `countsAll`,
  /// the write and read of the value.
  double getApartSeconds(mlir::RankedTensorType type, const dist::Sharding &from,
                         const dist::Sharding &to) const {
    cluster::Work work;
    work.writtenBytes = bytesOf(type, from);
    work.readBytes = bytesOf(type, to);
    return countsAll ? cluster::getComputeSeconds(mesh.getMachine(), work)
                     : mesh.getMachine().kinds.front().launchSeconds;
  }

  /// Into how many parts what a device has is cut, and whether it is padded before.
  std::pair<double, bool> countCutParts(mlir::RankedTensorType type, const dist::Sharding &from,
                                        const dist::Sharding &to) const {
    double parts = 1;
    bool isPadded = false;
    for (size_t dim = 0; dim < to.dims.size(); ++dim) {
      const dist::Sharding::Dim &have = from.dims[dim], &want = to.dims[dim];
      if (want.axes.size() <= have.axes.size() || !dist::isPrefix(have.axes, want.axes))
        continue;
      int64_t here = 1;
      for (size_t i = have.axes.size(); i < want.axes.size(); ++i)
        here *= from.usesAxis(want.axes[i]) ? 1 : mesh.getSize(want.axes[i]);
      parts *= static_cast<double>(here);
      isPadded |=
          here > 1 && have.axes.empty() && type.getDimSize(dim) % (here * want.granule) != 0;
    }
    return {parts, isPadded};
  }

  /// The copy of a device's part out of a larger one, and of the padding before it, without a
  /// launch: one kind of device, one class of work.
  double getCutSeconds(double bytes, double parts, bool isPadded) const {
    cluster::Work copy;
    copy.readBytes = copy.writtenBytes = bytes / parts + (isPadded ? bytes : 0);
    const cluster::DeviceKind &kind = mesh.getMachine().kinds.front();
    return cluster::getComputeSeconds(kind, copy) - kind.launchSeconds;
  }

  /// The least cost of bringing a value from its maker to all readers.
  double getBetween(Value &value) {
    const dist::ShardingAttr made =
        value.maker < 0 ? dist::ShardingAttr() : chosen[value.maker]->tensors[value.result];
    std::vector<const void *> key{made ? made.getAsOpaquePointer() : nullptr};
    std::vector<dist::ShardingAttr> needs;
    for (const Read &read : value.reads) {
      needs.push_back(chosen[read.operation]->tensors[read.operand]);
      key.push_back(needs.back().getAsOpaquePointer());
    }
    auto [entry, isNew] = value.known.try_emplace(std::move(key), 0);
    if (!isNew)
      return entry->second;
    if (value.places.empty())
      return entry->second = getPrice(value, made, needs.front());
    double least = std::numeric_limits<double>::infinity();
    for (dist::ShardingAttr place : value.places) {
      double cost = tieOf(value.type, place);
      if (made)
        cost += getPrice(value.type, made, place, value.cutsApart);
      for (auto [read, need] : llvm::zip_equal(value.reads, needs))
        cost += place.getUnreduced() == need.getUnreduced()
                    ? getPrice(value.type, place, need, read.cutsApart)
                    : std::numeric_limits<double>::infinity();
      least = std::min(least, cost);
    }
    return entry->second = least;
  }

  void descend(size_t index, double cost) {
    if (index == operations.size()) {
      best = std::min(best, cost);
      return;
    }
    for (const Way &way : operations[index].ways) {
      if (cost + way.cost + rest[index + 1] >= best)
        return; // later ways cost more
      ++tried;
      chosen[index] = &way;
      double now = cost + way.cost;
      for (Value &value : readyAt[index])
        now += getBetween(value);
      if (now + rest[index + 1] < best)
        descend(index + 1, now);
    }
  }

  const dist::Mesh &mesh;
  llvm::ArrayRef<mlir::StringAttr> axes;
  bool countsAll;
  std::vector<Operation> operations;
  llvm::DenseMap<mlir::Operation *, size_t> numbers;
  llvm::DenseSet<mlir::Value> sums; ///< results that some split of their operation leaves partial
  std::map<size_t, std::vector<Value>> readyAt; ///< keyed by the last operation that uses them
  std::vector<double> rest; ///< the least cost of the operations from each index on
  std::vector<const Way *> chosen;
  llvm::DenseMap<std::tuple<mlir::Type, mlir::Attribute, mlir::Attribute>, Price> prices;
  double best = 0;
  uint64_t tried = 0;
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_SPLITENUMERATION_H
