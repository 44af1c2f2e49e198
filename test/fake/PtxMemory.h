//===- PtxMemory.h - shadow of memory accesses ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Beside memory that kernels use lies a shadow. It knows which bytes were ever written, and of the
// running launch who touched each byte last. Two threads of a block are in order when a barrier of
// the block, or of their warp, lies between; threads of different blocks never are. So a race is
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

/// The moment of an access. Clocks count the barriers of a block, of all its warps together.
struct PtxMoment {
  uint32_t block = 0;      // number of the running block, counted over all launches
  uint32_t firstBlock = 0; // of the launch; of shared memory `block` itself
  uint32_t thread = 0;     // in the block
  uint32_t clock = 0;      // now
  uint32_t blockClock = 0; // at the last barrier of the block
  uint32_t warpClock = 0;  // at the last barrier of the thread's warp
  bool atomic = false;     // the access is a read-modify-write that others cannot divide
  bool isReadOnly = false; // ld.global.nc
};

/// The numbers of `count` blocks that nobody else has.
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
  /// Takes over what `from` knows of `count` bytes from `fromBegin` on.
  void copyWritten(size_t begin, const PtxShadow &from, size_t fromBegin, size_t count);

  /// Notes an access of `count` bytes, a power of two up to 32, at a multiple of it. Returns what
  /// is wrong with it, else null.
  const char *read(size_t begin, size_t count, const PtxMoment &now);
  const char *write(size_t begin, size_t count, const PtxMoment &now);

  /// Forgets all that was written and touched.
  void clear();

private:
  struct Cell;
  struct Page;
  static constexpr size_t pageBytes = 1024;

  /// The cells of an access: from the first on, one per granule.
  std::pair<Cell *, size_t> findCells(size_t begin, size_t count);

  size_t bytes;
  std::vector<uint64_t> written; // a bit per byte
  std::vector<Page> pages;
};

/// Where a kernel's pointers may lead, and what it touched there.
struct PtxBuffer {
  std::byte *base = nullptr;                  // the pointer
  std::byte *begin = nullptr, *end = nullptr; // the memory it points into
  PtxShadow *shadow = nullptr;                // of all of it
  std::byte *readBegin = nullptr, *readEnd = nullptr;
  std::byte *writeBegin = nullptr, *writeEnd = nullptr;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXMEMORY_H
