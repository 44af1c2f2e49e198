//===- ProgramTimeline.h - order of a program's steps -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The order that streams and events impose on a program's steps. A stream runs its steps in order;
// a wait holds a stream until an event's recording is reached. Before a
// loop's or branch's condition is read, and where it ends, all streams finish. Nothing else orders
// steps: two that are unordered here may run at the same time.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_PROGRAMTIMELINE_H
#define GRIDLOOM_PASSES_SCHEDULE_PROGRAMTIMELINE_H

#include "dialects/plan/Plan.h"

namespace gridloom {

/// True for launches, library calls, copies and groups.
bool isStep(mlir::Operation *op);
/// Buffers a step reads and writes.
mlir::OperandRange getStepInputs(mlir::Operation *step);
mlir::OperandRange getStepOutputs(mlir::Operation *step);
/// The stream of a step, record or wait; null for a loop or branch, which reads its condition on no
/// stream.
plan::StreamAttr getStepStream(mlir::Operation *op);
/// The buffer or rank parameter under any aliases.
mlir::Value getRootBuffer(mlir::Value buffer);

/// True for a buffer that is all of its root, if under another shape.
bool isWholeBuffer(mlir::Value buffer);
/// Repetitions of the control op around `op`; 1 outside of any repeat.
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

  /// Unrolls repeats far enough to show every order that all further iterations have, at least
  /// `iterations` times. A wait for an event nobody recorded orders nothing.
  explicit ProgramTimeline(plan::ProgramOp program, int64_t iterations = 3);

  llvm::ArrayRef<Run> getRuns() const { return runs; }
  llvm::ArrayRef<plan::StreamAttr> getStreams() const { return streams; }
  /// True when run `a` is done before run `b` starts, whatever the streams' speed.
  bool isBefore(unsigned a, unsigned b) const;
  /// Runs that touch a root buffer in each iteration, in program order. Buffers used outside
  /// repeats have one iteration.
  llvm::ArrayRef<llvm::SmallVector<Access>> getAccesses(mlir::Value root) const;
  /// True when all accesses of `a` are done before the first of `b` starts.
  bool isBefore(llvm::ArrayRef<Access> a, llvm::ArrayRef<Access> b) const;
  /// True when one buffer is used both in a loop and outside of it, and the other in the loop too:
  /// the first lives through all of it, of which the timeline shows one run.
  bool livesThroughLoopOf(mlir::Value a, mlir::Value b) const;
  /// Waits that found no recording in their iteration, or ever.
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
  std::vector<llvm::SmallVector<unsigned>> done; // per stream, of its next run
  std::vector<unsigned> lengths;                 // runs per stream so far
  llvm::DenseMap<std::pair<int64_t, int64_t>, llvm::SmallVector<unsigned>>
      events; // by id and iteration
  llvm::DenseMap<mlir::Value, llvm::SmallVector<llvm::SmallVector<Access>>> accesses;
  llvm::SmallVector<plan::WaitOp> danglingWaits;
  llvm::SmallVector<mlir::Operation *> loops;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_PROGRAMTIMELINE_H
