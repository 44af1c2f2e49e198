//===- SegmentMemory.h - operands that peers reach ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENTMEMORY_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENTMEMORY_H

#include "runtime/comm/local/Segment.h"

namespace gridloom::rt {

/// Where peers find bytes of a rank: a region of the segment, and how far into it.
struct SegmentPlace {
  uint64_t region = 0; // 0, where the segment's header lies: nowhere
  uint64_t regionBytes = 0;
  uint64_t at = 0;
  explicit operator bool() const { return region != 0; }
};

/// The memory that one rank has allocated in the segment. Calls come from several threads.
class SegmentMemory {
public:
  void add(const std::byte *data, size_t bytes, uint64_t region);
  void remove(const std::byte *data);
  /// The place of `bytes` bytes at `data`; nowhere unless all of them lie in one allocation.
  SegmentPlace find(const void *data, size_t bytes) const;

private:
  struct Allocation {
    size_t bytes;
    uint64_t region;
  };
  mutable std::mutex mutex;
  std::map<const std::byte *, Allocation> allocations; // by their begin
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENTMEMORY_H
