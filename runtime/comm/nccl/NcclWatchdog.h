//===- NcclWatchdog.h - notice failures that NCCL misses --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Everything of one rank that NCCL calls go through: the lock that keeps threads out of NCCL while
// communicators are aborted, the operations in flight, and the thread that watches them.
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

/// An operation in flight. The deadline runs from when the stream reaches it: time spent behind a
/// long computation does not count.
struct NcclOperation {
  std::string name;       // "all_reduce #12 (onnx node /encoder/0/MatMul)"
  uint64_t number = 0;    // of the last collective so far, from 1, on its communicator
  std::vector<int> peers; // of a transfer, whose ends count for themselves
  std::unique_ptr<CudaEvent> begin, end;
  bool enqueued = false; // NCCL may still be connecting before it is
  std::optional<std::chrono::steady_clock::time_point> reached;
};

/// Memory that a communicator knows; one of the two is set, or none where NCCL has no use for it.
struct NcclRegistration {
  void *handle = nullptr;
  nccl::Window window = nullptr;
};

/// A communicator as the watchdog sees it. Guarded by the watchdog's lock.
struct NcclMember {
  std::string name;
  std::string key; // what the progress board calls it
  std::vector<int> ranks;
  nccl::Comm handle = nullptr; // null before init and after abort
  std::string call;            // what NCCL is busy with besides operations: "connecting rank 0"
  uint64_t issued = 0;         // collectives
  uint64_t setups = 0; // connections, splits and registrations, which all ranks make in one order
  std::deque<NcclOperation> pending;
  std::vector<std::unique_ptr<CudaEvent>> idleEvents;
  std::deque<NcclRegistration> registrations; // NCCL may write them late: they stay in place
};

class NcclGraph;

/// An operation that some of its ranks have not reached.
struct NcclLateness {
  std::string text; // what is late, by how much, and on which communicator
  std::string key;  // of the progress board
  std::vector<int> ranks;
  uint64_t number = 0; // what each rank has published once it has come; 0: they publish nothing
  std::vector<int> peers = {}; // the ranks that can be the cause; empty: all
};

class NcclWatchdog final : public StreamMonitor, public std::enable_shared_from_this<NcclWatchdog> {
public:
  using Lock = std::unique_lock<std::mutex>;

  NcclWatchdog(std::shared_ptr<const NcclLibrary> library,
               std::shared_ptr<const CudaContext> context, int rank, NcclOptions options);
  ~NcclWatchdog() override;

  /// Throws the failure, if there was one. Waits for no call of NCCL.
  void poll() override;
  /// Ends the thread.
  void stop();

  /// Makes `member` known and connects it: `start` calls an ncclCommInit, which sets the handle.
  /// Waits until NCCL is connected.
  void connect(NcclMember &member, const std::function<nccl::Result(nccl::Comm *)> &start);
  /// Splits `parent`, which has nothing in flight, with all its ranks: those of one `color` get one
  /// communicator, `made`; those of SPLIT_NOCOLOR get none.
  void split(NcclMember &parent, NcclMember &made, int color, nccl::Config &config);
  /// Has `member` know memory of NCCL's. Collective over its ranks.
  void registerMemory(NcclMember &member, const Memory &memory);
  /// Enqueues one operation of `member` on `stream`; `enqueue` makes the NCCL call. `peers`: the
  /// ranks of a transfer; none for a collective.
  void submit(NcclMember &member, CudaStream &stream, const OpContext &op,
              const std::vector<int> &peers,
              const std::function<nccl::Result(nccl::Comm, nccl::NativeStream)> &enqueue);
  /// Gives `member` up: orderly when its operations are done; otherwise by abort, which ends all
  /// communicators of this rank. Never throws.
  void close(NcclMember &member) noexcept;
  /// Fails everything in flight and to come on this rank, notifies the others, and has the thread
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
  /// The operation or call that is in flight, or the operation that was last, for an error that
  /// came from elsewhere.
  std::string describePending() const;
  /// Before and after a call on `stream`, where NCCL does not keep the order of communicators.
  bool isOrdered(const CudaStream &stream) const;
  void keepOrder(CudaStream &stream);
  void noteOrder(CudaStream &stream);
  /// Has `body` fail the job when it throws. With the lock held.
  template <typename Body> void failJobUnless(Lock &lock, Body body);
  void checkDeadline(const NcclMember &member, const NcclOperation &operation) const;
  /// The error of `late`. Without the lock: the board may be on another machine.
  Error explain(const NcclLateness &late) const;
  /// The next setup of `member` as a lateness without text, published.
  NcclLateness beginSetup(NcclMember &member);
  /// Waits until `member` is no longer busy with what returned `result`. `late` says who may be
  /// missing when that takes longer than `limit`.
  void settle(Lock &lock, NcclMember &member, nccl::Result result, const std::string &what,
              std::chrono::milliseconds limit, NcclLateness late);
  bool closeOrderly(Lock &lock, NcclMember &member);
  /// Makes `error` the failure unless there is one.
  void fail(const Error &error);
  /// With the lock held, which is let go meanwhile, after fail: aborts all communicators. False
  /// where a capture in progress holds one of them.
  bool abortAll(Lock &lock);
  AbortLimit makeLimit() const;
  /// After fail, without the lock: calls options.abortPeers, once.
  void tellPeers();
  void throwIfFailed() const;
  bool isIdle() const;
  std::unique_ptr<CudaEvent> takeEvent(NcclMember &member);

  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<const CudaContext> context;
  int rank;
  NcclOptions options;

  std::mutex mutex; // held during every NCCL call but aborts, whose communicators nobody has
  std::condition_variable wake, aborted;
  bool stopping = false, aborting = false;
  std::set<NcclMember *> members;
  std::vector<std::weak_ptr<NcclGraph>> graphs;
  std::map<std::string, int> generations; // communicators so far, by name
  std::string lastDone; // the operation that ended last, for errors between operations
  // The last call, where calls are ordered by events.
  std::unique_ptr<CudaEvent> orderEvent;
  const CudaStream *orderStream = nullptr;
  const CudaCapture *orderCapture = nullptr;

  mutable std::mutex failureMutex; // held during no call, so that no call hides a failure
  std::optional<Error> failure;    // set once
  bool told = false;
  std::atomic<bool> failed = false; // that `failure` is there
  std::thread thread;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLWATCHDOG_H
