//===- LocalTransport.cpp - ranks of one machine --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/LocalTransport.h"

#include "runtime/comm/local/LocalBoard.h"
#include "runtime/comm/local/LocalCommunicator.h"
#include "runtime/comm/local/Rendezvous.h"

#include <algorithm>

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
