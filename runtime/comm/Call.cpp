//===- Call.cpp - names and matching of collective calls ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Call.h"

#include "runtime/comm/Reduce.h"
#include "runtime/core/Error.h"

#include <algorithm>

using namespace gridloom::rt;

std::string_view gridloom::rt::nameOf(CallKind kind) {
  static constexpr std::string_view names[] = {
      "?",          "create_communicator", "all_reduce", "all_gather", "reduce_scatter",
      "all_to_all", "broadcast",           "send",       "recv",       "barrier"};
  auto index = static_cast<size_t>(kind);
  return names[index < std::size(names) ? index : 0];
}

std::string Operation::describe() const {
  std::string text = kind;
  if (sequence)
    text += " #" + std::to_string(*sequence);
  if (!origin.empty())
    text += " (onnx node " + origin + ")";
  if (!group.empty())
    text += " of " + group;
  return text;
}

bool CallTerms::agreesWith(const CallTerms &other) const {
  if (count != other.count || type != other.type)
    return false;
  if (isTransfer(kind))
    return true;
  return kind == other.kind && sequence == other.sequence && reduction == other.reduction &&
         root == other.root && (kind != CallKind::Create || origin == other.origin);
}

std::string CallTerms::describe() const {
  if (kind == CallKind::Create)
    return "makes a communicator named " + std::string(origin);
  Operation operation{std::string(nameOf(kind)), sequence, std::string(origin), ""};
  std::string text = "calls " + operation.describe();
  if (kind == CallKind::Barrier)
    return text;
  text += " with " + std::to_string(count) + " " + std::string(gridloom::rt::nameOf(type));
  if (kind == CallKind::AllReduce || kind == CallKind::ReduceScatter)
    text += ", " + std::string(gridloom::rt::nameOf(reduction));
  if (kind == CallKind::Broadcast)
    text += " from member " + std::to_string(root);
  return text;
}

void gridloom::rt::checkGroup(std::span<const int> ranks, int rank, int size,
                              const std::string &name) {
  bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  bool inJob = !ranks.empty() && ranks.front() >= 0 && ranks.back() < size;
  if (!ascending || !inJob || !std::binary_search(ranks.begin(), ranks.end(), rank))
    throw Error(ErrorCode::InvalidArgument,
                "communicator " + name + " must name ranks of 0 to " + std::to_string(size - 1) +
                    " in ascending order, rank " + std::to_string(rank) + " among them");
}

void gridloom::rt::checkRoot(CallKind kind, int root, int member, int members,
                             const Operation &operation) {
  bool transfer = isTransfer(kind);
  if (root < 0 || root >= members || (transfer && root == member))
    throw Error(
        ErrorCode::InvalidArgument,
        operation.describe() + ": member " + std::to_string(root) +
            (transfer ? " is not a peer of member " + std::to_string(member) : " does not exist") +
            " in a group of " + std::to_string(members));
}

std::string gridloom::rt::describeGroup(std::span<const int> ranks, const std::string &name) {
  std::string text = "group " + name + " {";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i ? "," : "") + std::to_string(ranks[i]);
  return text + "}";
}

std::string gridloom::rt::describeRanks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

std::string gridloom::rt::describeDisagreement(int rank, const CallTerms &terms, int otherRank,
                                               const CallTerms &other) {
  if (rank > otherRank)
    return describeDisagreement(otherRank, other, rank, terms);
  return "the members disagree: rank " + std::to_string(rank) + " " + terms.describe() + ", rank " +
         std::to_string(otherRank) + " " + other.describe() +
         "; all must make the same calls in the same order";
}
