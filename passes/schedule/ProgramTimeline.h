//===- ProgramTimeline.h - order of a program's steps -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The order that streams and events impose on a program's steps. A stream runs its steps in order;
// a wait holds a stream until an event is recorded. All streams finish before the condition of a
// loop or branch is read, and at its end. Nothing else orders steps: two that are unordered here
// may run at the same time.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_PROGRAMTIMELINE_H
#define GRIDLOOM_PASSES_SCHEDULE_PROGRAMTIMELINE_H

#include "dialects/plan/Plan.h"

namespace gridloom {

/// True for launches, library calls, copies and groups.
bool isStep(mlir::Operation *op);
/// The buffers that a step reads, and writes.
mlir::OperandRange getStepInputs(mlir::Operation *step);
mlir::OperandRange getStepOutputs(mlir::Operation *step);
/// The stream of a step, record or wait; null for a loop or branch, whose condition the host reads.
plan::StreamAttr getStepStream(mlir::Operation *op);
/// The buffer or rank parameter behind any aliases.
mlir::Value getRootBuffer(mlir::Value buffer);

/// True for a buffer that covers all of its root, even under another shape.
bool isWholeBuffer(mlir::Value buffer);
/// The count of the repeat around `op`; 1 outside of any repeat.
int64_t getRepeatCount(mlir::Operation *op);

class ProgramTimeline {
public:
  /// One run of a step in one iteration, or one reading of a loop's or branch's condition.
  struct Run {
    mlir::Operation *op;
    int64_t iteration;
    unsigned stream;
    unsigned position; // in its stream, from 1
    /// Per stream, how many of its runs are done when this one starts.
    llvm::SmallVector<unsigned> done;
  };
  struct Access {
    unsigned run;
    bool writes;
  };

  /// Unrolls each repeat at least `iterations` times, and far enough to show every order that all
  /// further iterations have. A wait for an event that nobody recorded orders nothing.
  explicit ProgramTimeline(plan::ProgramOp program, int64_t iterations = 3);

  llvm::ArrayRef<Run> getRuns() const { return runs; }
  llvm::ArrayRef<plan::StreamAttr> getStreams() const { return streams; }
  /// True when run `a` is done before run `b` starts, whatever the streams' speed.
  bool isBefore(unsigned a, unsigned b) const;
  /// The runs that access a root buffer, by iteration, in program order. Buffers used outside of
  /// repeats have one iteration.
  llvm::ArrayRef<llvm::SmallVector<Access>> getAccesses(mlir::Value root) const;
  /// True when all accesses of `a` are done before the first of `b` starts.
  bool isBefore(llvm::ArrayRef<Access> a, llvm::ArrayRef<Access> b) const;
  /// True if a loop uses both buffers and one of them is also used outside of it: that one lives
  /// through the whole loop, of which the timeline shows one run.
  bool livesThroughLoopOf(mlir::Value a, mlir::Value b) const;
  /// Waits for an event that their iteration, or nobody, recorded.
  llvm::ArrayRef<plan::WaitOp> getDanglingWaits() const { return danglingWaits; }

private:
  void visit(mlir::Block &block, int64_t iteration, bool repeated);
  void visitStep(mlir::Operation *op, unsigned stream, int64_t iteration, bool repeated);
  /// The host reads the condition of a loop or branch between what is before and what follows.
  void visitCondition(mlir::Operation *op, int64_t iteration, bool repeated);
  void visitWait(plan::WaitOp op, int64_t iteration);
  /// All streams have finished.
  void meet();
  unsigned getStream(plan::StreamAttr stream);

  int64_t minIterations;
  std::vector<plan::StreamAttr> streams; // null: of conditions
  std::vector<Run> runs;
  std::vector<llvm::SmallVector<unsigned>> done; // per stream, as its next run sees them
  std::vector<unsigned> lengths;                 // runs per stream so far
  llvm::DenseMap<std::pair<int64_t, int64_t>, llvm::SmallVector<unsigned>>
      events; // by id and iteration
  llvm::DenseMap<mlir::Value, llvm::SmallVector<llvm::SmallVector<Access>>> accesses;
  llvm::SmallVector<plan::WaitOp> danglingWaits;
  llvm::SmallVector<mlir::Operation *> loops;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_PROGRAMTIMELINE_H
