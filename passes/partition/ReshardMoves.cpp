//===- ReshardMoves.cpp - steps between shardings and their costs -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/ReshardSearch.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::reshard;

using MeshAxes = ArrayRef<dist::Mesh::Axis>;

/// Per second: times are integers of picoseconds.
static constexpr double kPicoseconds = 1e12;
/// The most that a move counts, so that sums of moves fit into 64 bits.
static constexpr double kMost = 1e17;

/// Axes of one device do nothing and are left out.
static SmallVector<dist::Mesh::Axis> getAxes(const dist::Mesh &mesh) {
  return SmallVector<dist::Mesh::Axis>(llvm::make_filter_range(
      mesh.getAxes(), [](const dist::Mesh::Axis &axis) { return axis.size > 1; }));
}

/// Converts a sharding to numbers of axes.
static State getState(const dist::Sharding &sharding, RankedTensorType global,
                      const dist::Mesh &mesh, MeshAxes meshAxes) {
  auto find = [&](StringAttr name) -> int {
    for (auto [i, axis] : llvm::enumerate(meshAxes))
      if (axis.name == name)
        return static_cast<int>(i);
    return -1;
  };
  State state;
  for (auto [dim, local] :
       llvm::zip_equal(sharding.dims, dist::getLocalType(global, sharding, mesh).getShape())) {
    Axes axes;
    for (StringAttr name : dim.axes)
      if (int axis = find(name); axis >= 0)
        axes.push_back(static_cast<uint8_t>(axis));
    state.dims.push_back({axes, local});
  }
  for (StringAttr name : sharding.unreduced)
    if (int axis = find(name); axis >= 0)
      state.unreduced |= 1U << axis;
  return state;
}

Moves::Moves(const dist::Sharding &from, const dist::Sharding &to, RankedTensorType global,
             const dist::Mesh &mesh)
    : mesh(mesh), meshAxes(getAxes(mesh)), sizes(global.getShape()),
      elementBytes(std::max<int64_t>(1, global.getElementTypeBitWidth() / 8)),
      start(getState(from, global, mesh, meshAxes)), goal(getState(to, global, mesh, meshAxes)) {
  assert(meshAxes.size() <= sizeof(AxisMask) * 8 && "more axes than a mask has bits");
  for (auto [i, axis] : llvm::enumerate(meshAxes)) {
    numDevices *= axis.size;
    if (dist::isMicroAxis(axis.name))
      micro |= 1U << i;
  }
  findLeastCosts();
}

void Moves::findLeastCosts() {
  double fastest = 0, shortest = std::numeric_limits<double>::infinity();
  for (const cluster::Level &level : mesh.getMachine().levels) {
    fastest = std::max(fastest, level.bytesPerSecond);
    shortest = std::min(shortest, level.latencySeconds);
  }
  if (fastest == 0)
    return; // one device
  double start = kPicoseconds * (cluster::getStartSeconds(mesh.getMachine()) + shortest);
  leastStart = static_cast<int64_t>(std::min(start, kMost));
  leastPerByte = kPicoseconds / fastest;
}

int64_t Moves::getParts(ArrayRef<uint8_t> axes) const {
  int64_t parts = 1;
  for (uint8_t axis : axes)
    parts *= meshAxes[axis].size;
  return parts;
}

AxisMask Moves::getUsed(const State &state) const {
  AxisMask used = state.unreduced;
  for (const State::Dim &dim : state.dims)
    for (uint8_t axis : dim.axes)
      used |= 1U << axis;
  return used;
}

bool Moves::touchesMicro(ArrayRef<uint8_t> axes) const {
  return llvm::any_of(axes, [&](uint8_t axis) { return (micro >> axis & 1) != 0; });
}

int64_t Moves::getWantedLocal(size_t dim, size_t count) const {
  const State::Dim &want = goal.dims[dim];
  return count == 0 ? sizes[dim] : want.local * getParts(ArrayRef(want.axes).drop_front(count));
}

bool Moves::isOnTrack(const State &state, size_t dim) const {
  ArrayRef<uint8_t> have = state.dims[dim].axes, want = goal.dims[dim].axes;
  return have.size() <= want.size() && have == want.take_front(have.size()) &&
         state.dims[dim].local == getWantedLocal(dim, have.size());
}

