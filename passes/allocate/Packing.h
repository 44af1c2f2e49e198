//===- Packing.h - offsets for blocks of memory -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_PACKING_H
#define GRIDLOOM_PASSES_ALLOCATE_PACKING_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace gridloom {

/// Alignment of buffers' offsets and sizes, in bytes.
inline constexpr int64_t kBufferAlignment = 64;

struct MemoryBlock {
  int64_t bytes;
  /// Blocks, by index, that must not overlap with this one; symmetric.
  llvm::SmallVector<unsigned> conflicts;
};

struct Packing {
  llvm::SmallVector<int64_t> offsets; // one per block, aligned
  int64_t bytes = 0;                  // of all blocks together
};

/// Places blocks, the largest first, each in the smallest sufficient gap between its conflicts.
Packing packBlocks(llvm::ArrayRef<MemoryBlock> blocks);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_PACKING_H
