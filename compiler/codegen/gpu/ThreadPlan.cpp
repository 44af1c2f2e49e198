//===- ThreadPlan.cpp - distribution of work over threads -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/gpu/ThreadPlan.h"
#include "compiler/codegen/gpu/ThreadGroups.h"
#include "compiler/codegen/gpu/ThreadPlanning.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

/// Rows with fewer elements are reduced by one thread.
constexpr int64_t kWarpRow = 8;
/// Words of a row that a thread keeps in registers, per value.
constexpr int64_t kKeptWords = 16;
/// Tiles with a shorter side would leave most threads idle.
constexpr int64_t kMinTileSide = 16;

using Kind = Node::Kind;

/// True if vectors of `width` elements of `buffer` along `loop` start at multiples of it.
bool isAligned(const Body &body, const Buffer &buffer, const Linear &index, const Loop &loop,
               int64_t width) {
  auto isMultiple = [&](int64_t value) { return value % width == 0; };
  int64_t bytes = std::min(width * bytesOf(buffer.element), loom::kViewAlignment);
  AtomId last = loop.atoms.back();
  return buffer.alignment % bytes == 0 && isMultiple(index.offset) &&
         llvm::all_of(index.terms, [&](const auto &term) {
           // With the last atom's coefficient those of the loop's others are right.
           if (loop.contains(term.first))
             return term.first != last || term.second == 1;
           if (body.atoms[term.first].kind == Atom::Kind::Loop)
             return isMultiple(term.second);
           return isMultiple(term.second) &&
                  llvm::none_of(body.atoms[term.first].free,
                                [&](AtomId atom) { return loop.contains(atom); });
         });
}

bool has(const Body &body, Kind kind) {
  return llvm::any_of(body.nodes, [&](const Node &node) { return node.kind == kind; });
}