/// The number of leading axes that match the goal's, with parts of the same size.
size_t Moves::getCommonAxes(const State &state, size_t dim) const {
  const State::Dim &have = state.dims[dim];
  ArrayRef<uint8_t> want = goal.dims[dim].axes;
  size_t common = 0;
  while (common < have.axes.size() && common < want.size() && have.axes[common] == want[common])
    ++common;
  // Joining parts gives the goal's parts over fewer axes only if their sizes match.
  while (common > 0 && have.local * getParts(ArrayRef(have.axes).drop_front(common)) !=
                           getWantedLocal(dim, common))
    --common;
  return common;
}

int64_t Moves::getBytes(const State &state) const {
  int64_t bytes = elementBytes;
  for (const State::Dim &dim : state.dims)
    bytes *= dim.local;
  return bytes;
}

Cost Moves::getCost(cluster::Collective kind, int64_t bytes, ArrayRef<uint8_t> along) const {
  SmallVector<StringAttr> axes;
  for (uint8_t axis : along)
    axes.push_back(meshAxes[axis].name);
  double seconds = mesh.getSeconds(kind, static_cast<double>(bytes), axes);
  double sent = cluster::getSentBytes(kind, static_cast<double>(bytes), getParts(along));
  return {std::llround(std::min(kPicoseconds * seconds, kMost)),
          std::llround(std::min(sent * static_cast<double>(numDevices), kMost)), 1, 1};
}

bool Moves::isImpossible() const {
  if ((goal.unreduced & ~start.unreduced) != 0)
    return true;
  if (!micro)
    return false;
  if ((start.unreduced & micro) != (goal.unreduced & micro))
    return true;
  for (size_t dim = 0; dim < start.dims.size(); ++dim) {
    auto countFixed = [&](const Axes &axes) {
      size_t count = axes.size();
      while (count > 0 && !(micro >> axes[count - 1] & 1))
        --count;
      return count;
    };
    size_t fixed = countFixed(start.dims[dim].axes);
    if (fixed != countFixed(goal.dims[dim].axes) || getCommonAxes(start, dim) < fixed)
      return true;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Single moves
//===----------------------------------------------------------------------===//

/// Splits the dimension over more axes; false if that does not come out even. A whole dimension is
/// padded to the goal's size if these are the goal's first axes, else to equal parts.
bool Moves::cutDim(State &state, size_t dim, ArrayRef<uint8_t> axes, int64_t &padTo) const {
  State::Dim &target = state.dims[dim];
  int64_t parts = getParts(axes);
  if (target.axes.empty()) {
    ArrayRef<uint8_t> want = goal.dims[dim].axes;
    bool isWanted = axes.size() <= want.size() && axes == want.take_front(axes.size());
    target.local = isWanted ? getWantedLocal(dim, axes.size())
                            : static_cast<int64_t>(llvm::divideCeil(sizes[dim], parts));
    if (target.local * parts != sizes[dim])
      padTo = target.local * parts;
  } else if (target.local % parts != 0) {
    return false;
  } else {
    target.local /= parts;
  }
  target.axes.append(axes.begin(), axes.end());
  return true;
}

/// Joins the parts down to the first `keep` axes; trims the padding of a whole dimension.
void Moves::joinDim(State &state, size_t dim, size_t keep, int64_t &trimTo) const {
  State::Dim &target = state.dims[dim];
  target.local *= getParts(ArrayRef(target.axes).drop_front(keep));
  target.axes.truncate(keep);
  if (keep > 0 || target.local == sizes[dim])
    return;
  trimTo = target.local = sizes[dim];
}

std::optional<Move> Moves::cut(ReshardStep::Kind kind, const State &state, size_t dim,
                               ArrayRef<uint8_t> axes) const {
  if (touchesMicro(axes))
    return std::nullopt;
  Move move{kind, Axes(axes), static_cast<int64_t>(dim), 0, 0, 0, {0, 0, 0, 1}, state};
  if (!cutDim(move.after, dim, axes, move.padTo))
    return std::nullopt;
  if (kind == ReshardStep::ReduceScatter) {
    for (uint8_t axis : axes)
      move.after.unreduced &= ~(1U << axis);
    move.cost =
        getCost(cluster::Collective::ReduceScatter, getBytes(move.after) * getParts(axes), axes);
  }
  return move;
}

Move Moves::reduce(const State &state, AxisMask axes) const {
  Move move{ReshardStep::AllReduce, {}, 0, 0, 0, 0, {}, state};
  for (size_t axis = 0; axis < meshAxes.size(); ++axis)
    if (axes >> axis & 1)
      move.axes.push_back(static_cast<uint8_t>(axis));
  move.after.unreduced &= ~axes;
  move.cost = getCost(cluster::Collective::AllReduce, getBytes(state), move.axes);
  return move;
}

Move Moves::gather(const State &state, size_t dim, size_t keep) const {
  Axes axes(ArrayRef(state.dims[dim].axes).drop_front(keep));
  Move move{ReshardStep::AllGather, axes, static_cast<int64_t>(dim), 0, 0, 0, {}, state};
  move.cost = getCost(cluster::Collective::AllGather, getBytes(state) * getParts(axes), axes);
  joinDim(move.after, dim, keep, move.trimTo);
  return move;
}

/// Moves the `count` minor axes of one dimension to another.
std::optional<Move> Moves::exchange(const State &state, size_t source, size_t count,
                                    size_t target) const {
  Axes axes(ArrayRef(state.dims[source].axes).take_back(count));
  if (touchesMicro(axes))
    return std::nullopt;
  Move move{ReshardStep::AllToAll,
            axes,
            static_cast<int64_t>(source),
            static_cast<int64_t>(target),
            0,
            0,
            {},
            state};
  if (!cutDim(move.after, target, axes, move.padTo))
    return std::nullopt;
  // The cost before the joined dimension is trimmed.
  move.cost = getCost(cluster::Collective::AllToAll, getBytes(move.after) * getParts(axes), axes);
  joinDim(move.after, source, state.dims[source].axes.size() - count, move.trimTo);
  return move;
}

//===----------------------------------------------------------------------===//
// Possible moves
//===----------------------------------------------------------------------===//

/// The next axes that a dimension wants, up to the first that is not in the mask.
static ArrayRef<uint8_t> getNextAxes(ArrayRef<uint8_t> have, ArrayRef<uint8_t> want,
                                     AxisMask mask) {
  ArrayRef<uint8_t> next = want.drop_front(have.size());
  size_t count = 0;
  while (count < next.size() && (mask >> next[count] & 1))
    ++count;
  return next.take_front(count);
}

/// A slice that the goal asks for, over axes on which the tensor is replicated: it is free and
/// makes all later moves cheaper.
std::optional<Move> Moves::slice(const State &state) const {
  AxisMask free = ~getUsed(state) & ~micro;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!isOnTrack(state, dim))
      continue;
    ArrayRef<uint8_t> axes = getNextAxes(state.dims[dim].axes, goal.dims[dim].axes, free);
    if (axes.empty())
      continue;
    if (std::optional<Move> move = cut(ReshardStep::Slice, state, dim, axes))
      return move;
  }
  return std::nullopt;
}

