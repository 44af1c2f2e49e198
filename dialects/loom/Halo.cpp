//===- Halo.cpp - positions a device needs of its neighbours' shards ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Halo.h"

#include "dialects/loom/Loom.h"
#include "dialects/loom/Padding.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

static RankedTensorType withDim(Value value, int64_t dim, int64_t size) {
  return loom::withDim(cast<RankedTensorType>(value.getType()), dim, size);
}

static int64_t sizeOf(Value value, int64_t dim) {
  return cast<RankedTensorType>(value.getType()).getDimSize(dim);
}

Window Window::regular(int64_t devices, int64_t step, int64_t begin, int64_t size,
                       int64_t interior) {
  Window window{{}, size, interior};
  for (int64_t i = 0; i < devices; ++i)
    window.starts.push_back(i * step + begin);
  return window;
}

int64_t gridloom::loom::getNumParts(OpBuilder &builder, ArrayRef<StringAttr> axes) {
  auto module = builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  dist::MeshOp mesh = dist::getMesh(module);
  int64_t parts = 1;
  for (StringAttr axis : axes)
    parts *= mesh.getAxisSize(axis.getValue());
  return parts;
}

namespace {
/// Builds index arithmetic and moves along one dimension.
struct Emitter {
  OpBuilder &builder;
  Location loc;

  RankedTensorType indices(ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, builder.getI64Type());
  }
  Value constant(RankedTensorType type, int64_t value) {
    return ConstantOp::create(builder, loc,
                              DenseElementsAttr::get(type, builder.getI64IntegerAttr(value)));
  }
  Value like(Value value, int64_t number) {
    return constant(cast<RankedTensorType>(value.getType()), number);
  }
  Value add(Value a, Value b) { return AddOp::create(builder, loc, a.getType(), a, b); }
  Value add(Value a, int64_t b) { return b ? add(a, like(a, b)) : a; }
  Value multiply(Value a, int64_t b) {
    return b == 1 ? a : MultiplyOp::create(builder, loc, a.getType(), a, like(a, b)).getResult();
  }
  Value spread(Value scalar, int64_t size) {
    return loom::BroadcastOp::create(builder, loc, indices({size}), scalar, ArrayRef<int64_t>{});
  }
  Value compare(Value a, Direction direction, int64_t b) {
    auto type =
        RankedTensorType::get(cast<RankedTensorType>(a.getType()).getShape(), builder.getI1Type());
    return CompareOp::create(builder, loc, type, a, like(a, b), direction);
  }
  Value both(Value a, Value b) { return AndOp::create(builder, loc, a.getType(), a, b); }
  ArrayAttr names(ArrayRef<StringAttr> axes) {
    return builder.getArrayAttr(SmallVector<Attribute>(axes.begin(), axes.end()));
  }
  Value index(ArrayRef<StringAttr> axes) {
    return dist::AxisIndexOp::create(builder, loc, indices({}), names(axes));
  }
  /// table[this device's index along the axes]; computed if the table is regular.
  Value lookup(ArrayRef<int64_t> table, ArrayRef<StringAttr> axes) {
    int64_t step = table.size() > 1 ? table[1] - table[0] : 0;
    for (auto [i, value] : llvm::enumerate(table))
      if (value != table[0] + static_cast<int64_t>(i) * step) {
        auto type = indices({static_cast<int64_t>(table.size())});
        Value values = ConstantOp::create(builder, loc, DenseElementsAttr::get(type, table));
        return GatherOp::create(builder, loc, indices({}), values, index(axes), 0);
      }
    return step ? add(multiply(index(axes), step), table[0]) : constant(indices({}), table[0]);
  }
  Value slice(Value value, int64_t dim, int64_t begin, int64_t size) {
    RankedTensorType type = withDim(value, dim, size);
    if (type == value.getType())
      return value;
    SmallVector<int64_t> starts(type.getRank(), 0), strides(type.getRank(), 1);
    SmallVector<int64_t> limits(type.getShape());
    starts[dim] = begin;
    limits[dim] = begin + size;
    return SliceOp::create(builder, loc, type, value, starts, limits, strides);
  }
  Value take(Value value, int64_t dim, Value positions) {
    positions = MaximumOp::create(builder, loc, positions.getType(), positions, like(positions, 0));
    positions = MinimumOp::create(builder, loc, positions.getType(), positions,
                                  like(positions, sizeOf(value, dim) - 1));
    return GatherOp::create(builder, loc, withDim(value, dim, sizeOf(positions, 0)), value,
                            positions, dim);
  }
};

