//===- GpuProduct.cpp - few rows times a matrix ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reading the matrix takes most of the time, so it is read once, by vectors, and each thread
// multiplies what it reads by all rows. If the matrix is contiguous along the sum, a group of
// threads splits the sum of one output; if it is contiguous along outputs, neighbouring threads
// compute neighbouring outputs and others split their sums. Shuffles and shared memory combine the
// parts; thread r of a group then stores row r.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/NestEmitter.h"
#include "compiler/codegen/gpu/ThreadGroups.h"
#include "compiler/codegen/gpu/ThreadPlanning.h"
#include "dialects/loom/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

//===----------------------------------------------------------------------===//
// Plan
//===----------------------------------------------------------------------===//

/// Vectors of the matrix that a thread loads at once; fewer with several rows, whose sums need
/// registers.
static constexpr int64_t kBatch = 8, kBatchOfRows = 4;
/// Most threads of a block where the matrix is contiguous along outputs.
static constexpr int64_t kMaxThreads = 512;
/// Bytes that the memory system moves at once.
static constexpr int64_t kSector = 32;

/// The only reduction of a body, if it is a sum in at least 32 bits over one loop and depends on
/// all output loops. Nothing otherwise, or if the body has branches.
static std::optional<NodeId> findSum(const Nest &nest) {
  const Body &body = *nest.body;
  std::optional<NodeId> found;
  for (auto [id, node] : llvm::enumerate(body.nodes)) {
    if (node.kind == Node::Kind::Choose)
      return std::nullopt;
    if (node.kind != Node::Kind::Reduce)
      continue;
    if (found || node.reduction != dist::ReductionKind::Sum || node.bound.empty() ||
        node.element.getIntOrFloatBitWidth() < 32)
      return std::nullopt;
    found = id;
  }
  if (!found)
    return std::nullopt;
  const Node &sum = body.nodes[*found];
  const Loop &depth = nest.loopOf(sum.bound.back());
  bool isOneLoop = llvm::all_of(sum.bound, [&](AtomId atom) { return depth.contains(atom); });
  bool isOfAll = llvm::all_of(nest.outer, [&](const Loop &loop) { return dependsOn(sum, loop); });
  return isOneLoop && isOfAll ? found : std::nullopt;
}

/// Plans a group of threads per column, whose sums have `vectors` vectors.
static void planAlongSum(ThreadPlan &plan, int64_t vectors, int64_t columns, int64_t rows,
                         int64_t processors) {
  while (plan.group < kWarp && (plan.group < vectors || plan.group < rows))
    plan.group *= 2;
  auto isFew = [&] { return plan.items * columns * plan.group < processors * kThreads; };
  while (plan.group < kThreads &&
         (vectors > kBatch * plan.group || (isFew() && vectors > 2 * plan.group)))
    plan.group *= 2;
  plan.threads = std::max(plan.group, isFew() ? kThreads / 2 : kThreads);
  while (plan.threads > std::max(kWarp, plan.group) && plan.threads / plan.group / 2 >= columns)
    plan.threads /= 2;
}

/// Plans tiles of neighbouring outputs: `vectors` vectors, each of `bytes` in the matrix and
/// `sumBytes` in the sums. Tiles shrink until each multiprocessor has one; threads are added until
/// each can load its part of the sum at once. Each warp's sums must fit in shared memory.
static void planAcrossSum(ThreadPlan &plan, int64_t vectors, int64_t bytes, int64_t sumBytes,
                          int64_t depth, int64_t rows, int64_t processors) {
  int64_t across = kWarp;
  auto shared = [&] { return kMaxThreads / kWarp * rows * across * sumBytes; };
  while (across > 1 && (across / 2 >= vectors || shared() > kSharedLimit))
    across /= 2;
  while (across > 1 && across * bytes > kSector &&
         plan.items * ceilDiv(vectors, across) < processors)
    across /= 2;
  plan.group = std::max<int64_t>(kWarp / across, llvm::PowerOf2Ceil(rows));
  while (across * plan.group < kMaxThreads && depth > kBatch * plan.group)
    plan.group *= 2;
  plan.threads = across * plan.group;
}

