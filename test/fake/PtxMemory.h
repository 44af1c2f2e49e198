//===- PtxMemory.h - shadow of memory accesses ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Memory that kernels use has a shadow. It records which bytes were ever written, and the last
// accesses to each byte in the running launch. Two threads of a block are ordered if a barrier of
// the block, or of their warp, is between them; threads of different blocks never are. So a race is
// found on every run, whatever the schedule.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXMEMORY_H
#define GRIDLOOM_TEST_FAKE_PTXMEMORY_H

#include "test/fake/FakeCuda.h"

#include <array>
#include <memory>
#include <vector>

namespace gridloom::fake {

/// The time of an access. Clocks count a block's barriers, including those of its warps.
struct PtxMoment {
  uint32_t block = 0;      // number of the running block, counted over all launches
  uint32_t firstBlock = 0; // of the launch; for shared memory `block` itself
  uint32_t thread = 0;     // in the block
  uint32_t clock = 0;      // current
  uint32_t blockClock = 0; // at the last barrier of the block
  uint32_t warpClock = 0;  // at the last barrier of the thread's warp
  bool atomic = false;     // an atomic read-modify-write
  bool isReadOnly = false; // ld.global.nc
};

/// Reserves `count` block numbers that are not used elsewhere; returns the first.
uint32_t takePtxBlocks(uint32_t count);

class PtxShadow {
public:
  explicit PtxShadow(size_t bytes);
  ~PtxShadow();
  PtxShadow(const PtxShadow &) = delete;
  PtxShadow &operator=(const PtxShadow &) = delete;

  size_t getBytes() const { return bytes; }

  void markWritten(size_t begin, size_t count, bool isWritten = true);
  bool isWritten(size_t begin, size_t count) const;
  /// Copies the written state of `count` bytes of `from`, starting at `fromBegin`.
  void copyWritten(size_t begin, const PtxShadow &from, size_t fromBegin, size_t count);

  /// Records an access of `count` bytes, a power of two up to 32, aligned to its size. Returns the
  /// error, or null.
  const char *read(size_t begin, size_t count, const PtxMoment &now);
  const char *write(size_t begin, size_t count, const PtxMoment &now);

  /// Forgets all accesses.
  void clear();

private:
  struct Cell;
  struct Page;
  static constexpr size_t pageBytes = 1024;

  /// The cells of an access: the first one, and their number.
  std::pair<Cell *, size_t> findCells(size_t begin, size_t count);

  size_t bytes;
  std::vector<uint64_t> written; // one bit per byte
  std::vector<Page> pages;
};

/// Memory that a kernel's pointer may access, and the ranges that it accessed.
struct PtxBuffer {
  std::byte *base = nullptr;                  // the pointer
  std::byte *begin = nullptr, *end = nullptr; // the memory it points into
  PtxShadow *shadow = nullptr;                // of all that memory
  std::byte *readBegin = nullptr, *readEnd = nullptr;
  std::byte *writeBegin = nullptr, *writeEnd = nullptr;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXMEMORY_H
