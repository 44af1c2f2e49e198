//===- Communicators.h - communicators of a rank ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_COMMUNICATORS_H
#define GRIDLOOM_RUNTIME_CORE_COMMUNICATORS_H

#include "runtime/comm/Transport.h"
#include "runtime/core/Plan.h"
#include "runtime/device/Device.h"

#include <map>

namespace gridloom::rt {

/// All communicators one rank needs to run a plan, made at load in one order on all ranks: for each
/// stage its groups and then its control channel; then one pair per directed edge between stages.
class Communicators {
public:
  Communicators(const Plan &plan, int rank, Transport &transport);

  /// The group over `axes`, its members ascending by rank; null where it is this rank alone.
  Communicator *getGroup(const std::vector<std::string> &axes) const;
  /// The pair with the same coordinates' rank of `peerStage`, in one direction.
  Communicator *getPair(int peerStage, bool send) const;
  /// All ranks of this rank's stage; null when it is alone or no condition guards communication.
  Communicator *getStage() const { return stage.get(); }
  /// Registers operands in `memory`, which the transport allocated. Collective.
  void registerMemory(const Memory &memory) const;

private:
  std::map<std::vector<std::string>, std::unique_ptr<Communicator>> groups; // by axes
  std::map<std::pair<int, bool>, std::unique_ptr<Communicator>> pairs;
  std::unique_ptr<Communicator> stage;
};

/// The number of communicators of several ranks that `rank` belongs to, including the control
/// channel's.
size_t countCommunicators(const Plan &plan, int rank);

/// Talk between all ranks beside the program: bytes in host memory, blocking.
class ControlChannel {
public:
  ControlChannel(const Plan &plan, Device &device, Transport &transport);
  /// Every rank's bytes, in rank order; all give equally many.
  std::vector<std::vector<std::byte>> allGather(std::span<const std::byte> mine);
  /// `bytes` of rank `root`, on all ranks.
  void broadcast(std::span<std::byte> bytes, int root);
  void send(std::span<const std::byte> bytes, int to);
  void receive(std::span<std::byte> bytes, int from);

private:
  void *stage(std::span<const std::byte> bytes);
  void finish(const void *from, std::span<std::byte> to);

  Device &device;
  /// Bytes sent at once. A larger buffer would be allocated while peers may be communicating, which
  /// the driver would block.
  size_t room;
  std::unique_ptr<Memory> scratch; // the stream's destructor waits for what uses it
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> world;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_COMMUNICATORS_H
