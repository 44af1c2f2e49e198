//===- Submission.h - programs as what streams do ---------------*- C++ -*-===//
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

/// A step of a program, whatever its iteration.
struct Step {
  mlir::Operation *op = nullptr;
  std::string kind;       ///< "kernel", "matmul", "all_reduce"
  std::string name, node; ///< as in a run's trace
  std::string over;       ///< of communication: "data.model", "stage 1"
  size_t stream = 0;
  bool isCommunication = false, isTransfer = false;
  uint64_t bytes = 0;      ///< of communication: what it reads, or of a receive writes
  bool isMeasured = false; ///< its time is measured, not estimated
  /// Of work, or of communication before anything is on a link.
  double seconds = 0;
  std::shared_ptr<const std::vector<cluster::Passage>> passages;
  double cores = 0; ///< as of an item

  /// Without contention and without waiting for peers.
  double getSecondsAlone() const;
};

/// One run of a step.
struct Turn {
  size_t step;
  int64_t iteration; ///< of the repeat around it: the micro-batch
  /// Of the repeats and loops around it, outermost first: a number for each of their iterations.
  llvm::SmallVector<int64_t, 2> turns;
  size_t stream, item; ///< its place in the stage
};

/// What one rank of a stage submits to its streams.
struct Submission {
  Stage stage;
  std::vector<plan::StreamAttr> streams;
  std::vector<Step> steps;
  std::vector<Turn> turns;       ///< in the order of submission
  std::vector<PartialRun> loops; ///< of which not all iterations are there
};

/// Micro-batches of a program, and the steps that one of them has.
struct Microbatches {
  int64_t count = 1, steps = 0;
};
Microbatches countMicrobatches(plan::ProgramOp program);

/// The first `shown` micro-batches are unrolled. A loop runs as often as it can at most, once where
/// that is not known; of a branch the dearer body runs. `measured` may be null.
Submission submit(plan::ProgramOp program, const dist::Mesh &mesh, const MeasuredCosts *measured,
                  int64_t shown);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_SUBMISSION_H
