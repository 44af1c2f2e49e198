//===- LiveMemory.h - memory of a block in some order -----------*- C++ -*-===//
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

/// What the operations of a block hold of a device's memory while they run in some order: values
/// from their computation to their last use, operands and results of communication until it is
/// waited for. Weights, inputs and constants are not among them.
class LiveMemory {
public:
  /// `nodes` are the block's operations but the terminator.
  LiveMemory(mlir::Block &block, llvm::ArrayRef<ScheduleNode> nodes);

  /// The most bytes at once: of activations, and of what peers access, which lies apart.
  int64_t getPeak(llvm::ArrayRef<unsigned> order) const;
  /// An order of nodes of which none communicates: of those that are ready, first what ends
  /// more memory than it takes, or takes little for what it reads, which can then end; else what
  /// has most work behind it. Incomplete where the graph has a cycle.
  std::vector<unsigned> getFrugalOrder(llvm::ArrayRef<ScheduleNode> nodes) const;
  /// Bytes of a start's results that are more than its computed operands have: what it adds.
  int64_t getAdded(unsigned start) const { return added[start]; }

private:
  struct Buffer {
    int64_t bytes;
    bool isRegistered;
    unsigned numUses = 0;
  };

  /// Bytes that a node takes, less those that end with it where `open` uses are left of each
  /// buffer; nothing where it should wait.
  std::optional<int64_t> getGrowth(unsigned node, llvm::ArrayRef<unsigned> open) const;
  unsigned addBuffer(unsigned node, mlir::Value value, bool isRegistered);
  void addUse(unsigned node, mlir::Value value);
  void addMessage(unsigned node, dist::AllReduceOp op, llvm::ArrayRef<unsigned> dones);
  void addStart(unsigned node, mlir::Operation *start);

  std::vector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, unsigned> owners;           // of a value's memory, where it has any
  std::vector<llvm::SmallVector<unsigned, 1>> made, used; // buffers per node
  std::vector<int64_t> added;
  llvm::DenseMap<mlir::Operation *, unsigned> numbers;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_LIVEMEMORY_H
