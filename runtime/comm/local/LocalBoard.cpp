//===- LocalBoard.cpp - progress in shared memory -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/LocalBoard.h"

using namespace gridloom::rt;

static constexpr size_t entriesPerRank = 256;

LocalBoard::LocalBoard(std::shared_ptr<Membership> ofJob, uint32_t generation)
    : membership(std::move(ofJob)) {
  // The key has no members, unlike those of communicators.
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

static uint64_t hash(const std::string &communicator) {
  return std::hash<std::string>()(communicator) | 1;
}

LocalBoard::Entry *LocalBoard::find(int rank, uint64_t name) {
  Entry *entries = reinterpret_cast<Entry *>(region->getData()) + size_t(rank) * entriesPerRank;
  for (size_t i = 0; i < entriesPerRank; ++i) {
    Entry &entry = entries[(name + i) % entriesPerRank];
    uint64_t known = entry.name.load(std::memory_order_acquire);
    if (known == 0 || known == name)
      return &entry;
  }
  return nullptr;
}

void LocalBoard::publish(int rank, const std::string &communicator, uint64_t count) {
  uint64_t name = hash(communicator);
  Entry *entry = find(rank, name);
  if (!entry)
    return;
  // Only the rank's own process writes its entries. A name whose count is not yet written reads as
  // 0.
  entry->name.store(name, std::memory_order_release);
  entry->count.store(count, std::memory_order_release);
}

std::optional<uint64_t> LocalBoard::read(int rank, const std::string &communicator) {
  Entry *entry = find(rank, hash(communicator));
  if (!entry)
    return std::nullopt;
  if (entry->name.load(std::memory_order_acquire) != hash(communicator))
    return 0;
  return entry->count.load(std::memory_order_acquire);
}
