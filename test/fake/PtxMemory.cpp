//===- PtxMemory.cpp - shadow of memory accesses --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxMemory.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace gridloom::fake {

uint32_t takePtxBlocks(uint32_t count) {
  static std::atomic<uint32_t> next = 1;
  return next.fetch_add(count);
}

/// The last accesses to a granule of memory. For readers of one block it keeps the last one, the
/// latest clock of others in its warp, and whether other warps have read.
struct PtxShadow::Cell {
  uint32_t writeBlock = 0, readBlock = 0;
  uint32_t writeClock = 0, readClock = 0;
  uint16_t writeThread = 0, readThread = 0;
  uint32_t otherBlock = 0; // another block that has read
  uint32_t otherClock = 0;
  bool isAtomic = false;      // of the write
  bool hasOthers = false;     // in the reader's warp
  bool hasOtherWarps = false; // that have read
  uint32_t readOnlyBlock = 0; // that has read by ld.global.nc
};

/// Cells for pageBytes bytes, each of 2^shift bytes: as fine as the finest access.
struct PtxShadow::Page {
  unsigned shift = 0;
  std::unique_ptr<Cell[]> cells;
};

PtxShadow::PtxShadow(size_t bytes)
    : bytes(bytes), written((bytes + 63) / 64), pages((bytes + pageBytes - 1) / pageBytes) {}
PtxShadow::~PtxShadow() = default;

//===----------------------------------------------------------------------===//
// Written bytes
//===----------------------------------------------------------------------===//

/// Calls visit(word, mask) for the words of bits [begin, begin + count).
template <typename Visit> static bool visitBits(size_t begin, size_t count, Visit visit) {
  for (size_t end = begin + count; begin < end;) {
    size_t bit = begin % 64;
    size_t here = std::min(64 - bit, end - begin);
    uint64_t mask = (here == 64 ? ~uint64_t(0) : (uint64_t(1) << here) - 1) << bit;
    if (!visit(begin / 64, mask))
      return false;
    begin += here;
  }
  return true;
}

void PtxShadow::markWritten(size_t begin, size_t count, bool isWritten) {
  visitBits(begin, std::min(count, bytes - std::min(begin, bytes)),
            [&](size_t word, uint64_t mask) {
              written[word] = isWritten ? written[word] | mask : written[word] & ~mask;
              return true;
            });
}

bool PtxShadow::isWritten(size_t begin, size_t count) const {
  return visitBits(begin, count,
                   [&](size_t word, uint64_t mask) { return (written[word] & mask) == mask; });
}

void PtxShadow::clear() {
  std::fill(written.begin(), written.end(), 0);
  for (Page &page : pages)
    page.cells.reset();
}

void PtxShadow::copyWritten(size_t begin, const PtxShadow &from, size_t fromBegin, size_t count) {
  for (size_t i = 0; i < count;) {
    // Copy in runs of equal state: copies are of whole tensors, mostly written.
    bool isWritten = from.isWritten(fromBegin + i, 1);
    size_t run = 1;
    while (i + run < count) {
      size_t step = std::min<size_t>(64, count - i - run);
      if (!isWritten || !from.isWritten(fromBegin + i + run, step))
        step = from.isWritten(fromBegin + i + run, 1) == isWritten;
      if (step == 0)
        break;
      run += step;
    }
    markWritten(begin + i, run, isWritten);
    i += run;
  }
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

std::pair<PtxShadow::Cell *, size_t> PtxShadow::findCells(size_t begin, size_t count) {
  Page &page = pages[begin / pageBytes];
  auto wanted = static_cast<unsigned>(std::countr_zero(count));
  if (!page.cells) {
    page.shift = wanted;
    page.cells = std::make_unique<Cell[]>(pageBytes >> wanted);
  } else if (wanted < page.shift) {
    auto finer = std::make_unique<Cell[]>(pageBytes >> wanted);
    for (size_t i = 0; i < pageBytes >> wanted; ++i)
      finer[i] = page.cells[i >> (page.shift - wanted)];
    page.cells = std::move(finer);
    page.shift = wanted;
  }
  return {&page.cells[begin % pageBytes >> page.shift], count >> page.shift};
}

/// True if an access by `thread` of this block at `clock` happens before `now`.
static bool isBefore(uint32_t thread, uint32_t clock, const PtxMoment &now) {
  constexpr uint32_t warpSize = 32;
  return thread == now.thread || clock < now.blockClock ||
         (thread / warpSize == now.thread / warpSize && clock < now.warpClock);
}

const char *PtxShadow::read(size_t begin, size_t count, const PtxMoment &now) {
  auto [cell, cells] = findCells(begin, count);
  for (Cell *end = cell + cells; cell != end; ++cell) {
    if (cell->writeBlock >= now.firstBlock) {
      if (cell->writeBlock != now.block)
        return "reads what another block writes";
      if (!isBefore(cell->writeThread, cell->writeClock, now))
        return "reads what another thread writes, and no barrier orders them";
      if (now.isReadOnly)
        return "reads through the read-only cache (ld.global.nc) what it writes";
    }
    if (now.isReadOnly)
      cell->readOnlyBlock = now.block;
    if (cell->readBlock == now.block && cell->readClock >= now.blockClock) {
      if (cell->readThread == now.thread) {
        cell->readClock = now.clock;
        continue;
      }
      cell->hasOtherWarps |= cell->readThread / 32 != now.thread / 32;
      cell->otherClock =
          cell->hasOthers ? std::max(cell->otherClock, cell->readClock) : cell->readClock;
      cell->hasOthers = true;
    } else {
      if (cell->readBlock != now.block)
        cell->otherBlock = cell->readBlock;
      cell->hasOthers = cell->hasOtherWarps = false;
    }
    cell->readBlock = now.block;
    cell->readThread = static_cast<uint16_t>(now.thread);
    cell->readClock = now.clock;
  }
  return nullptr;
}

const char *PtxShadow::write(size_t begin, size_t count, const PtxMoment &now) {
  constexpr const char *unordered = "writes what another thread reads, and no barrier orders them";
  auto [cell, cells] = findCells(begin, count);
  for (Cell *end = cell + cells; cell != end; ++cell) {
    if (cell->writeBlock >= now.firstBlock && !(cell->isAtomic && now.atomic)) {
      if (cell->writeBlock != now.block)
        return "writes what another block writes";
      if (!isBefore(cell->writeThread, cell->writeClock, now))
        return "writes what another thread writes, and no barrier orders them";
    }
    if (cell->readOnlyBlock >= now.firstBlock)
      return "writes what it reads through the read-only cache (ld.global.nc)";
    if (cell->readBlock >= now.firstBlock) {
      if (cell->readBlock != now.block || cell->otherBlock >= now.firstBlock)
        return "writes what another block reads";
      if (cell->readClock >= now.blockClock) {
        if (cell->hasOtherWarps || !isBefore(cell->readThread, cell->readClock, now))
          return unordered;
        bool isSameWarp = cell->readThread / 32 == now.thread / 32;
        if (cell->hasOthers && !(isSameWarp && cell->otherClock < now.warpClock))
          return unordered;
      }
    }
    cell->writeBlock = now.block;
    cell->writeThread = static_cast<uint16_t>(now.thread);
    cell->writeClock = now.clock;
    cell->isAtomic = now.atomic;
  }
  return nullptr;
}

} // namespace gridloom::fake
