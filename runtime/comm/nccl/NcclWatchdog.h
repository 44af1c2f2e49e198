//===- NcclWatchdog.h - detect failures NCCL misses -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One rank's state around NCCL calls: the lock that keeps threads out of NCCL while communicators
// are aborted, the operations in flight, and the thread that watches them.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_NCCL_NCCLWATCHDOG_H
#define GRIDLOOM_RUNTIME_COMM_NCCL_NCCLWATCHDOG_H

#include "runtime/comm/nccl/NcclAbort.h"
#include "runtime/comm/nccl/NcclTransport.h"
#include "runtime/core/Error.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace gridloom::rt {

/// An operation in flight. The deadline counts from when the stream reaches it: time queued behind
/// a long computation does not count.
struct NcclOperation {
  std::string name;       // "all_reduce #12 (onnx node /encoder/0/MatMul)"
  uint64_t number = 0;    // of its communicator's last collective, from 1
  std::vector<int> peers; // of a transfer, which has no number
  std::unique_ptr<CudaEvent> begin, end;
  bool enqueued = false; // false: NCCL may still be connecting
  std::optional<std::chrono::steady_clock::time_point> reached;
};

/// A communicator's registration of memory; at most one field is set, none if NCCL cannot use it.
struct NcclRegistration {
  void *handle = nullptr;
  nccl::Window window = nullptr;
};

/// The watchdog's state of a communicator, guarded by its lock.
struct NcclMember {
  std::string name;
  std::string key; // on the progress board
  std::vector<int> ranks;
  nccl::Comm handle = nullptr; // null before init and after abort
  std::string call;            // a call in progress besides operations: "connecting rank 0"
  uint64_t issued = 0;         // collectives
  uint64_t setups = 0; // connections, splits and registrations; in the same order on all ranks
  std::deque<NcclOperation> pending;
  std::vector<std::unique_ptr<CudaEvent>> idleEvents;
  std::deque<NcclRegistration> registrations; // deque: NCCL may write them later
};

class NcclGraph;

/// An operation that is late because some ranks have not reached it.
struct NcclLateness {
  std::string text; // the operation, its delay and the communicator
  std::string key;  // on the progress board
  std::vector<int> ranks;
  uint64_t number = 0;         // published by ranks that have reached it; 0: not published
  std::vector<int> peers = {}; // ranks that may be the cause; empty: all
};

class NcclWatchdog final : public StreamMonitor, public std::enable_shared_from_this<NcclWatchdog> {
public:
  using Lock = std::unique_lock<std::mutex>;

  NcclWatchdog(std::shared_ptr<const NcclLibrary> library,
               std::shared_ptr<const CudaContext> context, int rank, NcclOptions options);
  ~NcclWatchdog() override;

  /// Throws the failure, if any. Does not wait for NCCL calls.
  void poll() override;
  /// Ends the thread.
  void stop();

  /// Adds `member` and connects it: `start` calls an ncclCommInit, which sets the handle. Waits
  /// until NCCL is connected.
  void connect(NcclMember &member, const std::function<nccl::Result(nccl::Comm *)> &start);
  /// Splits `parent`, which must have nothing in flight, with all its ranks: ranks of one `color`
  /// get one communicator, `made`; those of SPLIT_NOCOLOR get none.
  void split(NcclMember &parent, NcclMember &made, int color, nccl::Config &config);
  /// Registers memory from NCCL with `member`. Collective over its ranks.
  void registerMemory(NcclMember &member, const Memory &memory);
  /// Enqueues one operation of `member` on `stream`; `enqueue` makes the NCCL call. `peers`: the
  /// ranks of a transfer; empty for a collective.
  void submit(NcclMember &member, CudaStream &stream, const OpContext &op,
              const std::vector<int> &peers,
              const std::function<nccl::Result(nccl::Comm, nccl::NativeStream)> &enqueue);
  /// Closes `member`: properly if its operations are done; otherwise by an abort, which ends all
  /// communicators of this rank. Never throws.
  void close(NcclMember &member) noexcept;
  /// Fails all present and later operations on this rank, notifies the others, and makes the thread
  /// abort the communicators.
  void abort(const Error &error);

  const NcclLibrary &getLibrary() const { return *library; }
  const NcclOptions &getOptions() const { return options; }
  int getRank() const { return rank; }

private:
  friend class NcclGraph;
  void capture(NcclMember &member, CudaStream &stream, const OpContext &op,
               const std::vector<int> &peers,
               const std::function<nccl::Result(nccl::Comm, nccl::NativeStream)> &enqueue);
  bool discardGraphs(const NcclMember *member);
  void add(NcclMember &member);
  void run();
  std::optional<Error> inspectAll(Lock &lock);
  std::vector<int> findAwaited() const;
  void checkPeers(std::span<const int> awaited) const;
  void inspect(NcclMember &member);
  bool inspectFront(NcclMember &member);
  /// The operation or call in flight, or the last operation, for errors from elsewhere.
  std::string describePending() const;
  /// Called before and after a call on `stream` if NCCL does not keep the order of communicators.
  bool isOrdered(const CudaStream &stream) const;
  void keepOrder(CudaStream &stream);
  void noteOrder(CudaStream &stream);
  /// Runs `body`; fails the job if it throws. Call with the lock held.
  template <typename Body> void failJobUnless(Lock &lock, Body body);
  void checkDeadline(const NcclMember &member, const NcclOperation &operation) const;
  /// The error for `late`. Call without the lock: the board may be on another machine.
  Error explain(const NcclLateness &late) const;
  /// Publishes the next setup of `member` and returns it as a lateness without text.
  NcclLateness beginSetup(NcclMember &member);
  /// Waits until the call of `member` that returned `result` has finished. If it takes longer than
  /// `limit`, throws the error for `late`, which has the ranks that may be missing.
  void settle(Lock &lock, NcclMember &member, nccl::Result result, const std::string &what,
              std::chrono::milliseconds limit, NcclLateness late);
  bool closeOrderly(Lock &lock, NcclMember &member);
  /// Records `error` as the failure unless there is one.
  void fail(const Error &error);
  /// Aborts all communicators, after fail. Called with the lock held; releases it meanwhile. False
  /// if a capture in progress uses one of them.
  bool abortAll(Lock &lock);
  AbortLimit makeLimit() const;
  /// Calls options.abortPeers, once. Call after fail, without the lock.
  void tellPeers();
  void throwIfFailed() const;
  bool isIdle() const;
  std::unique_ptr<CudaEvent> takeEvent(NcclMember &member);

  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<const CudaContext> context;
  int rank;
  NcclOptions options;

  std::mutex mutex; // held in all NCCL calls but aborts, whose communicators are unused
  std::condition_variable wake, aborted;
  bool stopping = false, aborting = false;
  std::set<NcclMember *> members;
  std::vector<std::weak_ptr<NcclGraph>> graphs;
  std::map<std::string, int> generations; // number of communicators so far, by name
  std::string lastDone; // the last finished operation, for errors between operations
  // The last call, if calls are ordered by events.
  std::unique_ptr<CudaEvent> orderEvent;
  const CudaStream *orderStream = nullptr;
  const CudaCapture *orderCapture = nullptr;

  mutable std::mutex failureMutex; // not held during calls, so that no call hides a failure
  std::optional<Error> failure;    // set once
  bool told = false;
  std::atomic<bool> failed = false; // whether `failure` is set
  std::thread thread;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLWATCHDOG_H
