//===- Membership.h - one rank's place in a local job -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// All waits of the local transport use Membership::await, so that one place decides when a wait
// ends: the peer arrived, a rank failed, died or left, or the deadline passed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_MEMBERSHIP_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_MEMBERSHIP_H

#include "runtime/comm/Call.h"
#include "runtime/comm/local/SegmentMemory.h"

namespace gridloom::rt {

class Membership {
public:
  /// Joins as `rank`. Others may join later: see awaitAll.
  Membership(std::shared_ptr<Segment> segment, int rank, TransportOptions options);
  /// Leaves the job properly: peers that still wait for this rank are notified.
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

  /// Waits until `counter` reaches `target`. `getMissing` lists the ranks that have not arrived.
  /// Throws PeerFailed or DeadlineExceeded, the same failure on every rank of the job.
  template <typename GetMissing>
  void await(Counter &counter, uint32_t target, const Operation &operation,
             const GetMissing &getMissing) {
    if (!counter.spinUntil(target, patience))
      awaitSlowly(counter, target, operation, getMissing);
  }

  /// Throws if the job has failed.
  void check(const Operation &operation);
  /// Throws if the job has failed or a rank's process is gone.
  void checkAll(const Operation &operation);
  /// Fails the job if one of `ranks`, which this rank waits for, has left it.
  void checkLeft(std::span<const int> ranks, const Operation &operation);
  /// Records a failure of the job, unless there is one, and throws the recorded one.
  [[noreturn]] void fail(ErrorCode code, const std::string &text, const Operation &operation);

private:
  void awaitSlowly(Counter &counter, uint32_t target, const Operation &operation,
                   const std::function<std::vector<int>()> &getMissing);
  void openPeers();
  /// The ranks whose processes ended without leaving the job.
  std::vector<int> findDead() const;
  /// Those of `ranks` that have left properly.
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
  /// Per rank a descriptor that becomes readable when its process ends; -1 for threads of this
  /// process, goneBeforeOpen for a process that had already ended, withoutDescriptor if the system
  /// has none.
  std::vector<int> peers;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_MEMBERSHIP_H
