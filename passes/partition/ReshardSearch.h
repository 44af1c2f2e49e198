//===- ReshardSearch.h - the cheapest way between two shardings -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_PARTITION_RESHARDSEARCH_H
#define GRIDLOOM_PASSES_PARTITION_RESHARDSEARCH_H

#include "passes/partition/Resharder.h"

#include <optional>
#include <tuple>
#include <vector>

namespace gridloom::reshard {

/// Mesh axes of more than one device, numbered from 0. A mesh has at most 2^20 devices, so at most
/// 20 of them, and the axis of micro-batches.
using Axes = llvm::SmallVector<uint8_t, 4>;
using AxisMask = uint32_t;

/// The distribution of a tensor over the devices. Part p of a dimension holds the elements from p *
/// local on; elements beyond the global size are padding. States have local sizes because
/// intermediate shardings may have no granule.
struct State {
  struct Dim {
    Axes axes;
    int64_t local;
    bool operator==(const Dim &other) const { return local == other.local && axes == other.axes; }
  };
  llvm::SmallVector<Dim, 4> dims;
  AxisMask unreduced = 0;
  bool operator==(const State &other) const {
    return unreduced == other.unreduced && dims == other.dims;
  }
};

/// The cost for a device, in integers, so that the order of steps does not change sums. Compared by
/// time, then bytes, collectives, steps.
struct Cost {
  int64_t time = 0;  ///< picoseconds
  int64_t bytes = 0; ///< sent, times the number of devices
  int32_t collectives = 0, steps = 0;
  Cost operator+(const Cost &other) const {
    return {time + other.time, bytes + other.bytes, collectives + other.collectives,
            steps + other.steps};
  }
  bool operator<(const Cost &other) const {
    return std::tie(time, bytes, collectives, steps) <
           std::tie(other.time, other.bytes, other.collectives, other.steps);
  }
};

/// A step and the state after it.
struct Move {
  ReshardStep::Kind kind;
  Axes axes;
  int64_t dim = 0, splitDim = 0, padTo = 0, trimTo = 0;
  Cost cost;
  State after;
};

/// The moves between shardings of one tensor on one mesh, and what they cost.
class Moves {
public:
  Moves(const dist::Sharding &from, const dist::Sharding &to, mlir::RankedTensorType global,
        const dist::Mesh &mesh);

  const State &getStart() const { return start; }
  bool isDone(const State &state) const { return state == goal; }
  /// True if no sequence of moves reaches the goal without communication over the micro-batch axis.
  bool isImpossible() const;
  /// Lists all possible next moves; if there is a free slice, only that one.
  void collect(const State &state, std::vector<Move> &moves) const;
  /// A lower bound on the cost from the state to the goal.
  Cost getBound(const State &state) const;
  /// Reduces everything, gathers every dimension that differs from the goal, slices.
  std::vector<Move> gatherThenSlice() const;
  /// Takes at each step the first kind of move that brings the goal nearer: slice, reduce_scatter,
  /// all_reduce, all_to_all, all_gather.
  std::vector<Move> planGreedily() const;
  ReshardStep getStep(const Move &move, const State &before) const;

private:
  int64_t getParts(llvm::ArrayRef<uint8_t> axes) const;
  AxisMask getUsed(const State &state) const;
  AxisMask getPending(const State &state) const { return state.unreduced & ~goal.unreduced; }
  void findLeastCosts();
  bool touchesMicro(llvm::ArrayRef<uint8_t> axes) const;
  /// The local size of the dimension when it is split over the first `count` of its target axes.
  int64_t getWantedLocal(size_t dim, size_t count) const;
  bool isOnTrack(const State &state, size_t dim) const;
  size_t getCommonAxes(const State &state, size_t dim) const;
  int64_t getBytes(const State &state) const;
  /// The cost of a collective over the axes; `bytes` is the larger of a device's operand and
  /// result.
  Cost getCost(cluster::Collective kind, int64_t bytes, llvm::ArrayRef<uint8_t> along) const;

  std::optional<Move> cut(ReshardStep::Kind kind, const State &state, size_t dim,
                          llvm::ArrayRef<uint8_t> axes) const;
  Move reduce(const State &state, AxisMask axes) const;
  Move gather(const State &state, size_t dim, size_t keep) const;
  std::optional<Move> exchange(const State &state, size_t source, size_t count,
                               size_t target) const;
  bool cutDim(State &state, size_t dim, llvm::ArrayRef<uint8_t> axes, int64_t &padTo) const;
  void joinDim(State &state, size_t dim, size_t keep, int64_t &trimTo) const;
  std::optional<Move> slice(const State &state) const;
  void collectScatters(const State &state, std::vector<Move> &moves) const;
  void collectPermutes(const State &state, std::vector<Move> &moves) const;
  std::optional<Move> permute(const State &state, const State &after) const;
  llvm::SmallVector<int64_t> getPermutation(const State &before, const State &after,
                                            llvm::ArrayRef<uint8_t> axes) const;

  const dist::Mesh &mesh;
  llvm::SmallVector<dist::Mesh::Axis> meshAxes; ///< of more than one device, and micro
  llvm::SmallVector<int64_t> sizes;
  int64_t elementBytes, numDevices = 1;
  AxisMask micro = 0;
  State start, goal;
  /// Lower bounds for any collective: the shortest start and step, and the least time per byte.
  int64_t leastStart = 0;
  double leastPerByte = 0; ///< picoseconds
};

/// The cheapest sequence of moves, or the best found if the search grows too large; nullopt if
/// there is none.
std::optional<llvm::SmallVector<ReshardStep>> findSteps(const Moves &moves);

} // namespace gridloom::reshard

#endif // GRIDLOOM_PASSES_PARTITION_RESHARDSEARCH_H
