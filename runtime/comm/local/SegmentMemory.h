//===- SegmentMemory.h - operands peers can map ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENTMEMORY_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENTMEMORY_H

#include "runtime/comm/local/Segment.h"

namespace gridloom::rt {

/// The location of a rank's bytes for peers: a region of the segment and an offset in it.
struct SegmentPlace {
  uint64_t region = 0; // 0: none (the header is there)
  uint64_t regionBytes = 0;
  uint64_t at = 0;
  explicit operator bool() const { return region != 0; }
};

/// One rank's allocations in the segment. Thread-safe.
class SegmentMemory {
public:
  void add(const std::byte *data, size_t bytes, uint64_t region);
  void remove(const std::byte *data);
  /// The location of `bytes` bytes at `data`; none unless all of them are in one allocation.
  SegmentPlace find(const void *data, size_t bytes) const;

private:
  struct Allocation {
    size_t bytes;
    uint64_t region;
  };
  mutable std::mutex mutex;
  std::map<const std::byte *, Allocation> allocations; // by address
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENTMEMORY_H
