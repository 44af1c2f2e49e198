//===- LocalBoard.cpp - progress in shared memory -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/LocalBoard.h"

using namespace gridloom::rt;

static constexpr size_t entriesPerRank = 64;

LocalBoard::LocalBoard(std::shared_ptr<Membership> ofJob, uint32_t generation)
    : membership(std::move(ofJob)) {
  // No communicator has no members.
  key.epoch = membership->getEpoch();
  key.generation = generation;
  Segment &segment = membership->getSegment();
  size_t bytes = size_t(membership->getSize()) * entriesPerRank * sizeof(Entry);
  uint64_t offset =
      segment.acquireRegion(key, membership->getSize(), bytes, membership->getOptions().deadline);
  region = segment.map(offset, bytes);
}

LocalBoard::~LocalBoard() {
  region.reset();
  membership->getSegment().releaseRegion(key);
}

LocalBoard::Entry *LocalBoard::find(int rank, const std::string &communicator, bool make) {
  uint64_t name = std::hash<std::string>()(communicator) | 1;
  Entry *entries = reinterpret_cast<Entry *>(region->getData()) + size_t(rank) * entriesPerRank;
  for (size_t i = 0; i < entriesPerRank; ++i) {
    Entry &entry = entries[(name + i) % entriesPerRank];
    uint64_t known = entry.name.load(std::memory_order_acquire);
    // Only the rank's own process writes its part.
    if (known == 0 && make)
      entry.name.store(name, std::memory_order_release);
    if (known == name || (known == 0 && make))
      return &entry;
    if (known == 0)
      return nullptr;
  }
  return nullptr;
}

void LocalBoard::publish(int rank, const std::string &communicator, uint64_t count) {
  if (Entry *entry = find(rank, communicator, /*make=*/true))
    entry->count.store(count, std::memory_order_release);
}

uint64_t LocalBoard::read(int rank, const std::string &communicator) {
  Entry *entry = find(rank, communicator, /*make=*/false);
  return entry ? entry->count.load(std::memory_order_acquire) : 0;
}
