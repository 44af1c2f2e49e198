//===- SegmentMemory.cpp - operands peers can map --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/SegmentMemory.h"

using namespace gridloom::rt;

void SegmentMemory::add(const std::byte *data, size_t bytes, uint64_t region) {
  std::lock_guard guard(mutex);
  allocations[data] = {bytes, region};
}

void SegmentMemory::remove(const std::byte *data) {
  std::lock_guard guard(mutex);
  allocations.erase(data);
}

SegmentPlace SegmentMemory::find(const void *data, size_t bytes) const {
  const auto *begin = static_cast<const std::byte *>(data);
  std::lock_guard guard(mutex);
  auto after = allocations.upper_bound(begin);
  if (after == allocations.begin())
    return {};
  const auto &[base, allocation] = *std::prev(after);
  uint64_t at = uint64_t(begin - base);
  if (at > allocation.bytes || bytes > allocation.bytes - at)
    return {};
  return {allocation.region, allocation.bytes, at};
}
