//===- Submission.h - what programs submit to streams -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_SUBMISSION_H
#define GRIDLOOM_COMPILER_SIMULATOR_SUBMISSION_H

#include "compiler/simulator/Engine.h"
#include "compiler/simulator/MeasuredCosts.h"
#include "compiler/simulator/Runs.h"
#include "dialects/dist/Sharding.h"
#include "dialects/plan/Plan.h"

namespace gridloom::sim {

/// A step of a program, over all iterations.
struct Step {
  mlir::Operation *op = nullptr;
  std::string kind;       ///< "kernel", "matmul", "all_reduce"
  std::string name, node; ///< as in a run's trace
  std::string over;       ///< of communication: "data.model", "stage 1"
  size_t stream = 0;
  bool isCommunication = false, isTransfer = false;
  uint64_t bytes = 0;      ///< of communication: what it reads, or of a receive writes
  bool isMeasured = false; ///< its time is measured, not estimated
  /// Duration of work; of communication, the time to start, before anything is on a link.
  double seconds = 0;
  std::shared_ptr<const std::vector<cluster::Passage>> passages;
  double cores = 0; ///< as of an item

  /// Seconds without contention and without waiting for peers.
  double getSecondsAlone() const;
};

/// A run of a loop of which only some iterations are run.
struct PartialLoop {
  static constexpr size_t kNone = ~size_t(0);
  size_t begin;   ///< the item of the first stream at which all streams meet before it
  double repeats; ///< times that its end waits for what was run to pass again
  size_t around;  ///< the number of the innermost such loop around it, or none
};

/// One run of a step.
struct Turn {
  size_t step;
  int64_t iteration; ///< of the repeat around it: the micro-batch
  /// Unique numbers of the iterations, of repeats and loops around it, outermost first.
  llvm::SmallVector<int64_t, 2> turns;
  size_t stream, item; ///< its position in the stage
  size_t loop;         ///< of the innermost partial loop around it, or none
};

/// What one rank of a stage submits to its streams.
struct Submission {
  Stage stage;
  std::vector<plan::StreamAttr> streams;
  std::vector<Step> steps;
  std::vector<Turn> turns; ///< in the order of submission
  std::vector<PartialLoop> partialLoops;
  std::vector<PartialRun> loops; ///< the same for people, equal ones once
};

/// The number of micro-batches of a program, and the most steps of one of them.
struct Microbatches {
  int64_t count = 1, steps = 0;
};
Microbatches countMicrobatches(plan::ProgramOp program);

/// Unrolls the first `shown` micro-batches. A loop runs its maximum number of iterations, once if
/// that is unknown; of a branch the more expensive body runs. `measured` may be null.
Submission submit(plan::ProgramOp program, const dist::Mesh &mesh, const MeasuredCosts *measured,
                  int64_t shown);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_SUBMISSION_H