/// Adds reduce_scatters into dimensions that want pending axes next, those of most axes first.
void Moves::collectScatters(const State &state, std::vector<Move> &moves) const {
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!isOnTrack(state, dim))
      continue;
    ArrayRef<uint8_t> axes =
        getNextAxes(state.dims[dim].axes, goal.dims[dim].axes, getPending(state));
    for (; !axes.empty(); axes = axes.drop_back())
      if (std::optional<Move> move = cut(ReshardStep::ReduceScatter, state, dim, axes))
        moves.push_back(std::move(*move));
  }
}

void Moves::collect(const State &state, std::vector<Move> &moves) const {
  if (std::optional<Move> free = slice(state)) {
    moves.push_back(std::move(*free));
    return;
  }
  collectScatters(state, moves);
  AxisMask pending = getPending(state) & ~micro;
  for (AxisMask axes = pending; axes != 0; axes = (axes - 1) & pending)
    moves.push_back(reduce(state, axes));
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    ArrayRef<uint8_t> have = state.dims[dim].axes;
    for (size_t count = 1; count <= have.size(); ++count) {
      if (touchesMicro(have.take_back(count)))
        break;
      moves.push_back(gather(state, dim, have.size() - count));
      for (size_t target = 0; target < sizes.size(); ++target)
        if (target != dim)
          if (std::optional<Move> move = exchange(state, dim, count, target))
            moves.push_back(std::move(*move));
    }
  }
  collectPermutes(state, moves);
}

