//===- Deadlock.h - find communication deadlocks ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_DEADLOCK_H
#define GRIDLOOM_PASSES_SCHEDULE_DEADLOCK_H

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gridloom {

/// The steps of a participant's streams that other streams and participants can observe. A
/// participant is a stage, whose ranks all do the same, or one rank.
struct StageTrace {
  enum class Kind { Record, Wait, Send, Recv, Collective };
  struct Item {
    Kind kind;
    int64_t event = 0;   // Record, Wait: unique within the participant
    int64_t peer = 0;    // Send, Recv: the participant at the other end
    int64_t channel = 0; // Send, Recv; of a Collective the number of the call on its communicator
    int64_t iteration = 0;
    std::string communicator = {}; // Collective
    std::vector<int64_t> members = {};
    std::string node = {}; // the ONNX node, for messages
  };
  struct Stream {
    std::string name;
    std::vector<Item> items;
  };

  int64_t stage = 0;
  std::vector<Stream> streams;
  const char *noun = "stage"; // what messages call a participant
};

/// Runs all participants with rendezvous communication: a send and a recv, or the calls of all
/// members of a communicator, complete when they are all at the head of their streams. The steps'
/// order does not matter: one run stands for all. Returns nullopt if all streams finish, else one
/// line: the cycle of participants that wait for each other, or the call without a peer.
std::optional<std::string> findDeadlock(llvm::ArrayRef<StageTrace> stages);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_DEADLOCK_H
