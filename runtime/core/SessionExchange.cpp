//===- SessionExchange.cpp - whole values of a job ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Assembles outputs and states from the ranks' parts, and cuts states into parts.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/SessionImpl.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

/// The ranks of a stage whose parts make up the whole, each part once.
std::vector<OutputPart> Session::Impl::findParts(int stage,
                                                 const std::function<Shard(int)> &getShard) const {
  std::vector<OutputPart> parts;
  std::set<std::vector<int64_t>> seen;
  for (int owner : plan->getMesh().getStageRanks(stage)) {
    Shard shard = getShard(owner);
    bool empty = std::find(shard.valid.begin(), shard.valid.end(), 0) != shard.valid.end();
    if (!empty && seen.insert(shard.begin).second)
      parts.push_back({owner, std::move(shard)});
  }
  return parts;
}

/// Memory for a part that another rank sends: its place in the whole if it is contiguous there,
/// since writing to new pages takes as long again as the transfer.
static HostArray findRoom(const Shard &shard, HostArray &whole) {
  std::optional<int64_t> place = findOnlyRun(shard);
  if (!place)
    return HostArray::allocate(whole.getType(), shard.local);
  return HostArray::borrow(whole.getType(), shard.local,
                           whole.getMutableData() + size_t(*place) * sizeOf(whole.getType()));
}

/// Whether the part was received at its place in the whole.
static bool isIn(const HostArray &whole, const HostArray &part) {
  return !std::less<>()(part.getData(), whole.getData()) &&
         std::less<>()(part.getData(), whole.getData() + whole.getNumBytes());
}

