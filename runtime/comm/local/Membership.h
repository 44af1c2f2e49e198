//===- Membership.h - one rank's place in a local job -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// All waiting of the local transport goes through Membership::await, so that one place decides when
// waiting ends: the peer came, somebody failed, a peer died or left, or the deadline passed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_MEMBERSHIP_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_MEMBERSHIP_H

#include "runtime/comm/Call.h"
#include "runtime/comm/local/SegmentMemory.h"

namespace gridloom::rt {

class Membership {
public:
  /// Joins as `rank`. The others may join later: see awaitAll.
  Membership(std::shared_ptr<Segment> segment, int rank, TransportOptions options);
  /// Leaves in order: peers that still wait for this rank are notified.
  ~Membership();
  Membership(const Membership &) = delete;
  Membership &operator=(const Membership &) = delete;

  Segment &getSegment() const { return *segment; }
  SegmentMemory &getSegmentMemory() { return segmentMemory; }
  int getRank() const { return rank; }
  int getSize() const { return segment->getRanks(); }
  uint32_t getEpoch() const { return epoch; }
  const TransportOptions &getOptions() const { return options; }

  /// Waits until every rank of the job has joined.
  void awaitAll();

  /// Waits until `counter` reaches `target`. `getMissing` lists the ranks that are waited for.
  /// Throws PeerFailed or DeadlineExceeded, the same failure on every rank of the job.
  template <typename GetMissing>
  void await(Counter &counter, uint32_t target, const Operation &operation,
             const GetMissing &getMissing) {
    if (!counter.spinUntil(target, patience))
      awaitSlowly(counter, target, operation, getMissing);
  }

  /// Throws when the job has failed.
  void check(const Operation &operation);
  /// Also when a rank's process is gone.
  void checkAll(const Operation &operation);
  /// Fails the job when one of `ranks` has left it: for a rank that waits for them.
  void checkLeft(std::span<const int> ranks, const Operation &operation);
  /// Records a failure of the whole job and throws it, or the one that stands.
  [[noreturn]] void fail(ErrorCode code, const std::string &text, const Operation &operation);

private:
  void awaitSlowly(Counter &counter, uint32_t target, const Operation &operation,
                   const std::function<std::vector<int>()> &getMissing);
  void openPeers();
  /// The ranks whose processes are gone without having left.
  std::vector<int> findDead() const;
  /// Those of `ranks` that have left in order.
  std::vector<int> findLeft(std::span<const int> ranks) const;
  [[noreturn]] void failOfLeft(const std::vector<int> &left, const Operation &operation);
  [[noreturn]] void failOf(const std::vector<int> &dead, const Operation &operation);

  std::shared_ptr<Segment> segment;
  SegmentMemory segmentMemory;
  const int rank;
  const TransportOptions options;
  const Patience patience;
  bool isJoining = true;
  uint32_t epoch = 0;
  /// A descriptor per rank that becomes readable when its process ends; -1 for threads of this
  /// process; goneBeforeOpen for a process that ended before we looked, withoutDescriptor where the
  /// system gave none.
  std::vector<int> peers;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_MEMBERSHIP_H
