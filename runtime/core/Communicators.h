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

/// The communicators that one rank needs to run a plan. All ranks create them in the same order
/// when they load it: for each stage its groups and then the stage's own communicator, then one
/// pair per directed edge between stages.
class Communicators {
public:
  Communicators(const Plan &plan, int rank, Transport &transport);

  /// The group over `axes`, members ascending by rank; null where this rank is the only member.
  Communicator *getGroup(const std::vector<std::string> &axes) const;
  /// Joins this rank with the rank of `peerStage` that has the same coordinates; one pair per
  /// direction.
  Communicator *getPair(int peerStage, bool send) const;
  /// All ranks of this rank's stage; null when it is alone or no condition guards communication.
  Communicator *getStage() const { return stage.get(); }
  /// Registers `memory`, which the transport allocated and which holds operands of collectives.
  /// Collective.
  void registerMemory(const Memory &memory) const;

private:
  std::map<std::vector<std::string>, std::unique_ptr<Communicator>> groups; // by axes
  std::map<std::pair<int, bool>, std::unique_ptr<Communicator>> pairs;
  std::unique_ptr<Communicator> stage;
};

/// The reduction with this number in a plan's groups. Throws InvalidPlan if there is none.
Reduction toReduction(int number);

/// The number of communicators of several ranks that `rank` belongs to, including the control
/// channel's.
size_t countCommunicators(const Plan &plan, int rank);

/// Messages between all ranks outside of the program: blocking, from and to host memory.
class ControlChannel {
public:
  ControlChannel(const Plan &plan, Device &device, Transport &transport);
  /// Every rank's bytes, in rank order; all ranks pass the same number of bytes.
  std::vector<std::vector<std::byte>> allGather(std::span<const std::byte> mine);
  /// Copies `bytes` of rank `root` into `bytes` of all ranks.
  void broadcast(std::span<std::byte> bytes, int root);
  void send(std::span<const std::byte> bytes, int to);
  void receive(std::span<std::byte> bytes, int from);

private:
  void *stage(std::span<const std::byte> bytes);
  void finish(const void *from, std::span<std::byte> to);

  Device &device;
  /// The size of `scratch`: longer messages are sent in parts. A buffer that grows would call the
  /// driver's allocator, which blocks while peers are communicating.
  size_t room;
  std::unique_ptr<Memory> scratch; // before `stream`, whose destructor waits for the work on it
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> world;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_COMMUNICATORS_H
