//===- BodyEmitter.h - expressions to arith, vector and scf -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Emits the nodes of a body inside loops that a kernel emitter opens. Each value is emitted once,
// in the outermost loop body that has all loop variables it depends on.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_BODYEMITTER_H
#define GRIDLOOM_COMPILER_CODEGEN_BODYEMITTER_H

#include "compiler/codegen/Nest.h"

namespace gridloom::codegen {

/// Memory that holds a value of one pass over a row for later passes.
struct Scratch {
  mlir::Value memory;
  int producer; // the pass that stores it
};

/// A place in the emitted code: a loop body, a branch, or the function.
struct Context {
  Context *parent = nullptr;
  mlir::Block *block = nullptr;
  /// The loops that this body opens, with their variables.
  llvm::SmallVector<std::pair<const Loop *, mlir::Value>, 2> loops;
  /// Elements of the (only) loop that a value here holds: 1 for scalars, more for vectors.
  int64_t width = 1;
  /// In a branch: values that depend on these atoms are safe only inside it.
  AtomSet guard;
  /// The number of the pass over a row, -1 for none.
  int pass = -1;
  /// The threads of a group share the loop's iterations.
  bool isSpread = false;
  /// For an unrolled iteration: whether it is within the loop; null if it always is. Beyond the
  /// end, the loop variable is clamped to the last iteration.
  mlir::Value isInside;
  /// If the (only) loop's variable is base + offset, with a base that other contexts share:
  /// addresses are computed from the base, and the offset is added last.
  mlir::Value base;
  int64_t offset = 0;
  /// The loop or branch being built in the block; further code of the block goes before it.
  mlir::Operation *anchor = nullptr;
  /// The next context in the same block, if several share it; the last one's anchor counts.
  Context *next = nullptr;

  std::map<NodeId, mlir::Value> values;
  std::map<std::vector<int64_t>, mlir::Value> indices;
  /// For the loops directly inside: the pass of each reduction, and the values kept between passes.
  std::map<NodeId, int> passOf;
  std::map<NodeId, Scratch> scratch;
  /// For loops directly inside: the unrolled iterations.
  std::map<const Loop *, std::vector<std::unique_ptr<Context>>> inLine;

  bool owns(AtomId atom) const;
  mlir::Operation *&getAnchor() { return next ? next->getAnchor() : anchor; }
};

/// Iterations [begin, end) of a loop in steps of `width` elements.
struct Segment {
  int64_t begin, end, width;
  bool isSpread = false; // over the threads of a group
};

/// Covers [0, extent) by vectors of at most `widest` elements, then shorter ones, then scalars.
llvm::SmallVector<Segment> cutInSegments(int64_t extent, int64_t widest);

/// Bytes of scratch memory for rows that one kernel may put on the stack.
inline constexpr int64_t kScratchLimit = 192 << 10;

/// Threads that compute a row together. Each takes every count-th vector of a spread loop.
struct ThreadGroup {
  mlir::Value lane; // index of this thread, below `count`
  int64_t count = 1;
  /// Reduces the threads' values to one and gives it to all of them.
  std::function<mlir::Value(const Node &reduce, mlir::Value value)> join;
  /// Loops that are unrolled because a thread has few of their iterations: values of one pass over
  /// the loop stay in registers for the next.
  llvm::SmallVector<const Loop *, 2> inLine;
};

/// Properties of code that differ between targets.
struct TargetStyle {
  /// Indices have 32 bits, which suffice for all of the nest's memory.
  bool hasShortIndices = false;
  /// A maximum that ignores NaN is one instruction.
  bool hasMaxOfNumbers = false;
};

class BodyEmitter {
public:
  using Allocate = std::function<mlir::Value(mlir::Type element, int64_t elements)>;

  /// `memories` are memrefs of rank 1, one per buffer of the nest's body. `allocate` allocates on
  /// the function's stack; if null, no value is stored between passes.
  BodyEmitter(const Nest &nest, llvm::ArrayRef<mlir::Value> memories, mlir::OpBuilder &builder,
              mlir::Location loc, int64_t widest, Allocate allocate, TargetStyle style = {})
      : nest(nest), body(*nest.body), memories(memories), builder(builder), loc(loc),
        widest(widest), allocate(std::move(allocate)), style(style),
        indexType(style.hasShortIndices ? mlir::Type(builder.getI32Type())
                                        : mlir::Type(builder.getIndexType())) {}

  /// Spreads the reductions that no spread loop surrounds over the threads of a group.
  void share(ThreadGroup threads) { group = std::move(threads); }

  /// Stores one element or vector of each output, at the loop variables of `context`.
  void emitStores(Context &context);

  /// Emits the reductions that belong in `context`, before its loop `last` (null if the next loop
  /// is not the innermost). Returns the pass number of `last`, -1 if it has none.
  int emitPasses(Context &context, const Loop *last);

  /// The widest vector a loop may be emitted with.
  int64_t widthFor(const Loop &loop) const;

  /// Sets the insertion point to the end of the code that `context` has so far.
  void enter(Context &context);

