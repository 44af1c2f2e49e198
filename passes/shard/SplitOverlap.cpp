//===- SplitOverlap.cpp - messages that work can run beside ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitProblem.h"

#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Operations before a value's producer and after its reader among which to look for work beside
/// the message: about a layer on each side. A schedule moves messages hardly further.
static constexpr int64_t kWindow = 64;
/// The share of an all_gather's time that the work must take.
static constexpr double kLeastWork = 0.5;

void SplitProblem::setWork() {
  if (hiddenShare == 0)
    return;
  work.resize(times.size());
  auto devices = static_cast<double>(mesh.getSize(axes));
  for (auto [op, time] : times)
    work[time] = {op, loom::getComputeSeconds(op, mesh.getMachine()) / devices};
}

bool SplitProblem::hasWorkBeside(Value value, ArrayRef<Operation *> readers) const {
  if (hiddenShare == 0)
    return false;
  auto getTime = [&](Operation *op) { return op ? times.lookup_or(op, -1) : -1; };
  auto last = static_cast<int64_t>(work.size());
  int64_t read = last;
  size_t part = 0;                    // function and stage, whose devices wait for the message
  llvm::DenseSet<Operation *> others; // that make the value or need a reader
  for (Operation *reader : readers)
    if (int64_t time = getTime(reader); time >= 0) {
      if (time < read)
        part = getPart(reader);
      read = std::min(read, time);
      others.insert(reader);
    }
  if (read == last)
    return false;
  Operation *producer = value.getDefiningOp();
  int64_t made = producer && !isFloating(producer) ? getTime(producer) : -1;
  // What is there from the start can be sent long before it is read.
  int64_t begin = std::max((made < 0 ? read : made) - kWindow, partTimes[part].begin);
  if (made >= 0)
    others.insert(producer);
  for (int64_t time = made; time >= begin; --time)
    if (others.contains(work[time].first))
      for (Value operand : work[time].first->getOperands())
        if (Operation *op = operand.getDefiningOp())
          others.insert(op);
  int64_t end = std::min(read + kWindow, partTimes[part].end);
  for (int64_t time = read; time < end; ++time)
    if (llvm::any_of(work[time].first->getOperands(), [&](Value operand) {
          Operation *op = operand.getDefiningOp();
          return getTime(op) >= read && others.contains(op);
        }))
      others.insert(work[time].first);
  double seconds = 0;
  for (int64_t time = begin; time < end; ++time)
    seconds += others.contains(work[time].first) ? 0 : work[time].second;
  auto bytes = static_cast<double>(loom::getByteSize(value.getType()));
  return seconds >= kLeastWork * mesh.getSeconds(cluster::Collective::AllGather, bytes, axes);
}