/// Assembles the parts on rank 0, or on all ranks with `toAll`, in `into` if it fits. `read`
/// returns this rank's part, in the array passed to it unless that is null; the result is only used
/// in this call.
HostArray Session::Impl::gather(DataType type, const std::vector<int64_t> &shape,
                                const std::vector<OutputPart> &parts,
                                const std::function<HostArray(HostArray)> &read, bool toAll,
                                HostArray into) {
  HostArray whole;
  try {
    bool fits = !into.isNull() && into.getType() == type && into.getShape() == shape;
    if (rank == 0 || toAll)
      whole = fits ? std::move(into) : HostArray::allocate(type, shape);
    for (const OutputPart &part : parts) {
      if (part.rank != rank && rank != 0)
        continue;
      HostArray local;
      if (part.rank == rank) {
        bool isWhole = rank == 0 && part.shard.local == shape;
        local = read(isWhole ? whole : HostArray());
        if (rank != 0) {
          control->send({local.getData(), local.getNumBytes()}, 0);
          continue;
        }
      } else {
        local = findRoom(part.shard, whole);
        control->receive({local.getMutableData(), local.getNumBytes()}, part.rank);
      }
      if (!isIn(whole, local))
        placeShard(part.shard, sizeOf(type), local.getData(), whole.getMutableData());
    }
    if (toAll && control)
      control->broadcast({whole.getMutableData(), whole.getNumBytes()}, 0);
  } catch (...) {
    fail(std::current_exception(), nullptr);
  }
  return whole;
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

std::vector<OutputPart> Session::Impl::findParts(const std::string &name) const {
  const Argument &argument = getOutput(name);
  if (argument.stages.empty())
    throw Error(ErrorCode::InvalidPlan, "no stage makes output '" + name + "'");
  int stage = argument.stages.front();
  const schema::Binding &binding = *findBinding(getLast(), stage, name, /*output=*/true);
  return findParts(
      stage, [&](int owner) { return getPlacement(getLast(), binding, owner, /*output=*/true); });
}

HostArray Session::Impl::gatherOutput(const std::string &name, bool toAll) {
  requireUsable();
  const Argument &argument = getOutput(name);
  std::vector<OutputPart> parts;
  try {
    parts = findParts(name);
  } catch (...) {
    fail(std::current_exception(), nullptr);
  }
  return gather(
      argument.type, argument.shape, parts, [&](const HostArray &) { return readShard(name); },
      toAll);
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

namespace {

/// A state in the plan.
struct PlannedState {
  int stage;
  const schema::State &state;
  std::vector<int64_t> global;
};

} // namespace

/// Finds a state in the first stage that has it.
static PlannedState findPlanned(const Plan &plan, const std::string &name) {
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    for (const schema::State &state : plan.getStage(stage).states())
      if (state.name() == name)
        return {stage, state, {state.global_shape().begin(), state.global_shape().end()}};
  std::string names;
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    for (const schema::State &state : plan.getStage(stage).states())
      names += (names.empty() ? "" : ", ") + state.name();
  throw Error(ErrorCode::InvalidArgument, "the plan has no state '" + name + "'" +
                                              (names.empty() ? "" : "; its states are: " + names));
}

HostArray Session::Impl::readState(int index, HostArray into) const {
  const schema::State &state = getStage().states(index);
  HostArray array = into.isNull()
                        ? HostArray::allocate(DataType(state.type()),
                                              {state.shape().begin(), state.shape().end()})
                        : std::move(into);
  const_cast<Impl *>(this)->copyOut({array.getMutableData(), array.getNumBytes()},
                                    states[size_t(index)]->data);
  return array;
}

/// The state's own memory; for devices with host memory.
HostArray Session::Impl::borrowState(int index) const {
  const schema::State &state = getStage().states(index);
  return HostArray::borrow(DataType(state.type()), {state.shape().begin(), state.shape().end()},
                           states[size_t(index)]->data);
}

HostArray Session::Impl::gatherState(const std::string &name, bool toAll, HostArray into) {
  requireUsable();
  PlannedState found = findPlanned(*plan, name);
  auto getShardOf = [&](int owner) {
    return getShard(plan->getMesh(), owner, found.state.sharding(), found.global);
  };
  return gather(
      DataType(found.state.type()), found.global, findParts(found.stage, getShardOf),
      [&](HostArray whole) {
        int index = findState(name);
        return whole.isNull() && device.hasHostMemory() ? borrowState(index)
                                                        : readState(index, std::move(whole));
      },
      toAll, std::move(into));
}

void Session::Impl::setGlobalState(const std::string &name, const HostArray &whole) {
  requireUsable();
  PlannedState found = findPlanned(*plan, name);
  DataType type = DataType(found.state.type());
  if (whole.getType() != type || whole.getShape() != found.global)
    throw Error(ErrorCode::InvalidArgument, "state '" + name + "' is " + std::string(nameOf(type)) +
                                                formatShape(found.global) + ", not " +
                                                std::string(nameOf(whole.getType())) +
                                                formatShape(whole.getShape()));
  for (int i = 0; i < getStage().states_size(); ++i) {
    const schema::State &state = getStage().states(i);
    if (state.name() != name)
      continue;
    // Stages that share a state may split it differently.
    if (DataType(state.type()) != type || !std::ranges::equal(state.global_shape(), found.global))
      throw Error(ErrorCode::InvalidPlan, "stages " + std::to_string(found.stage) + " and " +
                                              std::to_string(stageNumber) +
                                              " have different states '" + name + "'");
    Shard shard = getShard(plan->getMesh(), rank, state.sharding(), found.global);
    std::vector<std::byte> local(state.bytes());
    cutShard(shard, sizeOf(type), whole.getData(), local.data());
    copyIn(states[size_t(i)]->data, local);
  }
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

std::vector<std::vector<std::byte>> Session::Impl::exchange(std::span<const std::byte> mine) {
  requireUsable();
  if (!control)
    return {{mine.begin(), mine.end()}};
  try {
    return control->allGather(mine);
  } catch (...) {
    fail(std::current_exception(), nullptr);
  }
}

std::vector<std::string> Session::Impl::gatherText(const std::string &text) {
  requireUsable();
  if (!control)
    return {text};
  uint64_t size = text.size();
  std::vector<std::string> texts;
  try {
    std::vector<std::vector<std::byte>> sizes =
        control->allGather(std::as_bytes(std::span(&size, 1)));
    auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    if (rank != 0 && size)
      control->send(bytes, 0);
    if (rank != 0)
      return {};
    texts.push_back(text);
    for (size_t other = 1; other < sizes.size(); ++other) {
      uint64_t length;
      std::memcpy(&length, sizes[other].data(), sizeof(length));
      std::string received(length, '\0');
      if (length)
        control->receive(std::as_writable_bytes(std::span(received.data(), length)), int(other));
      texts.push_back(std::move(received));
    }
  } catch (...) {
    fail(std::current_exception(), nullptr);
  }
  return texts;
}
