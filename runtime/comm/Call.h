//===- Call.h - names and matching of collective calls ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_CALL_H
#define GRIDLOOM_RUNTIME_COMM_CALL_H

#include "runtime/comm/Transport.h"

#include <optional>
#include <string>

namespace gridloom::rt {

enum class CallKind : uint32_t {
  Create = 1,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Send,
  Recv,
  Barrier
};

/// "all_reduce"
std::string_view nameOf(CallKind kind);
inline bool isTransfer(CallKind kind) { return kind == CallKind::Send || kind == CallKind::Recv; }

/// An operation, described in errors.
struct Operation {
  std::string kind;
  std::optional<uint32_t> sequence = {};
  std::string origin;
  /// "group data {0,2}", or empty.
  std::string group;

  /// "all_reduce #12 (onnx node /encoder/0/MatMul) of group data {0,2}"
  std::string describe() const;
};

/// The terms of a call that members of a communicator must agree on.
struct CallTerms {
  CallKind kind = CallKind::Create;
  uint64_t count = 0;
  DataType type = DataType::U8;
  Reduction reduction = Reduction::Sum;
  int32_t root = 0; // or peer of a transfer
  uint32_t sequence = 0;
  std::string_view origin = {}; // for Create: the communicator's name

  /// Whether two members' calls match. The two ends of a transfer are in different stages'
  /// programs, which number their steps separately.
  bool agreesWith(const CallTerms &other) const;
  /// "calls all_reduce #12 (onnx node /encoder/0/MatMul) with 8 f32, sum"
  std::string describe() const;
};

/// Throws InvalidArgument unless `ranks` are ascending, from 0 to `size` - 1, and contain `rank`.
void checkGroup(std::span<const int> ranks, int rank, int size, const std::string &name);
/// Throws InvalidArgument unless `root` is a member, and for a transfer not `member` itself.
void checkRoot(CallKind kind, int root, int member, int members, const Operation &operation);
/// "group data {0,2}"
std::string describeGroup(std::span<const int> ranks, const std::string &name);
/// "rank 2" or "ranks 1, 2".
std::string describeRanks(std::span<const int> ranks);
/// "the members disagree: rank 0 calls ..., rank 1 calls ...; all must ..."
std::string describeDisagreement(int rank, const CallTerms &terms, int otherRank,
                                 const CallTerms &other);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_CALL_H
