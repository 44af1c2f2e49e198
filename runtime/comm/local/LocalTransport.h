//===- LocalTransport.h - ranks of one machine ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Connects ranks of one machine through shared memory: processes or threads, with the same code.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALTRANSPORT_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALTRANSPORT_H

#include "runtime/comm/local/Membership.h"

#include <map>

namespace gridloom::rt {

class LocalTransport final : public Transport {
public:
  explicit LocalTransport(std::shared_ptr<Membership> membership)
      : membership(std::move(membership)) {}
  std::string getName() const override { return "local"; }
  int getRank() const override { return membership->getRank(); }
  int getSize() const override { return membership->getSize(); }
  std::unique_ptr<Communicator> createCommunicator(std::span<const int> ranks,
                                                   const std::string &name) override;
  std::unique_ptr<Memory> allocate(Device &device, size_t bytes) override;
  /// Always capturable: calls are host work of the stream, which can be repeated.
  std::string whyNotCapturable() const override { return ""; }
  void abort(const std::string &reason) override;
  void check() override;
  void checkAwaited(std::span<const int> ranks) override;
  std::optional<int> getFailedRank() override;
  std::shared_ptr<ProgressBoard> getProgressBoard() override;

private:
  std::shared_ptr<Membership> membership;
  std::map<std::vector<int>, uint32_t> generations;
  uint32_t allocations = 0;
};

/// `n` transports for `n` threads of this process; transport i is rank i's. One thread at a time
/// may use a transport; its communicators may be used by any thread.
std::vector<std::unique_ptr<Transport>>
createInProcessTransports(int n, const TransportOptions &options = {},
                          size_t chunkBytes = defaultChunkBytes);

/// Joins `segment` as `rank` and returns when all ranks have joined. Throws DeadlineExceeded naming
/// the missing ranks.
std::unique_ptr<Transport> createLocalTransport(std::shared_ptr<Segment> segment, int rank,
                                                const TransportOptions &options = {});

/// Joins the job `job` of separately started processes on one machine. The ranks meet at an
/// abstract socket, where rank 0 passes on the segment's descriptor; no files remain. Only
/// processes of the same user are accepted.
std::unique_ptr<Transport> joinLocalTransport(const std::string &job, int rank, int size,
                                              const TransportOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALTRANSPORT_H
