//===- Lifetimes.h - when the buffers of a program are in use ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_LIFETIMES_H
#define GRIDLOOM_COMPILER_PLANNER_LIFETIMES_H

#include "dialects/plan/Plan.h"

#include <map>

namespace gridloom {

/// Estimates from which step to which each buffer of a program is in use. Compute steps run in
/// their order; a group begins after the last step that its stream has waited for and ends when a
/// step waits for it. The allocate phase instead checks for every pair of uses which events order
/// them.
class Lifetimes {
public:
  /// `program` as buildProgram leaves it, with the slots and bytes of its buffers set.
  explicit Lifetimes(plan::ProgramOp program);

  /// Double-buffers the values that a pipeline sends and receives: while the peer works on one
  /// micro-batch, the next one uses the other slot.
  static void addSlots(plan::ProgramOp program);

  /// Bytes of a memory space in which buffers that are not in use at the same time share memory.
  int64_t pack(plan::Space space) const;

private:
  /// Time between two compute steps; leaves room for groups.
  static constexpr int64_t kStep = int64_t(1) << 20;

  struct Life {
    plan::Space space;
    int64_t bytes, first;
    int64_t last;           ///< of use, until a group that waits for it begins
    int64_t lastForCompute; ///< of use, until a compute step has waited for it
    bool isPinned;          ///< has several slots, so is always in use
  };
  /// A group that no compute step has waited for yet, and when it may begin.
  struct OpenGroup {
    plan::GroupOp group;
    int64_t begin;
    plan::GroupOp next; ///< the first group that waits for this one
  };

  void visit(mlir::Block &block);
  void visitGroup(plan::GroupOp group);
  void visitCompute(mlir::Operation *step);
  void visitControl(mlir::Operation *op);
  void meet();
  void use(mlir::Value buffer, int64_t time, bool forComputeAlone = false);
  /// Ends the groups that began on a stream up to `last`: `next` begins after them.
  void finishFor(plan::StreamAttr stream, int64_t last, const OpenGroup &next);
  /// Ends the groups that began on a stream up to `last`: the compute step at `time` waits for
  /// them.
  void finishForCompute(plan::StreamAttr stream, int64_t last, int64_t time);
  void finishAll();
  /// The open group that writes the buffer; null where there is none.
  OpenGroup *findWriter(mlir::Value buffer);
  /// Buffers used both outside and inside a loop are in use throughout the loop.
  void extendOverLoops();
  void mergeInPlace(plan::ProgramOp program);
  Life *find(mlir::Value buffer);

  std::vector<Life> lives;
  llvm::DenseMap<mlir::Value, unsigned> owners; // index in lives, by root buffer
  llvm::DenseMap<mlir::Value, int64_t> written; // last write of a root buffer
  llvm::DenseMap<mlir::Operation *, int64_t> times;
  llvm::DenseMap<plan::StreamAttr, int64_t> known; // up to when a stream has waited
  std::vector<OpenGroup> open;
  std::vector<std::pair<int64_t, int64_t>> loops; // begin and end of each, inner loops first
  int64_t now = 0;                                // time of the last compute step
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_LIFETIMES_H
