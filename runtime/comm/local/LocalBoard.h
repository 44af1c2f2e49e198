//===- LocalBoard.h - progress in shared memory -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALBOARD_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALBOARD_H

#include "runtime/comm/local/Membership.h"

namespace gridloom::rt {

/// A table in the job's segment: each rank's progress on each of its communicators.
class LocalBoard final : public ProgressBoard {
public:
  /// The `generation`-th board of this rank; all ranks create equally many.
  LocalBoard(std::shared_ptr<Membership> membership, uint32_t generation);
  ~LocalBoard() override;
  void publish(int rank, const std::string &communicator, uint64_t count) override;
  std::optional<uint64_t> read(int rank, const std::string &communicator) override;

private:
  struct Entry {
    std::atomic<uint64_t> name; // hash; 0: free
    std::atomic<uint64_t> count;
  };
  /// The entry of a rank's communicator, or a free one for it; null if the table is full.
  Entry *find(int rank, uint64_t name);

  std::shared_ptr<Membership> membership;
  RegionKey key;
  std::shared_ptr<Mapping> region;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALBOARD_H