std::optional<ThreadPlan> gridloom::codegen::planProduct(const Nest &nest, int64_t processors) {
  std::optional<NodeId> sum = findSum(nest);
  if (!sum || nest.contiguous < 0)
    return std::nullopt;
  const Body &body = *nest.body;
  const Loop &columns = nest.outer[nest.contiguous];
  const Loop &depth = nest.loopOf(body.nodes[*sum].bound.back());
  ThreadPlan plan;
  plan.kind = ThreadPlan::Kind::Product;
  plan.sum = *sum;
  SmallVector<const Node *> matrix;
  bool hasRow = false;
  for (const Node &node : body.nodes) {
    if (node.kind != Node::Kind::Load || !dependsOn(node, depth))
      continue;
    if (dependsOn(node, columns))
      matrix.push_back(&node);
    else
      hasRow = true;
  }
  auto runsAlong = [&](const Loop &loop) {
    return llvm::all_of(
        matrix, [&](const Node *load) { return load->index.coefficient(loop.atoms.back()) == 1; });
  };
  plan.isAlongSum = runsAlong(depth);
  if (matrix.empty() || !hasRow || !(plan.isAlongSum || runsAlong(columns)))
    return std::nullopt;
  int64_t rows = 1, bytes = 1;
  for (const Node *load : matrix)
    bytes = std::max(bytes, bytesOf(load->element));
  for (const Loop &loop : nest.outer) {
    if (&loop == &columns)
      continue;
    if (llvm::any_of(matrix, [&](const Node *load) { return dependsOn(*load, loop); })) {
      plan.items *= loop.extent;
    } else {
      plan.rows.push_back(&loop);
      rows *= loop.extent;
    }
  }
  if (rows > loom::kMaxProductRows || plan.items > kMaxMinorGrid)
    return std::nullopt;
  plan.batch = rows == 1 ? kBatch : kBatchOfRows;

  const Loop &along = plan.isAlongSum ? depth : columns;
  plan.width = fitWidth(body, along, /*isOutput=*/!plan.isAlongSum, kAccess / bytes);
  plan.width = largestDividing(plan.width, along.extent);
  int64_t vectors = along.extent / plan.width, tiles = columns.extent;
  if (plan.isAlongSum) {
    planAlongSum(plan, vectors, columns.extent, rows, processors);
  } else {
    tiles = vectors;
    int64_t sumBytes = plan.width * bytesOf(body.nodes[*sum].element);
    planAcrossSum(plan, vectors, plan.width * bytes, sumBytes, depth.extent, rows, processors);
  }
  plan.grid = {ceilDiv(tiles, plan.threads / plan.group), plan.items, 1};
  return plan;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

/// A thread's place in its block: thread `lane` of the group that splits its sums, group `place` of
/// the block.
struct NestEmitter::ProductPlace {
  Value thread, lane, place;
  int64_t across, rows;
};

/// A vector of the sum: its context, and one for each row inside that. If `isInside` is not null,
/// the thread adds nothing where it is false.
struct NestEmitter::ProductStep {
  Context at;
  SmallVector<std::unique_ptr<Context>, loom::kMaxProductRows> rows;
  Value isInside;
};

/// Opens the vector at `base` + `offset` of the sum, for `rows` rows.
std::unique_ptr<NestEmitter::ProductStep> NestEmitter::openStep(Context &outer, Value base,
                                                                int64_t offset, int64_t rows) {
  auto step = std::make_unique<ProductStep>();
  emitter.enter(outer);
  step->at.parent = step->at.next = &outer;
  step->at.block = outer.block;
  step->at.width = plan.isAlongSum ? plan.width : 1;
  step->at.base = base;
  step->at.offset = offset;
  const Loop &depth = nest.loopOf(nest.body->nodes[plan.sum].bound.back());
  step->at.loops.emplace_back(&depth, scale(base, 1, offset ? index(offset) : Value()));
  for (int64_t row = 0; row < rows; ++row) {
    Context &one = *step->rows.emplace_back(std::make_unique<Context>());
    one.parent = one.next = &step->at;
    one.block = outer.block;
    takeLoops(one, plan.rows, index(row));
  }
  return step;
}

/// Adds the products of `steps` to `sums`, one per row. All loads come first, those of the matrix
/// before all others, so that they overlap.
void NestEmitter::addProducts(Context &outer, ArrayRef<std::unique_ptr<ProductStep>> steps,
                              SmallVectorImpl<Value> &sums) {
  const Body &body = *nest.body;
  const Node &sum = body.nodes[plan.sum];
  const Loop &depth = nest.loopOf(sum.bound.back()), &columns = nest.outer[nest.contiguous];
  for (bool isMatrix : {true, false})
    for (const std::unique_ptr<ProductStep> &step : steps)
      for (auto [id, node] : llvm::enumerate(body.nodes))
        if (node.kind == Node::Kind::Load && dependsOn(node, depth) &&
            dependsOn(node, columns) == isMatrix)
          for (const std::unique_ptr<Context> &row : step->rows)
            emitter.emitNodeIn(*row, id);
  for (const std::unique_ptr<ProductStep> &step : steps)
    for (auto [row, value] : llvm::zip_equal(step->rows, sums)) {
      Value product = emitter.emitNodeIn(*row, sum.operands[0]);
      emitter.enter(outer);
      if (step->isInside) {
        Value zero =
            arith::ConstantOp::create(builder, loc, builder.getZeroAttr(product.getType()));
        product = arith::SelectOp::create(builder, loc, step->isInside, product, zero);
      }
      value = emitter.combine(sum, value, product);
    }
}

/// This thread's part of the sums of all rows.
SmallVector<Value> NestEmitter::sumProducts(Context &lanes, const ProductPlace &at) {
  const Node &sum = nest.body->nodes[plan.sum];
  const Loop &depth = nest.loopOf(sum.bound.back());
  int64_t width = plan.isAlongSum ? plan.width : 1;
  int64_t stride = plan.group * width, vectors = depth.extent / width;
  Type type = plan.width > 1 ? Type(VectorType::get(plan.width, sum.element)) : sum.element;
  emitter.enter(lanes);
  Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  SmallVector<Value> sums(at.rows, zero);
  Value own = scale(at.lane, width);
  int64_t begin = vectors / (plan.group * plan.batch) * plan.batch * stride;
  if (begin > 0) {
    auto loop =
        scf::ForOp::create(builder, loc, index(0), index(begin), index(plan.batch * stride), sums);
    Operation *outerAnchor = std::exchange(lanes.getAnchor(), loop);
    Context inside;
    inside.parent = &lanes;
    inside.block = loop.getBody();
    emitter.enter(inside);
    Value base = scale(loop.getInductionVar(), 1, own);
    SmallVector<Value> carried(loop.getRegionIterArgs());
    SmallVector<std::unique_ptr<ProductStep>> steps;
    for (int64_t i = 0; i < plan.batch; ++i)
      steps.push_back(openStep(inside, base, i * stride, at.rows));
    addProducts(inside, steps, carried);
    builder.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(builder, loc, carried);
    lanes.getAnchor() = outerAnchor;
    sums.assign(loop.getResults().begin(), loop.getResults().end());
  }
  SmallVector<std::unique_ptr<ProductStep>> rest;
  for (; begin < depth.extent; begin += stride) {
    if (begin + stride <= depth.extent) {
      rest.push_back(openStep(lanes, own, begin, at.rows));
      continue;
    }
    // Threads beyond the end of the sum add nothing.
    emitter.enter(lanes);
    Value variable = scale(own, 1, index(begin));
    Value isInside = isBelow(variable, depth.extent);
    rest.push_back(openStep(lanes, least(variable, depth.extent - width), 0, at.rows));
    rest.back()->isInside = isInside;
  }
  addProducts(lanes, rest, sums);
  emitter.enter(lanes);
  if (plan.isAlongSum)
    for (Value &value : sums)
      value = emitter.collapse(sum, value);
  return sums;
}

/// Adds to `value`, scalar or vector, that of the warp's thread whose number is XORed with `mask`.
Value NestEmitter::addExchanged(Value value, int32_t mask) {
  const Node &sum = nest.body->nodes[plan.sum];
  auto take = [&](Value scalar) {
    return exchange(builder, loc, scalar, mask, gpu::ShuffleMode::XOR);
  };
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type)
    return emitter.combine(sum, value, take(value));
  SmallVector<Value> others;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    others.push_back(take(vector::ExtractOp::create(builder, loc, value, i)));
  Value other = vector::FromElementsOp::create(builder, loc, type, others);
  return emitter.combine(sum, value, other);
}

