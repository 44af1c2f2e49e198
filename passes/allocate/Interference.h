//===- Interference.h - buffers that may share memory -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H
#define GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H

#include "passes/schedule/ProgramTimeline.h"

namespace gridloom {

/// Iterations of a repeat that show all orders between uses of two buffers.
inline constexpr int64_t kInterferenceIterations = 4;

/// True if `step` launches a kernel that may write its output `to` over input `from`, and reads
/// nothing else of `from`.
bool canWriteOver(mlir::Operation *step, mlir::Value from, mlir::Value to,
                  mlir::SymbolTableCollection &symbols);

/// True if all accesses `from` are done before the first of `to` starts. With `inPlace`, a step may
/// also read `fromBuffer` for the last time and write `toBuffer` over it, if its kernel, looked up
/// in `symbols`, allows that.
bool isOverBefore(const ProgramTimeline &timeline, llvm::ArrayRef<ProgramTimeline::Access> from,
                  llvm::ArrayRef<ProgramTimeline::Access> to, mlir::Value fromBuffer,
                  mlir::Value toBuffer, bool inPlace, mlir::SymbolTableCollection &symbols);

/// True if two root buffers of one slot may share memory in all iterations; with `inPlace`, only as
/// exactly the same bytes.
bool canShareMemory(const ProgramTimeline &timeline, mlir::Value a, mlir::Value b, bool inPlace,
                    mlir::SymbolTableCollection &symbols);

/// When buffers are in use. Shows of most pairs that they are never in use at once, without
/// comparing every use of one with every use of the other.
class UseTimes {
public:
  /// A range of numbers of runs. If the ranges of two buffers do not overlap, all uses of one are
  /// done before any use of the other.
  struct Stretch {
    unsigned begin = 0, end = 0;
  };

  UseTimes(plan::ProgramOp program, const ProgramTimeline &timeline);
  /// The range of a buffer; the whole program if it is used in several iterations or not at all.
  Stretch get(mlir::Value root) const;
  Stretch getAll() const;

private:
  const ProgramTimeline &timeline;
  bool hasLoops = false;
  /// By run, and one more at the end: how many runs of each stream are done at least when it or a
  /// later one starts.
  std::vector<llvm::SmallVector<unsigned, 4>> least;
};

/// Calls `visit` with the indices of every two stretches that overlap, the lower first.
void forEachOverlap(llvm::ArrayRef<UseTimes::Stretch> stretches,
                    llvm::function_ref<void(unsigned, unsigned)> visit);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H