  /// Emits a loop with `build` as its body. `inits` are the first carried values; `build` returns
  /// the next ones. Returns the final ones.
  using Build = llvm::function_ref<llvm::SmallVector<mlir::Value>(Context &, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> emitLoop(Context &context, const Loop &loop, mlir::Value begin,
                                          mlir::Value end, int64_t width, int pass,
                                          mlir::ValueRange inits, Build build,
                                          bool isSpread = false);
  llvm::SmallVector<mlir::Value> emitLoop(Context &context, const Loop &loop,
                                          const Segment &segment, int pass, mlir::ValueRange inits,
                                          Build build);

  /// This thread's unrolled iterations of `loop` inside `at`, as vectors of `width` elements, which
  /// divides the extent.
  std::vector<std::unique_ptr<Context>> &getInLine(Context &at, const Loop &loop, int64_t width);
  /// Stores the outputs' elements for all iterations of `loop`, unrolled or not, if `isInside` is
  /// null or true; `pass` is what emitPasses returned.
  void emitStoreLoop(Context &at, const Loop &loop, int pass, int64_t width,
                     mlir::Value isInside = {});
  /// Builds the body of a branch on `condition` in `context`, or without a branch if that is null.
  void emitIf(Context &context, mlir::Value condition,
              llvm::function_ref<void(Context &inside)> build);

  mlir::Value constantIndex(int64_t value);
  /// Returns the variable of a minor loop, item % extent, and divides `item` by `extent`. The
  /// variable of the major loop is `item` itself.
  mlir::Value takeMinor(mlir::Value &item, int64_t extent, bool isMajor);

  /// Emits node `id` in `context`, which must have the loops it depends on.
  mlir::Value emitNodeIn(Context &context, NodeId id) { return emit(id, context); }

  /// Loads the element at `index`, or a vector of `width` elements from there on.
  mlir::Value load(mlir::Value memory, mlir::Value index, int64_t width, mlir::Type element);
  void store(mlir::Value value, mlir::Value memory, mlir::Value index);
  mlir::OpBuilder &getBuilder() { return builder; }

  /// One step of a reduction.
  mlir::Value combine(const Node &reduce, mlir::Value lhs, mlir::Value rhs);
  /// Reduces a vector to one element; returns scalars unchanged.
  mlir::Value collapse(const Node &reduce, mlir::Value vector);

private:
  Context &home(llvm::ArrayRef<AtomId> free, Context &context) const;
  const Context *vectorContext(llvm::ArrayRef<AtomId> free, const Context &context) const;

  mlir::Value emit(NodeId id, Context &context);
  mlir::Value emitNode(NodeId id, Context &at);
  mlir::Value emitLoad(const Node &node, Context &at);
  mlir::Value emitIota(const Node &node, Context &at);
  mlir::Value emitCompute(const Node &node, Context &at);
  mlir::Value emitChoose(const Node &node, Context &at, size_t from);
  mlir::Value emitReduce(NodeId id, Context &at);
  mlir::Value emitReduceInLine(const Node &node, Context &at, const Loop &loop, int64_t width,
                               const Context *lanes);
  bool isShared(const Context &at) const;
  llvm::SmallVector<mlir::Value> emitReduceLoops(const Node &node, Context &at,
                                                 llvm::ArrayRef<const Loop *> loops, int pass,
                                                 llvm::ArrayRef<Segment> segments,
                                                 mlir::ValueRange accumulators);

  mlir::Value emitPlace(const Linear &linear, Context &context);
  mlir::Value emitIndex(const Linear &linear, Context &context, bool isFromBase = false);
  mlir::Value emitAtom(AtomId id, Context &context);
  mlir::Value clamp(mlir::Value value, int64_t last);
  mlir::Value emitIndexVector(const Linear &linear, Context &context, const Context &lanes);
  mlir::Value emitAtomVector(AtomId id, Context &context, const Context &lanes);

  mlir::Value identity(const Node &reduce, mlir::Type type);
  mlir::Value toVector(mlir::Value value, int64_t width);
  mlir::Value fromMemory(mlir::Value value, mlir::Type element);
  mlir::Value toMemory(mlir::Value value);
  mlir::Value splat(mlir::Type type, mlir::Attribute value);
  void planScratch(Context &context, const Loop &loop,
                   llvm::ArrayRef<llvm::SmallVector<NodeId>> passes);

  const Nest &nest;
  const Body &body;
  llvm::ArrayRef<mlir::Value> memories;
  mlir::OpBuilder &builder;
  mlir::Location loc;
  int64_t widest;
  Allocate allocate; // null: no value is stored between passes
  TargetStyle style;
  mlir::Type indexType;
  ThreadGroup group;
  int64_t scratchBytes = 0;
};

/// One step of a reduction of values, scalars or vectors, of a tensor's type `element`.
mlir::Value combineScalars(mlir::OpBuilder &builder, mlir::Location loc, dist::ReductionKind kind,
                           mlir::Value lhs, mlir::Value rhs, mlir::Type element);

/// The type of an element in memory: i1 as i8, integers signless.
mlir::Type memoryType(mlir::Type element);

/// Adds a private global that holds a buffer's constant; returns its memref type.
mlir::MemRefType emitConstantGlobal(mlir::OpBuilder &builder, mlir::Location loc,
                                    llvm::StringRef name, const Buffer &buffer);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_BODYEMITTER_H