/// A lower bound on reducing and gathering: assumes no padding, and all free slices taken.
Cost Moves::getBound(const State &state) const {
  int64_t whole = elementBytes, wanted = elementBytes, split = 1, free = 1, pending = 1;
  AxisMask used = getUsed(state);
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    whole *= sizes[dim];
    wanted *= std::min(goal.dims[dim].local, sizes[dim]);
    split *= getParts(state.dims[dim].axes);
  }
  for (auto [i, axis] : llvm::enumerate(meshAxes)) {
    if (getPending(state) >> i & 1)
      pending *= axis.size;
    else if (!(used >> i & 1))
      free *= axis.size;
  }
  auto timeOf = [&](int64_t bytes) {
    double each = static_cast<double>(bytes) / static_cast<double>(numDevices);
    auto most = static_cast<int64_t>(kMost);
    return std::min(most, leastStart + static_cast<int64_t>(std::min(leastPerByte * each, kMost)));
  };
  if (pending == 1) {
    int64_t bytes = std::max<int64_t>(0, wanted - getBytes(state)) * numDevices;
    return {bytes ? timeOf(bytes) : 0, bytes, 0, 0};
  }
  int64_t share = whole * (numDevices / (split * free * pending)); // times numDevices
  int64_t bytes = std::max(share * (pending - 1), wanted * numDevices + share * (pending - 2));
  return {timeOf(bytes), bytes, 1, 1};
}

//===----------------------------------------------------------------------===//
// Permutes
//===----------------------------------------------------------------------===//

/// The dimension's axes in other orders, and leading axes of the goal that make as many parts.
static SmallVector<Axes> getAlternatives(const State::Dim &have, const State::Dim &want,
                                         llvm::function_ref<bool(size_t)> fits) {
  SmallVector<Axes> lists = {have.axes};
  auto add = [&](Axes axes) {
    if (!llvm::is_contained(lists, axes))
      lists.push_back(std::move(axes));
  };
  for (size_t count = 1; count <= want.axes.size(); ++count)
    if (fits(count))
      add(Axes(ArrayRef(want.axes).take_front(count)));
  if (have.axes.size() > 3)
    return lists; // too many orders
  Axes order(have.axes);
  llvm::sort(order);
  do
    add(order);
  while (std::next_permutation(order.begin(), order.end()));
  return lists;
}

void Moves::collectPermutes(const State &state, std::vector<Move> &moves) const {
  SmallVector<SmallVector<Axes>, 4> alternatives;
  size_t combinations = 1;
  for (auto [dim, have] : llvm::enumerate(state.dims)) {
    auto fits = [&, dim = dim, local = have.local, parts = getParts(have.axes)](size_t count) {
      return getWantedLocal(dim, count) == local &&
             getParts(ArrayRef(goal.dims[dim].axes).take_front(count)) == parts;
    };
    alternatives.push_back(have.axes.empty() || touchesMicro(have.axes)
                               ? SmallVector<Axes>{have.axes}
                               : getAlternatives(have, goal.dims[dim], fits));
    combinations *= alternatives.back().size();
  }
  for (size_t number = 1; number < std::min<size_t>(combinations, 256); ++number) {
    State after = state;
    size_t rest = number;
    AxisMask used = state.unreduced;
    bool isUnique = true;
    for (auto [dim, lists] : llvm::enumerate(alternatives)) {
      after.dims[dim].axes = lists[rest % lists.size()];
      rest /= lists.size();
      for (uint8_t axis : after.dims[dim].axes) {
        isUnique &= !(used >> axis & 1);
        used |= 1U << axis;
      }
    }
    if (isUnique)
      if (std::optional<Move> move = permute(state, after))
        moves.push_back(std::move(*move));
  }
}

std::optional<Move> Moves::permute(const State &state, const State &after) const {
  AxisMask mask = 0;
  for (auto [have, want] : llvm::zip_equal(state.dims, after.dims))
    if (!(have == want))
      for (const Axes &axes : {have.axes, want.axes})
        for (uint8_t axis : axes)
          mask |= 1U << axis;
  if (mask & micro)
    return std::nullopt;
  Move move{ReshardStep::Permute, {}, 0, 0, 0, 0, {}, after};
  for (size_t axis = 0; axis < meshAxes.size(); ++axis)
    if (mask >> axis & 1)
      move.axes.push_back(static_cast<uint8_t>(axis));
  move.cost = getCost(cluster::Collective::Permute, getBytes(state), move.axes);
  return move;
}

