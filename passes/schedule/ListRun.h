//===- ListRun.h - list scheduling of a graph of work -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_LISTRUN_H
#define GRIDLOOM_PASSES_SCHEDULE_LISTRUN_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace gridloom {

/// One operation of a block; nodes are numbered in program order.
struct ScheduleNode {
  enum class Kind {
    Compute, ///< runs on the compute stream, or makes it wait
    Start,   ///< communication begins, on its own stream
    Done,    ///< communication is waited for
    Name     ///< takes no time: a view of a value
  };
  mlir::Operation *op = nullptr;
  Kind kind = Kind::Name;
  unsigned stream = 0; ///< of a start
  llvm::SmallVector<unsigned, 2> successors;
  unsigned numProducers = 0;
  double seconds = 0; ///< of compute or communication
  double toEnd = 0;   ///< along the longest path from its start to the end
};

/// Operations in the order in which they are issued, by number.
struct ListOrder {
  std::vector<unsigned> order;
  std::vector<double> begin;  ///< estimated, in seconds, per node
  std::vector<double> issued; ///< per node, when the compute before it is over
  double end = 0;
};

/// Sets `toEnd` of all nodes. Edges should go from lower to higher numbers, with few exceptions.
void measurePaths(llvm::MutableArrayRef<ScheduleNode> nodes);

/// Issues communication as soon as its operands are there, and waits for it when it is over; of
/// compute that which can start first, then that with the longest path behind it. A start with a
/// `release` time (empty, or one per node) is issued at the last decision before that time, or when
/// its stream is free if that is later. Incomplete if the graph has a cycle. Takes n log n steps
/// for n nodes and edges.
ListOrder runList(llvm::ArrayRef<ScheduleNode> nodes, llvm::ArrayRef<double> release = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_LISTRUN_H
