//===- LocalTransport.cpp - ranks of one machine --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/LocalTransport.h"

#include "runtime/comm/local/LocalBoard.h"
#include "runtime/comm/local/LocalCommunicator.h"
#include "runtime/comm/local/Rendezvous.h"
#include "runtime/device/Device.h"

#include <algorithm>
#include <unistd.h>

using namespace gridloom::rt;

std::unique_ptr<Communicator> LocalTransport::createCommunicator(std::span<const int> ranks,
                                                                 const std::string &name) {
  std::vector<int> members(ranks.begin(), ranks.end());
  checkGroup(ranks, getRank(), getSize(), name);
  int index = int(std::find(members.begin(), members.end(), getRank()) - members.begin());
  uint32_t generation = generations[members]++;
  return std::make_unique<LocalCommunicator>(membership, std::move(members), index, generation,
                                             name);
}

namespace {
/// Memory of one rank in the segment. It has no name, so it is freed with the last process that
/// maps it.
struct LocalMemory final : Memory {
  LocalMemory(std::shared_ptr<Membership> ofJob, uint32_t number, size_t size)
      : membership(std::move(ofJob)) {
    key.owner = uint32_t(membership->getRank()) + 1;
    key.epoch = membership->getEpoch();
    key.generation = number;
    Segment &segment = membership->getSegment();
    uint64_t offset =
        segment.acquireRegion(key, /*members=*/1, size, membership->getOptions().deadline);
    try {
      segment.reserve(offset, size);
      mapping = segment.map(offset, size);
    } catch (...) {
      segment.releaseRegion(key);
      throw;
    }
    mapping->populate();
    data = mapping->getData();
    bytes = size;
    membership->getSegmentMemory().add(mapping->getData(), size, offset);
  }
  ~LocalMemory() override {
    membership->getSegmentMemory().remove(mapping->getData());
    mapping.reset();
    membership->getSegment().releaseRegion(key);
  }

  std::shared_ptr<Membership> membership;
  RegionKey key;
  std::shared_ptr<Mapping> mapping;
};
} // namespace

/// Refuses impossible requests at once: they would take all memory, page by page, before they fail.
static void requirePhysicalMemory(size_t bytes) {
  uint64_t total = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  if (bytes > total)
    throw Error(ErrorCode::OutOfMemory, "what a rank exchanges takes " + std::to_string(bytes) +
                                            " bytes of shared memory, and this machine has " +
                                            std::to_string(total) +
                                            "; cut the model among more machines");
}

/// Smaller operands are never read in place.
static constexpr size_t leastSharedBytes = 4096;

std::unique_ptr<Memory> LocalTransport::allocate(Device &device, size_t bytes) {
  if (!device.hasHostMemory() || getSize() == 1 || bytes < leastSharedBytes)
    return device.allocate(bytes);
  requirePhysicalMemory(bytes);
  return std::make_unique<LocalMemory>(membership, allocations++, bytes);
}

void LocalTransport::abort(const std::string &reason) {
  membership->getSegment().fail(ErrorCode::PeerFailed, getRank(),
                                "rank " + std::to_string(getRank()) + " gave up: " + reason);
}

void LocalTransport::check() { membership->checkAll({"communication", {}, "", ""}); }

void LocalTransport::checkAwaited(std::span<const int> ranks) {
  membership->checkAll({"communication", {}, "", ""});
  membership->checkLeft(ranks, {"communication", {}, "", ""});
}

std::optional<int> LocalTransport::getFailedRank() {
  std::optional<Failure> failure = membership->getSegment().getFailure();
  return failure ? std::optional(failure->rank) : std::nullopt;
}

std::shared_ptr<ProgressBoard> LocalTransport::getProgressBoard() {
  return std::make_shared<LocalBoard>(membership, generations[{}]++);
}

std::vector<std::unique_ptr<Transport>>
gridloom::rt::createInProcessTransports(int n, const TransportOptions &options, size_t chunkBytes) {
  std::shared_ptr<Segment> segment = Segment::create(n, chunkBytes);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < n; ++rank)
    transports.push_back(
        std::make_unique<LocalTransport>(std::make_shared<Membership>(segment, rank, options)));
  return transports;
}

std::unique_ptr<Transport> gridloom::rt::createLocalTransport(std::shared_ptr<Segment> segment,
                                                              int rank,
                                                              const TransportOptions &options) {
  auto membership = std::make_shared<Membership>(std::move(segment), rank, options);
  membership->awaitAll();
  return std::make_unique<LocalTransport>(std::move(membership));
}

std::unique_ptr<Transport> gridloom::rt::joinLocalTransport(const std::string &job, int rank,
                                                            int size,
                                                            const TransportOptions &options) {
  return createLocalTransport(meetAtSocket(job, rank, size, options), rank, options);
}
