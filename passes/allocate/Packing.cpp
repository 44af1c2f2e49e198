//===- Packing.cpp - offsets for blocks of memory -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Packing.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace llvm;

namespace gridloom {

/// The start of the smallest gap between `taken` ranges that holds `bytes`; their end if none does.
static int64_t findGap(SmallVector<std::pair<int64_t, int64_t>> &taken, int64_t bytes) {
  llvm::sort(taken);
  int64_t best = -1, bestSize = std::numeric_limits<int64_t>::max(), end = 0;
  for (auto [from, to] : taken) {
    if (from - end >= bytes && from - end < bestSize) {
      best = end;
      bestSize = from - end;
    }
    end = std::max(end, to);
  }
  return best >= 0 ? best : end;
}

Packing packBlocks(ArrayRef<MemoryBlock> blocks) {
  auto order = llvm::to_vector(llvm::seq<unsigned>(0, blocks.size()));
  llvm::stable_sort(order,
                    [&](unsigned a, unsigned b) { return blocks[a].bytes > blocks[b].bytes; });
  Packing packing;
  packing.offsets.assign(blocks.size(), -1);
  for (unsigned index : order) {
    int64_t bytes = llvm::alignTo(blocks[index].bytes, kBufferAlignment);
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (unsigned other : blocks[index].conflicts)
      if (int64_t from = packing.offsets[other]; from >= 0)
        taken.push_back({from, from + static_cast<int64_t>(
                                          llvm::alignTo(blocks[other].bytes, kBufferAlignment))});
    packing.offsets[index] = findGap(taken, bytes);
    packing.bytes = std::max(packing.bytes, packing.offsets[index] + bytes);
  }
  return packing;
}

} // namespace gridloom
