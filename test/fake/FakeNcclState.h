//===- FakeNcclState.h - state of the fake NCCL -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKENCCLSTATE_H
#define GRIDLOOM_TEST_FAKE_FAKENCCLSTATE_H

#include "test/fake/FakeMachine.h"
#include "test/fake/FakeNccl.h"

#include <algorithm>

namespace gridloom::fake {

enum NcclResult : int {
  Success = 0,
  CudaError = 1,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
};

enum class Kind { AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, Send, Recv };
inline constexpr const char *kindNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                            "ncclAlltoAll",  "ncclBroadcast", "ncclSend",
                                            "ncclRecv"};

/// One call of one rank. `extra` is the reduction, the root or the peer.
struct Request {
  Kind kind;
  const void *in;
  void *out;
  size_t count;
  int type;
  int extra;
  bool lost = false;

  bool isTransfer() const { return kind == Kind::Send || kind == Kind::Recv; }
  std::string describe() const {
    return std::string(kindNames[static_cast<int>(kind)]) + " of " + std::to_string(count) +
           " elements of type " + std::to_string(type) + ", " + std::to_string(extra);
  }
};

struct Comm;

/// An operation of several ranks: a collective, or a send and its receive.
struct Node {
  std::string name;
  std::vector<std::optional<Request>> requests; // by rank; send, receive
  size_t arrived = 0;
  bool done = false;
  bool poisoned = false;
};

/// A split in progress of a communicator.
struct Split {
  struct Choice {
    int color, key, device;
  };
  std::map<int, Choice> choices; // by rank
};

struct Clique {
  int number = 0;
  int size = 0;
  std::vector<Comm *> members;
  std::vector<std::shared_ptr<Node>> collectives;
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Node>>> transfers;
  std::vector<std::shared_ptr<Split>> splits;
  std::map<size_t, size_t> windowBytes; // by number
  /// Where ranks of several processes meet; empty if they are threads of this process.
  std::string folder;
};

/// A rank's part in a node.
struct Part {
  Comm *comm;
  std::shared_ptr<Node> node;
  size_t slot;
  size_t index; // among the communicator's operations of this kind
  bool arrived = false;
};

struct StreamLaunch {
  Stream *stream;
  Operation operation;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  int error = Success;
  bool connected = false;
  bool aborted = false;
  bool finalized = false;
  bool destroyed = false;
  std::atomic<size_t> pending = 0; // submitted operations that are not done
  size_t numCollectives = 0;
  std::map<std::pair<int, int>, size_t> numSends, numRecvs;
  int pollsLeft = 0;
  bool busy = false; // the last call is not on its stream yet
  std::vector<StreamLaunch> staged;
  size_t numStaged = 0; // operations in `staged`
  size_t numSplits = 0, numWindows = 0;
  std::shared_ptr<Split> splitting;
  Comm **split = nullptr; // where to write the child
  std::set<const void *> registrations;
  std::vector<std::weak_ptr<int>> graphs; // graphs with its operations

  bool isInGraph() const {
    return std::any_of(graphs.begin(), graphs.end(), [](const auto &it) { return !it.expired(); });
  }
};

struct NcclState {
  std::mutex mutex;
  std::condition_variable joined;
  NcclSettings settings;
  int numIds = 0, numCliques = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques; // by id
  std::vector<std::unique_ptr<Comm>> comms;
  // Launches of each device, in order; a launch is a list of nodes that progress together.
  std::map<int, std::vector<std::vector<Node *>>> launches;
  std::map<const void *, size_t> memory; // of ncclMemAlloc
  std::vector<NcclLogEntry> log;
  std::map<int, int> numCalls;                     // by device
  std::map<std::pair<int, int>, NcclFault> faults; // by device and number
  std::vector<std::shared_ptr<Node>> nodes;
};

NcclState &state();
inline Machine &machine() { return Machine::get(); }

/// Logs a call; returns its planted error, or 0. Sets `lost` if the call must never complete.
int enterCall(const char *name, int stream, const std::string &detail, bool *lost = nullptr);
/// Whether `comm` is alive; else reports it. Call with the state locked.
bool isUsable(Comm *comm, const char *call);
/// The communicators that the calling thread aborts within a group; null outside of one.
std::vector<Comm *> *getGroupAborts();
/// Waits, as ncclCommAbort does, until work submitted before an abort has ended. This hangs for
/// work behind a communicator whose abort flag is not set.
void awaitKernels(Comm &comm);
/// Makes rank `rank` of `size` of the communicator `id`. Call with the state locked.
int join(Comm **made, const std::string &id, int rank, int size, int device);
/// Completes the split of `comm` once all its ranks have chosen; false before. Call with the state
/// locked.
bool completeSplit(Comm &comm);

// Ranks of several processes: FakeNcclShared.cpp.

/// The folder of communicator `id`; empty if ranks are threads.
std::string getSharedFolder(const std::string &id);
/// Whether all ranks have reached point `name`, this one with `mark`; fills in the marks of `all`.
bool meetShared(const Comm &comm, const std::string &name, const std::string &mark,
                std::vector<std::string> &all);
/// Runs a part of an operation; false while other ranks are missing.
bool runShared(Part &part);
/// Removes a communicator's files.
void leaveShared(const Comm &comm);

/// Computes an operation that has all its requests.
void compute(const Node &node);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKENCCLSTATE_H