/// Positions of the whole dimension, [begin, end).
struct Interval {
  int64_t begin, end;
  bool isEmpty() const { return begin >= end; }
  Interval intersect(const Interval &other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

/// The elements that a device has after the exchange: device i those from starts[i] on.
struct Pieces {
  Value joined;
  SmallVector<int64_t> starts;
};

/// The elements that a window reads.
struct Reading {
  SmallVector<int64_t> starts; ///< the first at or before each device's first position
  SmallVector<Interval> needs; ///< elements needed that exist
  bool leaves = false;         ///< some device reads outside of the dimension
};

/// One exchange: every device receives elements [begin, end) of the shard `distance` devices on,
/// even devices that need less.
struct Exchange {
  int64_t distance;
  Interval part;
};
} // namespace

/// The exchanges that give each device the elements it needs, by distance. Shards between two
/// others are sent whole, so that what arrives is one stretch of the dimension.
static SmallVector<Exchange> planExchanges(ArrayRef<Interval> needs, int64_t local,
                                           int64_t global) {
  int64_t parts = needs.size();
  SmallVector<Exchange> exchanges;
  for (int64_t distance = 1 - parts; distance < parts; ++distance) {
    Interval part{local, 0};
    for (int64_t i = 0; i < parts; ++i) {
      int64_t owner = i + distance;
      if (owner < 0 || owner >= parts)
        continue;
      Interval got = needs[i].intersect({owner * local, std::min((owner + 1) * local, global)});
      if (got.isEmpty())
        continue;
      part = {std::min(part.begin, got.begin - owner * local),
              std::max(part.end, got.end - owner * local)};
    }
    if (!part.isEmpty())
      exchanges.push_back({distance, part});
  }
  if (exchanges.empty())
    return exchanges;
  SmallVector<Exchange> stretch;
  for (int64_t d = exchanges.front().distance; d <= exchanges.back().distance; ++d)
    stretch.push_back({d, {0, local}});
  stretch.front().part.begin = exchanges.front().part.begin;
  stretch.back().part.end = exchanges.back().part.end;
  return stretch;
}

/// Whether the exchanges move at least as much as gathering everything.
static bool isGathered(ArrayRef<Exchange> exchanges, int64_t parts, int64_t local) {
  int64_t moved = 0;
  for (const Exchange &step : exchanges)
    if (step.distance != 0)
      moved += step.part.end - step.part.begin;
  return moved >= (parts - 1) * local;
}

/// What each device reads: from the first element at or after its first position to the last one at
/// or before its last position.
static Reading findReading(const Window &window, int64_t global) {
  Reading reading;
  int64_t spacing = window.interior + 1;
  for (int64_t start : window.starts) {
    reading.starts.push_back(llvm::divideFloorSigned(start, spacing));
    Interval need{llvm::divideCeilSigned(start, spacing),
                  llvm::divideFloorSigned(start + window.size - 1, spacing) + 1};
    reading.leaves |= need.begin < 0 || need.end > global;
    reading.needs.push_back(need.intersect({0, global}));
  }
  return reading;
}

WindowMoves gridloom::loom::planWindowMoves(const dist::WindowDim &window, int64_t global,
                                            int64_t local, int64_t parts, int64_t part) {
  // The lowest position that a part reads is its first's or, with a negative step, its last's.
  int64_t begin = window.begin + (window.step < 0 ? (part - 1) * window.step : 0);
  int64_t size = (part - 1) * std::abs(window.step) + window.reach;
  Reading reading =
      findReading(Window::regular(parts, part * window.step, begin, size, window.interior), global);
  SmallVector<Exchange> exchanges = planExchanges(reading.needs, local, global);
  WindowMoves moves;
  moves.gathers = isGathered(exchanges, parts, local);
  for (const Exchange &step : exchanges)
    if (step.distance != 0)
      moves.moved.push_back(step.part.end - step.part.begin);
  return moves;
}

/// Exchanges the elements that devices need.
static Pieces exchange(Emitter &e, Value shard, const CutDim &cut, ArrayRef<Interval> needs) {
  int64_t parts = needs.size(), local = sizeOf(shard, cut.dim);
  SmallVector<Exchange> exchanges = planExchanges(needs, local, cut.global);
  if (exchanges.empty())
    exchanges.push_back({0, {0, local}});

  Pieces pieces;
  if (isGathered(exchanges, parts, local)) {
    pieces.joined =
        dist::AllGatherOp::create(e.builder, e.loc, withDim(shard, cut.dim, parts * local), shard,
                                  e.names(cut.axes), e.builder.getI64IntegerAttr(cut.dim));
    pieces.starts.assign(parts, 0);
    return pieces;
  }
  SmallVector<Value> values;
  int64_t size = 0;
  for (const Exchange &step : exchanges) {
    Value part = e.slice(shard, cut.dim, step.part.begin, step.part.end - step.part.begin);
    if (step.distance != 0) {
      SmallVector<int64_t> from;
      for (int64_t i = 0; i < parts; ++i)
        from.push_back((i + step.distance + parts) % parts);
      part = dist::PermuteOp::create(e.builder, e.loc, part.getType(), part, e.names(cut.axes),
                                     e.builder.getDenseI64ArrayAttr(from));
    }
    size += sizeOf(part, cut.dim);
    values.push_back(part);
  }
  pieces.joined =
      values.size() == 1
          ? values.front()
          : ConcatenateOp::create(e.builder, e.loc, withDim(shard, cut.dim, size), values, cut.dim);
  const Exchange &first = exchanges.front();
  for (int64_t i = 0; i < parts; ++i)
    pieces.starts.push_back((i + first.distance) * local + first.part.begin);
  return pieces;
}

/// `size` elements from starts[i] on, out of those that device i has.
static Value cutOut(Emitter &e, const Pieces &pieces, const CutDim &cut, ArrayRef<int64_t> starts,
                    int64_t size) {
  SmallVector<int64_t> offsets;
  for (auto [start, first] : llvm::zip_equal(starts, pieces.starts))
    offsets.push_back(start - first);
  int64_t offset = offsets.front(), have = sizeOf(pieces.joined, cut.dim);
  if (!llvm::all_equal(offsets) || offset < 0 || offset + size > have)
    return e.take(pieces.joined, cut.dim,
                  getPositions(e.builder, e.loc, e.lookup(offsets, cut.axes), size));
  return e.slice(pieces.joined, cut.dim, offset, size);
}

Value gridloom::loom::fetchWindow(OpBuilder &builder, Location loc, Value shard, const CutDim &cut,
                                  const Window &window, std::optional<Attribute> fill) {
  Emitter e{builder, loc};
  int64_t spacing = window.interior + 1;
  Reading reading = findReading(window, cut.global);
  Pieces pieces = exchange(e, shard, cut, reading.needs);
  if (spacing == 1) {
    Value value = cutOut(e, pieces, cut, reading.starts, window.size);
    if (!fill || !reading.leaves)
      return value;
    Value positions = getPositions(builder, loc, e.lookup(window.starts, cut.axes), window.size);
    Value inside = e.both(e.compare(positions, Direction::GE, 0),
                          e.compare(positions, Direction::LT, cut.global));
    return selectAlong(builder, loc, cut.dim, inside, value, *fill);
  }
  // Position p holds element p / spacing, or nothing. Adding multiples of the spacing keeps the
  // division exact below zero.
  int64_t lowest = *llvm::min_element(reading.starts);
  int64_t shift = std::max<int64_t>(0, -lowest);
  Value positions = getPositions(builder, loc, e.lookup(window.starts, cut.axes), window.size);
  Value shifted = e.add(positions, shift * spacing);
  Value quotient =
      DivideOp::create(builder, loc, shifted.getType(), shifted, e.like(shifted, spacing));
  Value element = e.add(quotient, -shift);
  SmallVector<int64_t> back;
  for (int64_t start : pieces.starts)
    back.push_back(-start);
  Value place = e.add(element, e.spread(e.lookup(back, cut.axes), window.size));
  Value value = e.take(pieces.joined, cut.dim, place);
  if (!fill)
    return value;
  Value rest =
      SubtractOp::create(builder, loc, shifted.getType(), shifted, e.multiply(quotient, spacing));
  Value inside = e.both(
      e.compare(rest, Direction::EQ, 0),
      e.both(e.compare(element, Direction::GE, 0), e.compare(element, Direction::LT, cut.global)));
  return selectAlong(builder, loc, cut.dim, inside, value, *fill);
}

Value gridloom::loom::getShardStart(OpBuilder &builder, Location loc, ArrayRef<StringAttr> axes,
                                    int64_t step) {
  Emitter e{builder, loc};
  return e.multiply(e.index(axes), step);
}

Value gridloom::loom::getPositions(OpBuilder &builder, Location loc, Value start, int64_t size) {
  Emitter e{builder, loc};
  return e.add(IotaOp::create(builder, loc, e.indices({size}), 0), e.spread(start, size));
}

Value gridloom::loom::selectAlong(OpBuilder &builder, Location loc, int64_t dim, Value row,
                                  Value value, Value other) {
  auto type = cast<RankedTensorType>(value.getType());
  Value mask = loom::BroadcastOp::create(builder, loc, type.clone(builder.getI1Type()), row,
                                         ArrayRef<int64_t>{dim});
  return SelectOp::create(builder, loc, type, mask, value, other);
}

Value gridloom::loom::selectAlong(OpBuilder &builder, Location loc, int64_t dim, Value row,
                                  Value value, Attribute other) {
  auto type = cast<RankedTensorType>(value.getType());
  return selectAlong(builder, loc, dim, row, value,
                     ConstantOp::create(builder, loc, DenseElementsAttr::get(type, other)));
}

void gridloom::loom::addWindowDim(dist::ShardingRule &rule, dist::TensorFactors &in,
                                  dist::TensorFactors &out, int64_t size, bool isSame,
                                  dist::WindowDim window) {
  window.tensor = 0;
  window.dim = static_cast<int64_t>(in.size());
  if (!isSame)
    rule.windows.push_back(window);
  out.push_back({rule.addFactor(size)});
  in.push_back(out.back());
}