/// The widest vectors along `loop` that suit all loads and, with `isOutput`, all stores.
int64_t findWidth(const Body &body, const Loop &loop, bool isOutput) {
  int64_t bytes = 1;
  for (const Node &node : body.nodes)
    if (node.kind == Kind::Load && dependsOn(node, loop))
      bytes = std::max(bytes, bytesOf(node.element));
  if (isOutput)
    for (const Store &store : body.stores)
      bytes = std::max(bytes, bytesOf(body.buffers[store.buffer].element));
  // Values are computed in 32-bit registers: vectors of more than 8 pay off only for moves.
  bool isCostly = llvm::any_of(body.nodes, [](const Node &node) { return node.own > 1; });
  return fitWidth(body, loop, isOutput, std::clamp<int64_t>(kAccess / bytes, 4, isCostly ? 8 : 16));
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// Threads of a block that cover `count` vectors of a row with little waste; 0 if none do.
int64_t findRowThreads(int64_t count) {
  for (int64_t threads : {256, 192, 128, 320, 160, 224, 96, 64, 384, 512})
    if (count % threads == 0)
      return threads;
  int64_t blocks = ceilDiv(count, 256);
  int64_t threads = llvm::alignTo(ceilDiv(count, blocks), kWarp);
  return threads * blocks * 8 <= count * 9 ? threads : 0;
}

/// A thread per vector of outputs.
ThreadPlan planElements(const Nest &nest, bool isOnly, int64_t processors) {
  ThreadPlan plan;
  int64_t total = 1;
  for (const Loop &loop : nest.outer)
    total *= loop.extent;
  int64_t vectors = 1;
  if (nest.contiguous >= 0) {
    const Loop &loop = nest.outer[nest.contiguous];
    int64_t width = findWidth(*nest.body, loop, /*isOutput=*/true);
    // Small work gets more threads rather than wider vectors.
    while (width > 4 && total / width < processors * kThreads)
      width /= 2;
    // Leftover elements take a thread each: short rows should have none.
    if (width > 1 && loop.extent < 2 * width)
      width = largestDividing(width, loop.extent);
    plan.width = width;
    vectors = loop.extent / width + loop.extent % width;
    total = total / loop.extent * vectors;
  }
  plan.items = total;
  if (isOnly) {
    int64_t rows = total / vectors, threads = findRowThreads(vectors);
    // Short rows of a power of two are as easily found by dividing one number.
    bool isLong = vectors >= kThreads || (vectors >= 64 && !llvm::isPowerOf2_64(vectors));
    if (rows > 1 && isLong && threads > 0 && vectors / threads < kMaxMinorGrid) {
      plan.isByRow = true;
      plan.threads = threads;
      plan.items = rows;
      plan.grid = {rows, ceilDiv(vectors, threads), 1};
      return plan;
    }
    plan.threads = total >= 2 * processors * kThreads ? kThreads : kThreads / 2;
  }
  plan.grid[0] = ceilDiv(plan.items, plan.threads);
  return plan;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// The innermost loop of a reduction: the one that threads share.
const Loop &innermostLoop(const Nest &nest, const Node &reduce) {
  return nest.loopOf(reduce.bound.back());
}

/// Words per element of `loop` that earlier passes compute and later passes need.
int64_t countKept(const Nest &nest, const Loop &loop, bool isStored) {
  const Body &body = *nest.body;
  llvm::SmallVector<NodeId> roots;
  for (const Node &node : body.nodes)
    if (node.kind == Kind::Reduce && &innermostLoop(nest, node) == &loop)
      roots.push_back(node.operands[0]);
  if (isStored)
    for (const Store &store : body.stores)
      roots.push_back(store.value);
  llvm::SmallVector<int> firstPass(body.nodes.size(), -1);
  llvm::SmallVector<bool> isKept(body.nodes.size(), false);
  std::function<void(NodeId, int)> visit = [&](NodeId id, int pass) {
    const Node &node = body.nodes[id];
    if (!dependsOn(node, loop) || firstPass[id] == pass)
      return;
    if (firstPass[id] >= 0) {
      isKept[id] = true;
      return;
    }
    firstPass[id] = pass;
    if (node.kind == Kind::Compute)
      for (NodeId operand : node.operands)
        visit(operand, pass);
  };
  for (auto [pass, root] : llvm::enumerate(roots))
    visit(root, pass);
  int64_t words = 0;
  for (auto [id, kept] : llvm::enumerate(isKept))
    if (kept)
      words += ceilDiv(bytesOf(body.nodes[id].element), 4);
  return words;
}

/// True if each of a block's `threads` can hold its `elements` of a loop in registers; `kept` words
/// of each are needed again.
bool fitsInLine(int64_t elements, int64_t kept, int64_t threads) {
  // A multiprocessor has 64 Ki registers: 64 for each of 1024 threads, and half of them are needed
  // to compute.
  int64_t words = threads > 512 ? 24 : 48;
  return elements <= 2 * kKeptWords && elements * std::max<int64_t>(kept, 1) <= words;
}

/// The loops that a row's threads share: those of reductions, and `outputs`. Nothing if the threads
/// would diverge.
std::optional<SmallVector<const Loop *>> findSharedLoops(const Nest &nest, const Loop *outputs) {
  SmallVector<const Loop *> shared;
  for (const Node &node : nest.body->nodes) {
    // Branches may keep some threads from a reduction.
    if (node.kind == Kind::Choose)
      return std::nullopt;
    if (node.kind != Kind::Reduce)
      continue;
    if (node.bound.empty() || (outputs && dependsOn(node, *outputs)))
      return std::nullopt;
    shared.push_back(&innermostLoop(nest, node));
  }
  if (shared.empty())
    return std::nullopt;
  if (outputs)
    shared.push_back(outputs);
  llvm::sort(shared);
  shared.erase(llvm::unique(shared), shared.end());
  return shared;
}

/// Threads per row, a warp or a block, for `rows` rows of `vectors` vectors of `width` elements.
int64_t findRowGroup(int64_t vectors, int64_t rows, int64_t width, int64_t processors) {
  if (vectors <= 2 * kWarp || (vectors <= 8 * kWarp && rows >= 32 * processors))
    return kWarp;
  for (int64_t threads : {256, 512, 1024}) {
    int64_t each = ceilDiv(vectors, threads);
    if (each * width <= kKeptWords)
      return llvm::alignTo(ceilDiv(vectors, each), kWarp);
  }
  return 1024;
}

/// A group of threads per row, where neighbouring elements of a row are reduced or outputs share
/// reductions; nothing otherwise.
std::optional<ThreadPlan> planRow(const Nest &nest, bool isOnly, int64_t processors) {
  const Body &body = *nest.body;
  const Loop *outputs = nullptr;
  if (nest.contiguous >= 0 && !nest.reducesContiguous)
    outputs = &nest.outer[nest.contiguous];
  std::optional<SmallVector<const Loop *>> shared = findSharedLoops(nest, outputs);
  if (!shared)
    return std::nullopt;
  ThreadPlan plan;
  plan.kind = ThreadPlan::Kind::Row;
  plan.spread = outputs;
  for (const Loop &loop : nest.outer)
    if (&loop != outputs)
      plan.items *= loop.extent;
  int64_t longest = 1, width = kAccess, exact = kAccess;
  for (const Loop *loop : *shared) {
    longest = std::max(longest, loop->extent);
    width = std::min(width, findWidth(body, *loop, loop == outputs));
    exact = std::min(exact, largestDividing(width, loop->extent));
  }
  if (!outputs && longest < kWarpRow)
    return std::nullopt;

  plan.group = findRowGroup(ceilDiv(longest, exact), plan.items, exact, processors);
  if (!isOnly && plan.group > kWarp)
    plan.group = kThreads;
  plan.width = exact;
  for (const Loop *loop : *shared) {
    int64_t elements = ceilDiv(loop->extent, exact * plan.group) * exact;
    if (fitsInLine(elements, countKept(nest, *loop, loop == outputs), plan.group))
      plan.inLine.push_back(loop);
  }
  // Loops can use shorter vectors for the remainder.
  if (plan.inLine.empty())
    plan.width = width;
  if (plan.group > kWarp) {
    plan.threads = plan.group;
  } else if (isOnly) {
    int64_t warps = std::clamp<int64_t>(llvm::bit_floor<uint64_t>(plan.items / processors), 1, 8);
    plan.threads = warps * kWarp;
  }
  plan.grid[0] = ceilDiv(plan.items, plan.threads / plan.group);
  return plan;
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

/// Neighbouring threads compute neighbouring outputs of reductions that depend on them. If outputs
/// are few, several threads split a reduction; if other outputs share it, they split these too.
std::optional<ThreadPlan> planColumn(const Nest &nest, int64_t processors) {
  const Body &body = *nest.body;
  if (nest.contiguous < 0 || nest.reducesContiguous || has(body, Kind::Choose))
    return std::nullopt;
  const Loop &columns = nest.outer[nest.contiguous];
  SmallVector<const Loop *> reduced;
  bool isColumn = false;
  for (const Node &node : body.nodes) {
    if (node.kind != Kind::Reduce)
      continue;
    if (node.bound.empty())
      return std::nullopt;
    isColumn |= dependsOn(node, columns);
    reduced.push_back(&innermostLoop(nest, node));
  }
  if (!isColumn)
    return std::nullopt;
  llvm::sort(reduced);
  reduced.erase(llvm::unique(reduced), reduced.end());

  ThreadPlan plan;
  plan.kind = ThreadPlan::Kind::Column;
  for (const Loop &loop : nest.outer)
    if (&loop != &columns && llvm::none_of(body.nodes, [&](const Node &node) {
          return node.kind == Kind::Reduce && dependsOn(node, loop);
        }))
      plan.spread = &loop;
  for (const Loop &loop : nest.outer)
    if (&loop != &columns && &loop != plan.spread)
      plan.items *= loop.extent;
  plan.width = largestDividing(findWidth(body, columns, /*isOutput=*/true), columns.extent);
  int64_t vectors = columns.extent / plan.width, longest = 1;
  for (const Loop *loop : reduced)
    longest = std::max(longest, loop->extent);
  constexpr int64_t kMaxSplit = 32, kMinPart = 4;
  while (plan.group < kMaxSplit && longest / (2 * plan.group) >= kMinPart &&
         plan.items * vectors * plan.group < processors * 1024)
    plan.group *= 2;
  if (plan.group == 1 && !plan.spread)
    return std::nullopt;

  int64_t across = kThreads / plan.group;
  if (vectors < across)
    across = llvm::PowerOf2Ceil(vectors);
  plan.threads = across * plan.group;
  plan.grid = {plan.items, ceilDiv(vectors, across), 1};
  if (plan.grid[1] > kMaxMinorGrid)
    return std::nullopt;
  if (plan.spread && !llvm::is_contained(reduced, plan.spread))
    reduced.push_back(plan.spread);
  for (const Loop *loop : reduced) {
    int64_t elements = ceilDiv(loop->extent, plan.group) * plan.width;
    int64_t kept = countKept(nest, *loop, loop == plan.spread);
    if (plan.group > 1 && fitsInLine(elements, kept, plan.threads))
      plan.inLine.push_back(loop);
  }
  return plan;
}

//===----------------------------------------------------------------------===//
// Transposes
//===----------------------------------------------------------------------===//

/// True if a load's neighbours along `loop` are neighbours in memory.
bool runsAlong(const Body &body, const Node &load, const Loop &loop) {
  return load.index.coefficient(loop.atoms.back()) == 1 &&
         llvm::all_of(load.index.terms, [&](const auto &term) {
           const Atom &atom = body.atoms[term.first];
           return atom.kind == Atom::Kind::Loop ||
                  llvm::none_of(atom.free, [&](AtomId id) { return loop.contains(id); });
         });
}

/// A tile per block, if reads are contiguous along another loop than writes.
std::optional<ThreadPlan> planTranspose(const Nest &nest) {
  const Body &body = *nest.body;
  if (nest.contiguous < 0 || has(body, Kind::Choose) || has(body, Kind::Reduce))
    return std::nullopt;
  const Loop &written = nest.outer[nest.contiguous];
  ThreadPlan plan;
  plan.kind = ThreadPlan::Kind::Transpose;
  for (const Loop &loop : nest.outer) {
    if (&loop == &written)
      continue;
    SmallVector<NodeId> loads;
    for (auto [id, node] : llvm::enumerate(body.nodes))
      if (node.kind == Kind::Load && !body.buffers[node.buffer].constant &&
          dependsOn(node, written) && runsAlong(body, node, loop))
        loads.push_back(id);
    if (loads.size() > plan.tiled.size()) {
      plan.tiled = loads;
      plan.read = &loop;
    }
  }
  if (!plan.read || std::min(plan.read->extent, written.extent) < kMinTileSide)
    return std::nullopt;
  // Shorter elements are accessed as words.
  int64_t bytes = 1;
  for (NodeId id : plan.tiled)
    bytes = std::max(bytes, bytesOf(body.nodes[id].element));
  for (const Store &store : body.stores)
    bytes = std::max(bytes, bytesOf(body.buffers[store.buffer].element));
  auto fits = [&](int64_t width) {
    return plan.read->extent % width == 0 && written.extent % width == 0 &&
           llvm::all_of(body.nodes,
                        [&](const Node &node) {
                          return node.kind != Kind::Load || !dependsOn(node, written) ||
                                 runsAlong(body, node, *plan.read) ||
                                 isAligned(body, body.buffers[node.buffer], node.index, written,
                                           width);
                        }) &&
           llvm::all_of(plan.tiled,
                        [&](NodeId id) {
                          const Node &load = body.nodes[id];
                          return isAligned(body, body.buffers[load.buffer], load.index, *plan.read,
                                           width);
                        }) &&
           llvm::all_of(body.stores, [&](const Store &store) {
             return isAligned(body, body.buffers[store.buffer], store.index, written, width);
           });
  };
  plan.width = std::max<int64_t>(4 / bytes, 1);
  while (plan.width > 1 && !fits(plan.width))
    plan.width /= 2;
  int64_t side = kWarp * plan.width, shared = 0;
  for (NodeId id : plan.tiled)
    shared += side * (side + plan.width) * bytesOf(body.nodes[id].element);
  plan.threads = kWarp * kTileRows;
  plan.grid = {ceilDiv(written.extent, side), ceilDiv(plan.read->extent, side), 1};
  for (const Loop &loop : nest.outer)
    if (&loop != &written && &loop != plan.read)
      plan.grid[2] *= loop.extent;
  if (shared > kSharedLimit || plan.grid[1] > kMaxMinorGrid || plan.grid[2] > kMaxMinorGrid)
    return std::nullopt;
  return plan;
}

} // namespace

int64_t gridloom::codegen::fitWidth(const Body &body, const Loop &loop, bool isOutput,
                                    int64_t width) {
  auto fits = [&] {
    for (const Node &node : body.nodes)
      if (node.kind == Kind::Choose ||
          (node.kind == Kind::Load && dependsOn(node, loop) &&
           !isAligned(body, body.buffers[node.buffer], node.index, loop, width)))
        return false;
    return !isOutput || llvm::all_of(body.stores, [&](const Store &store) {
      return isAligned(body, body.buffers[store.buffer], store.index, loop, width);
    });
  };
  while (width > 1 && !fits())
    width /= 2;
  return width;
}

ThreadPlan gridloom::codegen::planThreads(const Nest &nest, bool isOnly, int64_t processors) {
  if (isOnly)
    if (std::optional<ThreadPlan> product = planProduct(nest, processors))
      return *product;
  if (std::optional<ThreadPlan> row = planRow(nest, isOnly, processors))
    return *row;
  if (isOnly) {
    if (std::optional<ThreadPlan> column = planColumn(nest, processors))
      return *column;
    if (std::optional<ThreadPlan> transpose = planTranspose(nest))
      return *transpose;
  }
  return planElements(nest, isOnly, processors);
}

bool gridloom::codegen::hasShortIndices(const Nest &nest) {
  // Rounding up to whole blocks and tiles must not overflow either.
  constexpr int64_t limit = (int64_t(1) << 31) - (1 << 16);
  const Body &body = *nest.body;
  auto fits = [&](const Linear &linear) {
    int64_t sum = std::abs(linear.offset);
    for (auto [atom, coefficient] : linear.terms)
      sum += std::abs(coefficient) * (body.atoms[atom].size - 1);
    return sum < limit;
  };
  int64_t elements = 1;
  for (const Loop &loop : nest.outer)
    elements *= loop.extent;
  for (AtomId id = 0; id < body.atoms.size(); ++id)
    if (!fits(body.atoms[id].argument) || body.atoms[id].size >= limit)
      return false;
  return elements < limit &&
         llvm::all_of(
             body.buffers, [&](const Buffer &buffer) { return buffer.elements < limit; }) &&
         llvm::all_of(
             body.nodes, [&](const Node &node) { return fits(node.index); }) &&
         llvm::all_of(body.stores, [&](const Store &store) { return fits(store.index); });
}