void NestEmitter::emitProduct() {
  // Registers are better used for loads in flight than kept for other blocks.
  function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), builder.getI32IntegerAttr(1));
  const Loop &columns = nest.outer[nest.contiguous];
  ProductPlace at;
  at.across = plan.threads / plan.group;
  at.rows = 1;
  for (const Loop *loop : plan.rows)
    at.rows *= loop->extent;
  at.thread = threadId();
  Value minor = index(plan.isAlongSum ? plan.group : at.across);
  at.lane = arith::DivUIOp::create(builder, loc, at.thread, minor);
  at.place = arith::RemUIOp::create(builder, loc, at.thread, minor);
  if (plan.isAlongSum)
    std::swap(at.lane, at.place);
  Value item = blockId(gpu::Dimension::y);
  Value column = scale(blockId(gpu::Dimension::x), at.across, at.place);
  // All threads of a block must reach its barrier: those beyond the end repeat the last column.
  int64_t width = plan.isAlongSum ? 1 : plan.width, tiles = columns.extent / width;
  Value isStored = isBelow(at.lane, at.rows);
  if (tiles % at.across != 0) {
    isStored = arith::AndIOp::create(builder, loc, isStored, isBelow(column, tiles));
    column = least(column, tiles - 1);
  }

  Context outer, lanes;
  outer.parent = &root;
  outer.block = lanes.block = root.block;
  root.next = &outer;
  SmallVector<const Loop *> others;
  for (const Loop *loop : otherLoops(&columns, nullptr))
    if (!llvm::is_contained(plan.rows, loop))
      others.push_back(loop);
  takeLoops(outer, others, item);
  outer.next = &lanes;
  lanes.parent = &outer;
  lanes.width = width;
  lanes.loops.emplace_back(&columns, scale(column, width));
  SmallVector<Value> sums = sumProducts(lanes, at);

  // Threads of a warp with the same outputs are neighbours, or `across` apart.
  int64_t first = plan.isAlongSum ? 1 : at.across;
  int64_t last = plan.isAlongSum ? std::min(plan.group, kWarp) : kWarp;
  for (int64_t mask = first; mask < last; mask *= 2)
    for (Value &value : sums)
      value = addExchanged(value, static_cast<int32_t>(mask));
  int64_t parts = std::max<int64_t>((plan.isAlongSum ? plan.group : plan.threads) / kWarp, 1);
  std::function<Value()> join = [&] {
    Value value = sums[0];
    for (int64_t row = 1; row < at.rows; ++row) {
      Value isRow =
          arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, at.lane, index(row));
      value = arith::SelectOp::create(builder, loc, isRow, sums[row], value);
    }
    return value;
  };
  if (parts > 1)
    join = shareSums(lanes, at, sums, parts);
  emitter.emitIf(lanes, isStored, [&](Context &inside) {
    emitter.enter(inside);
    Value value = join();
    // The epilogue is computed by the threads that store; the branch has its own columns.
    Context outputs, row;
    outputs.parent = outputs.next = &inside;
    row.parent = row.next = &outputs;
    outputs.block = row.block = inside.block;
    outputs.width = lanes.width;
    outputs.loops = lanes.loops;
    takeLoops(row, plan.rows, at.lane);
    (plan.rows.empty() ? outputs : row).values[plan.sum] = value;
    emitter.emitStores(row);
  });
}

