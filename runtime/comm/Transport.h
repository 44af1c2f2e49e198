//===- Transport.h - common parts of transports -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A transport connects the ranks of a job and makes communicators over subsets of them. The calls
// are NCCL's in shape: contiguous buffers, counts in elements, every member calls in the same
// order. All transports pass test/runtime/TransportConformanceTest.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_TRANSPORT_H
#define GRIDLOOM_RUNTIME_COMM_TRANSPORT_H

#include "runtime/core/DataType.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

class Device;
class Stream;
struct Memory;

enum class Reduction { Sum = 0, Max, Min, Prod };

/// The description of an operation in errors: "all_reduce #12 (onnx node /encoder/0/MatMul)".
struct OpContext {
  const char *kind = "";
  uint32_t sequence = 0;
  std::string_view origin;
};

/// One of several values that are gathered: this member's part, of so many bytes, and where those
/// of all come, member i's at i * bytes.
struct GatheredValue {
  const void *in = nullptr;
  void *out = nullptr;
  size_t bytes = 0;
};

/// A group of ranks with an order. Calls enqueue on `stream` and return; the stream is a
/// communication stream of this rank's device. Counts are of elements. In place is allowed where
/// input and output have one size (all_reduce, broadcast), and never overlaps partially.
/// Errors surface at Stream::synchronize: PeerFailed or DeadlineExceeded naming the operation, its
/// sequence number, its origin and the ranks that are missing.
class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int getRank() const = 0;
  virtual int getSize() const = 0;

  /// Every member gets the same bits: the reduction order is fixed by the element's position. Max
  /// and min of floats are NaN where one of the operands is.
  virtual void allReduce(Stream &stream, const void *in, void *out, size_t count, DataType type,
                         Reduction reduction, OpContext op) = 0;
  /// out holds size * count elements, member i's at i * count.
  virtual void allGather(Stream &stream, const void *in, void *out, size_t count, DataType type,
                         OpContext op) = 0;
  /// in holds size * count elements; member i gets the reduction of part i.
  virtual void reduceScatter(Stream &stream, const void *in, void *out, size_t count, DataType type,
                             Reduction reduction, OpContext op) = 0;
  /// in and out hold size * count elements; part j of member i becomes part i of member j.
  virtual void allToAll(Stream &stream, const void *in, void *out, size_t count, DataType type,
                        OpContext op) = 0;
  virtual void broadcast(Stream &stream, const void *in, void *out, size_t count, DataType type,
                         int root, OpContext op) = 0;
  /// Rendezvous: a send may block until its receive is posted.
  virtual void send(Stream &stream, const void *in, size_t count, DataType type, int peer,
                    OpContext op) = 0;
  virtual void recv(Stream &stream, void *out, size_t count, DataType type, int peer,
                    OpContext op) = 0;
  /// One step of a permutation: sends `in` to member `to` and receives `out` from member `from`,
  /// which progress together. Of the ranks of each cycle exactly one says `receiveFirst`: it
  /// matters where sends block.
  virtual void sendRecv(Stream &stream, const void *in, int to, void *out, int from, size_t count,
                        DataType type, bool receiveFirst, OpContext op);
  virtual void barrier(Stream &stream, OpContext op) = 0;

  /// Allocates what a reduction needs beside its operands, of which each member gives and gets so
  /// many elements. Called before any call: the driver may block allocations while peers
  /// communicate.
  virtual void reserveReduction(size_t given, size_t gotten, DataType type, Reduction reduction) {}

  /// Announces that operands will lie in `memory`, which Transport::allocate made; it outlives the
  /// communicator. Collective: each member gives as many bytes.
  virtual void registerMemory(const Memory &memory) {}

  /// allGather of several values, in one message where the transport has such. Members give values
  /// of the same sizes.
  virtual void allGatherMany(Stream &stream, std::span<const GatheredValue> values, OpContext op);
};

/// Ranks publish their progress here, so that an error can name the ranks that are missing. Calls
/// come from several threads.
class ProgressBoard {
public:
  virtual ~ProgressBoard() = default;
  /// Rank `rank` has reached its operation number `count` (from 1) on `communicator`.
  virtual void publish(int rank, const std::string &communicator, uint64_t count) = 0;
  /// The last value that `rank` published, 0 for none; null where that is unknown: the board is
  /// full, or whoever keeps it does not answer.
  virtual std::optional<uint64_t> read(int rank, const std::string &communicator) = 0;
};

struct TransportOptions {
  /// A peer that makes no progress for this long is an error.
  std::chrono::milliseconds deadline{300000};
  /// A process that has ended is noticed within this time.
  std::chrono::milliseconds liveness{1000};
  /// Called several times a second, on the caller's thread, while this rank waits for others to
  /// join; what it throws ends the attempt. May be null.
  std::function<void()> whileJoining = {};
  /// A machine that does not answer for this long is gone. Networks pause for seconds when a link
  /// fails over or a virtual machine moves.
  std::chrono::milliseconds silence{8000};
};

/// The connection of this rank to the job. Communicators live no longer than their transport, and
/// can be made again in a living process.
class Transport {
public:
  virtual ~Transport() = default;
  virtual std::string getName() const = 0;
  virtual int getRank() const = 0;
  virtual int getSize() const = 0;
  /// A communicator over `ranks` (world numbers, ascending, this rank among them). Collective over
  /// its members, each of which asks for its communicators in the same order.
  virtual std::unique_ptr<Communicator> createCommunicator(std::span<const int> ranks,
                                                           const std::string &name) = 0;
  /// The same, collective over all ranks of the job: at one time disjoint groups make theirs, and
  /// ranks of none give no ranks and get null.
  virtual std::unique_ptr<Communicator> split(std::span<const int> ranks, const std::string &name);
  /// Memory of `device` that peers may read and write: where operands of collectives are best.
  virtual std::unique_ptr<Memory> allocate(Device &device, size_t bytes);
  /// Device memory that the transport takes for each communicator, beside the plan's buffers: an
  /// estimate, in bytes.
  virtual uint64_t getCommunicatorBytes() const { return 0; }
  /// Whether all ranks use one device.
  virtual bool sharesDevice() const { return false; }
  /// Makes every pending and later call on every rank fail with PeerFailed and this reason.
  virtual void abort(const std::string &reason) = 0;
  /// Why calls cannot be captured with the work around them (Device::beginCapture); empty when they
  /// can.
  virtual std::string whyNotCapturable() const {
    return getName() + " communication cannot be captured";
  }

  // Services that a transport between devices needs from the one between their hosts.

  /// Gives every rank of `ranks` the bytes that ranks.front() has; collective over them.
  virtual void share(std::span<std::byte> bytes, std::span<const int> ranks,
                     const std::string &name);
  /// Fills `all` with every rank's bytes, in the order of ranks; all give equally many. Collective
  /// over the job.
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Throws PeerFailed when the job has failed or a rank is gone, the latter within the time of
  /// liveness. From any thread; cheap.
  virtual void check() {}
  /// The same for a rank that waits for what `ranks` do: throws also when one of them has left in
  /// order, since it takes part in nothing more.
  virtual void checkAwaited(std::span<const int>) { check(); }
  /// The rank whose failure became the job's; nothing when none has, or nobody knows.
  virtual std::optional<int> getFailedRank() { return std::nullopt; }
  /// Null where ranks do not know their progress.
  virtual std::shared_ptr<ProgressBoard> getProgressBoard() { return nullptr; }
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_TRANSPORT_H
