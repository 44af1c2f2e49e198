//===- LiveMemory.h - memory in use for some order of a block ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_LIVEMEMORY_H
#define GRIDLOOM_PASSES_SCHEDULE_LIVEMEMORY_H

#include "dialects/dist/Dist.h"
#include "passes/schedule/ListRun.h"

#include "mlir/IR/Block.h"

namespace gridloom {

/// The device memory that the operations of a block hold if they run in some order: values from
/// their computation to their last use, operands and results of communication until it is waited
/// for. Does not count weights, inputs and constants.
class LiveMemory {
public:
  /// `nodes` are the block's operations, without the terminator.
  LiveMemory(mlir::Block &block, llvm::ArrayRef<ScheduleNode> nodes);

  /// Peak bytes of the arena plus those of registered memory.
  int64_t getPeak(llvm::ArrayRef<unsigned> order) const;
  /// A memory-saving order: of the ready nodes, first those that free more than they take, or take
  /// little compared with what they read; then those with the longest path behind them. Waits for
  /// communication where nothing else is ready. Incomplete if the graph has a cycle.
  std::vector<unsigned> getFrugalOrder(llvm::ArrayRef<ScheduleNode> nodes) const;
  /// The bytes that a start's results take beyond those of its computed operands.
  int64_t getAdded(unsigned start) const { return added[start]; }

private:
  struct Buffer {
    int64_t bytes;
    bool isRegistered;
    unsigned numUses = 0;
  };

  /// The bytes that a node takes less those that it frees, where `open` is the number of uses left
  /// of each buffer; nullopt if the node should wait.
  std::optional<int64_t> getGrowth(unsigned node, llvm::ArrayRef<unsigned> open) const;
  unsigned addBuffer(unsigned node, mlir::Value value, bool isRegistered);
  void addUse(unsigned node, mlir::Value value);
  void addMessage(unsigned node, dist::AllReduceOp op, llvm::ArrayRef<unsigned> dones);
  void addStart(unsigned node, mlir::Operation *start);

  std::vector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, unsigned> owners;           // of a value's memory, if it has any
  std::vector<llvm::SmallVector<unsigned, 1>> made, used; // buffers per node
  std::vector<int64_t> added;
  llvm::DenseMap<mlir::Operation *, unsigned> numbers;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_LIVEMEMORY_H
