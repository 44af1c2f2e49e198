//===- Interference.h - buffers that may share memory -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H
#define GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H

#include "passes/schedule/ProgramTimeline.h"

namespace gridloom {

/// Iterations of a repeat in which all orders between uses of two buffers show.
inline constexpr int64_t kInterferenceIterations = 4;

/// True when `step` launches a kernel that may write its output `to` over input `from`, and reads
/// nothing else of `from`.
bool canWriteOver(mlir::Operation *step, mlir::Value from, mlir::Value to,
                  mlir::SymbolTableCollection &symbols);

/// True when all accesses `from` are over before the first of `to` begins. With `inPlace`, a step
/// that reads `fromBuffer` for the last time may be the one that writes `toBuffer` over it, if its
/// kernel, which is looked up in `symbols`, may.
bool isOverBefore(const ProgramTimeline &timeline, llvm::ArrayRef<ProgramTimeline::Access> from,
                  llvm::ArrayRef<ProgramTimeline::Access> to, mlir::Value fromBuffer,
                  mlir::Value toBuffer, bool inPlace, mlir::SymbolTableCollection &symbols);

/// True when two root buffers of one slot may share memory in all iterations: wholly or partly, or,
/// with `inPlace`, only as exactly the same bytes.
bool canShareMemory(const ProgramTimeline &timeline, mlir::Value a, mlir::Value b, bool inPlace,
                    mlir::SymbolTableCollection &symbols);

/// When buffers are in use, which tells of most that they never are at once without comparing each
/// use of one with each of the other.
class UseTimes {
public:
  /// Numbers of runs. Where those of two buffers do not overlap, all that uses one is done before
  /// anything uses the other.
  struct Stretch {
    unsigned begin = 0, end = 0;
  };

  UseTimes(plan::ProgramOp program, const ProgramTimeline &timeline);
  /// That of a buffer; all of the program for what is used in several iterations, or not at all.
  Stretch get(mlir::Value root) const;
  Stretch getAll() const;

private:
  const ProgramTimeline &timeline;
  bool hasLoops = false;
  /// By run, and one more at the end: how many runs of each stream are done whenever it or a later
  /// one starts.
  std::vector<llvm::SmallVector<unsigned, 4>> least;
};

/// Calls `visit` for every two stretches that overlap, by their indices, the lower first.
void forEachOverlap(llvm::ArrayRef<UseTimes::Stretch> stretches,
                    llvm::function_ref<void(unsigned, unsigned)> visit);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H
