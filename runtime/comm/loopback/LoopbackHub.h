//===- LoopbackHub.h - meeting point of ranks of one GPU --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Ranks are threads of this process. Whoever comes last to a meeting does the work of all: the
// others' streams are idle hands until then, so the work is enqueued in one order by one thread.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOOPBACK_LOOPBACKHUB_H
#define GRIDLOOM_RUNTIME_COMM_LOOPBACK_LOOPBACKHUB_H

#include "runtime/comm/Call.h"
#include "runtime/core/Error.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <condition_variable>
#include <map>
#include <mutex>

namespace gridloom::rt {

/// One member's part in an operation.
struct LoopbackCall {
  CallTerms terms;
  int rank = 0; // in the job
  const void *in = nullptr;
  void *out = nullptr;
  CudaStream *stream = nullptr;
  CudaDevice *device = nullptr;
  Operation operation = {};
  std::span<const GatheredValue> values = {}; ///< of an all_gather of several
};

/// Does what `calls`, one per member in their order, ask for.
using LoopbackWork = std::function<void(std::span<LoopbackCall *const> calls)>;

class LoopbackHub {
public:
  explicit LoopbackHub(int size);

  int getSize() const { return int(joined.size()); }

  /// Rank `rank` takes part, perhaps again: sessions may follow one another in a job.
  void join(int rank);

  /// A place where members meet once; each stays in it from `post` to `await`.
  struct Meeting;
  /// Says that `call`, which outlives `await`, is member `slot` of the meeting `name` between
  /// `ranks`. The last to come does `work`.
  std::shared_ptr<Meeting> post(const std::string &name, std::span<const int> ranks, size_t slot,
                                LoopbackCall &call, const LoopbackWork &work);
  /// Returns when the work of a meeting has been enqueued. Throws what the job failed of: a rank's
  /// abort, one that left, members that disagree, or DeadlineExceeded naming who is missing.
  void await(Meeting &meeting, const LoopbackCall &call, const TransportOptions &limits);

  /// Throws when the job has failed.
  void check(int rank, const Operation &operation);
  /// Records a failure of the whole job, unless one stands.
  void abort(ErrorCode code, const std::string &text);
  /// Rank `rank` takes part in nothing any more until it joins again.
  void leave(int rank);

  /// The kernel that reduces `inputs` arrays, loaded once for all ranks.
  Kernel &getReduction(CudaDevice &device, DataType type, Reduction reduction, int inputs);

private:
  using Lock = std::unique_lock<std::mutex>;
  void perform(Lock &lock, Meeting &meeting, const LoopbackWork &work);
  void failLocked(ErrorCode code, const std::string &text);
  void checkLocked(int rank, const Operation &operation) const;
  std::vector<int> findMissing(const Meeting &meeting) const;
  /// Whether `other` has left the session that `rank` is in; a later one it may not have joined.
  bool hasLeft(int other, int rank) const;

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Meeting>> meetings;
  std::vector<int> joined, left; // how often each rank did
  std::optional<Error> failure;
  /// One thread enqueues at a time, whoever's streams it uses.
  std::mutex enqueuing;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOOPBACK_LOOPBACKHUB_H
