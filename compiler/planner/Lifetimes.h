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

/// From which step to which the buffers of a program are in use, by estimate: steps are taken to
/// run in their order, groups from the last step that their stream has waited for until a step
/// waits for them. The allocate phase asks instead which events order two uses, for every pair.
class Lifetimes {
public:
  /// `program` is as buildProgram leaves it, with slots and bytes of buffers.
  explicit Lifetimes(plan::ProgramOp program);

  /// Gives two slots to what a pipeline sends and receives: the peer has the last micro-batch's
  /// while the next is made.
  static void addSlots(plan::ProgramOp program);

  /// The bytes that a space takes when buffers that are not in use at once share memory.
  int64_t pack(plan::Space space) const;

private:
  /// Between two compute steps, so that groups can run between them.
  static constexpr int64_t kStep = int64_t(1) << 20;

  struct Life {
    plan::Space space;
    int64_t bytes, first;
    int64_t last;           ///< until the next group may begin
    int64_t lastForCompute; ///< until compute knows that it is over
    bool isPinned;          ///< has several slots
  };
  /// A group that compute has not waited for yet, and when it may begin.
  struct OpenGroup {
    plan::GroupOp group;
    int64_t begin;
    plan::GroupOp next; ///< the first that begins when this one is over
  };

  void visit(mlir::Block &block);
  void visitGroup(plan::GroupOp group);
  void visitCompute(mlir::Operation *step);
  void visitControl(mlir::Operation *op);
  void meet();
  void use(mlir::Value buffer, int64_t time, bool forComputeAlone = false);
  /// The groups that began on a stream up to `last` are over when `next` begins.
  void finishFor(plan::StreamAttr stream, int64_t last, const OpenGroup &next);
  /// Compute has waited for these groups, at its step of `time`.
  void finishForCompute(plan::StreamAttr stream, int64_t last, int64_t time);
  void finishAll();
  /// The open group that writes the buffer; null where there is none.
  OpenGroup *findWriter(mlir::Value buffer);
  /// What is in use outside of a loop as well as in it is in use all the while.
  void extendOverLoops();
  void mergeInPlace(plan::ProgramOp program);
  Life *find(mlir::Value buffer);

  std::vector<Life> lives;
  llvm::DenseMap<mlir::Value, unsigned> owners; // of root buffers
  llvm::DenseMap<mlir::Value, int64_t> written; // when a root buffer was written last
  llvm::DenseMap<mlir::Operation *, int64_t> times;
  llvm::DenseMap<plan::StreamAttr, int64_t> known; // up to when a stream has waited
  std::vector<OpenGroup> open;
  std::vector<std::pair<int64_t, int64_t>> loops; // when each begins and ends, inner ones first
  int64_t now = 0;                                // of the last compute step
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_LIFETIMES_H