/// Stores each warp's sums in shared memory. The returned function emits the total of the thread's
/// outputs in row `lane`, from `parts` partial sums.
std::function<Value()> NestEmitter::shareSums(Context &lanes, const ProductPlace &at,
                                              ArrayRef<Value> sums, int64_t parts) {
  const Node &sum = nest.body->nodes[plan.sum];
  int64_t width = plan.isAlongSum ? 1 : plan.width;
  int64_t tile = plan.isAlongSum ? 1 : at.across * width;
  Value places = addSharedMemory(function, sum.element, plan.threads / kWarp * at.rows * tile);
  emitter.enter(lanes);
  Value warpSize = index(kWarp);
  Value warp = arith::DivUIOp::create(builder, loc, at.thread, warpSize);
  Value number = arith::RemUIOp::create(builder, loc, at.thread, warpSize);
  Value column = plan.isAlongSum ? index(0) : scale(at.place, width);
  Value own = scale(warp, at.rows * tile, column);
  emitter.emitIf(lanes, isBelow(number, plan.isAlongSum ? 1 : at.across), [&](Context &inside) {
    emitter.enter(inside);
    for (auto [row, value] : llvm::enumerate(sums))
      emitter.store(value, places, scale(own, 1, index(static_cast<int64_t>(row) * tile)));
  });
  emitter.enter(lanes);
  gpu::BarrierOp::create(builder, loc);
  return [=, this, &sum] {
    Value from = scale(at.lane, tile, column);
    if (plan.isAlongSum)
      from = scale(at.place, parts * at.rows, from);
    Value result;
    for (int64_t part = 0; part < parts; ++part) {
      Value place = scale(from, 1, index(part * at.rows * tile));
      Value value = emitter.load(places, place, width, sum.element);
      result = result ? emitter.combine(sum, result, value) : value;
    }
    return result;
  };
}