/// For each member of the group, row-major over the axes, the member that holds what it needs:
/// itself if possible, else one that nobody takes from yet.
SmallVector<int64_t> Moves::getPermutation(const State &before, const State &after,
                                           ArrayRef<uint8_t> axes) const {
  int64_t size = getParts(axes);
  auto getBlock = [&](const State &state, int64_t member) {
    SmallVector<int64_t, 8> coordinates(meshAxes.size(), 0);
    for (uint8_t axis : llvm::reverse(axes)) {
      coordinates[axis] = member % meshAxes[axis].size;
      member /= meshAxes[axis].size;
    }
    int64_t block = 0;
    for (const State::Dim &dim : state.dims) // axes outside the group are the same in both
      for (uint8_t axis : dim.axes)
        block = block * meshAxes[axis].size + coordinates[axis];
    return block;
  };
  SmallVector<int64_t> permutation(size, -1);
  SmallVector<bool> isTaken(size, false);
  for (int64_t member = 0; member < size; ++member)
    if (getBlock(before, member) == getBlock(after, member)) {
      permutation[member] = member;
      isTaken[member] = true;
    }
  for (int64_t member = 0; member < size; ++member)
    for (int64_t other = 0; other < size && permutation[member] < 0; ++other)
      if (!isTaken[other] && getBlock(before, other) == getBlock(after, member)) {
        permutation[member] = other;
        isTaken[other] = true;
      }
  return permutation;
}

//===----------------------------------------------------------------------===//
// Fixed sequences, without search
//===----------------------------------------------------------------------===//

std::vector<Move> Moves::gatherThenSlice() const {
  std::vector<Move> way;
  auto take = [&](Move move) { way.push_back(std::move(move)); };
  auto state = [&]() -> const State & { return way.empty() ? start : way.back().after; };
  if (AxisMask pending = getPending(start))
    take(reduce(start, pending));
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    ArrayRef<uint8_t> have = start.dims[dim].axes;
    size_t keep = isOnTrack(start, dim) ? have.size() : 0;
    while (keep < have.size() && touchesMicro(have.drop_front(keep)))
      ++keep;
    if (keep < have.size())
      take(gather(state(), dim, keep));
  }
  while (std::optional<Move> free = slice(state()))
    take(std::move(*free));
  return way;
}

std::vector<Move> Moves::planGreedily() const {
  std::vector<Move> way;
  auto state = [&]() -> const State & { return way.empty() ? start : way.back().after; };
  auto exchangeNext = [&]() -> std::optional<Move> {
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (isOnTrack(state(), dim) || state().dims[dim].axes.empty())
        continue;
      AxisMask last = 1U << state().dims[dim].axes.back();
      for (size_t target = 0; target < sizes.size(); ++target)
        if (target != dim && isOnTrack(state(), target) &&
            !getNextAxes(state().dims[target].axes, goal.dims[target].axes, last).empty())
          if (std::optional<Move> move = exchange(state(), dim, 1, target))
            return move;
    }
    return std::nullopt;
  };
  auto gatherWrong = [&]() -> std::optional<Move> {
    for (size_t dim = 0; dim < sizes.size(); ++dim)
      if (size_t keep = getCommonAxes(state(), dim); keep < state().dims[dim].axes.size())
        return gather(state(), dim, keep);
    return std::nullopt;
  };
  while (!isDone(state())) {
    std::vector<Move> scatters;
    std::optional<Move> next = slice(state());
    if (!next) {
      collectScatters(state(), scatters);
      if (!scatters.empty())
        next = std::move(scatters.front());
      else if (AxisMask pending = getPending(state()))
        next = reduce(state(), pending);
    }
    if (!next)
      next = exchangeNext();
    if (!next)
      next = gatherWrong();
    if (!next)
      break;
    way.push_back(std::move(*next));
  }
  return way;
}

ReshardStep Moves::getStep(const Move &move, const State &before) const {
  ReshardStep step{move.kind, {}, move.dim, move.splitDim, move.padTo, move.trimTo, {}};
  for (uint8_t axis : move.axes)
    step.axes.push_back(meshAxes[axis].name);
  if (move.kind == ReshardStep::Permute)
    step.permutation = getPermutation(before, move.after, move.axes);
  return step;
}
