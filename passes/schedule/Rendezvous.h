//===- Rendezvous.h - do the stages' transfers meet -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_RENDEZVOUS_H
#define GRIDLOOM_PASSES_SCHEDULE_RENDEZVOUS_H

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gridloom {

/// What a stage's streams do, as far as other streams and stages notice.
struct StageTrace {
  enum class Kind { Record, Wait, Send, Recv };
  struct Item {
    Kind kind;
    int64_t event = 0;   // Record, Wait: unique within the stage
    int64_t peer = 0;    // Send, Recv: a stage
    int64_t channel = 0; // Send, Recv
    int64_t iteration = 0;
  };
  struct Stream {
    std::string name;
    std::vector<Item> items;
  };

  int64_t stage = 0;
  std::vector<Stream> streams;
};

/// Runs all stages with rendezvous transfers: a send and a recv are over when both are at the head
/// of their streams. Returns nothing when everything ends, else one line that says who waits for
/// whom.
std::optional<std::string> findDeadlock(llvm::ArrayRef<StageTrace> stages);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_RENDEZVOUS_H
