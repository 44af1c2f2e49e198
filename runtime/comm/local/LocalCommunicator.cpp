//===- LocalCommunicator.cpp - meetings, messages and their checks --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/LocalCommunicator.h"

#include "runtime/comm/Reduce.h"
#include "runtime/device/Device.h"
#include "support/AlignTo.h"

#include <algorithm>
#include <cstring>

using namespace gridloom::rt;

static constexpr uint32_t stagesPerMember = 3;
static constexpr uint32_t chunksPerChannel = 2;

LocalCommunicator::LocalCommunicator(std::shared_ptr<Membership> ofJob, std::vector<int> ranksOf,
                                     int index, uint32_t generation, std::string nameOf)
    : membership(std::move(ofJob)), ranks(std::move(ranksOf)), index(index),
      name(std::move(nameOf)), chunk(membership->getSegment().getChunkBytes()),
      group(describeGroup(ranks, name)), channels(ranks.size()) {
  if (ranks.size() == 1)
    return;
  for (int rank : ranks)
    key.members[size_t(rank) / 64] |= uint64_t(1) << (rank % 64);
  key.epoch = membership->getEpoch();
  key.generation = generation;
  Segment &segment = membership->getSegment();
  uint64_t offset = segment.acquireRegion(key, int(ranks.size()), getRegionBytes(),
                                          membership->getOptions().deadline);
  try {
    region = segment.map(offset, getRegionBytes());
    Call call{.kind = Kind::Create};
    call.operation = {"making a communicator", {}, "", group};
    run(call);
  } catch (...) {
    segment.releaseRegion(key);
    throw;
  }
}

LocalCommunicator::~LocalCommunicator() {
  if (!region)
    return;
  region.reset();
  membership->getSegment().releaseRegion(key);
}

//===----------------------------------------------------------------------===//
// The region: member slots, stages, channels, chunks of channels.
//===----------------------------------------------------------------------===//

static constexpr size_t pageBytes = 4096;

size_t LocalCommunicator::getRegionBytes() const {
  size_t n = ranks.size();
  return alignTo(n * sizeof(MemberSlot), pageBytes) + n * stagesPerMember * chunk +
         alignTo(n * n * sizeof(Channel), pageBytes) + n * n * chunksPerChannel * chunk;
}

LocalCommunicator::MemberSlot &LocalCommunicator::getMember(int member) const {
  return reinterpret_cast<MemberSlot *>(region->getData())[member];
}

std::byte *LocalCommunicator::getStage(int member, uint64_t round) const {
  size_t slot = size_t(member) * stagesPerMember + round % stagesPerMember;
  return region->getData() + alignTo(ranks.size() * sizeof(MemberSlot), pageBytes) + slot * chunk;
}

LocalCommunicator::Channel &LocalCommunicator::getChannel(int from, int to) const {
  size_t n = ranks.size();
  std::byte *base =
      region->getData() + alignTo(n * sizeof(MemberSlot), pageBytes) + n * stagesPerMember * chunk;
  return reinterpret_cast<Channel *>(base)[size_t(from) * n + size_t(to)];
}

std::byte *LocalCommunicator::getChannelChunk(int from, int to, uint32_t number) const {
  size_t n = ranks.size();
  size_t slot = (size_t(from) * n + size_t(to)) * chunksPerChannel + number % chunksPerChannel;
  return region->getData() + getRegionBytes() - (n * n * chunksPerChannel - slot) * chunk;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

void LocalCommunicator::allReduce(Stream &stream, const void *in, void *out, size_t count,
                                  DataType type, Reduction reduction, OpContext op) {
  enqueue(stream, {Kind::AllReduce, in, out, count, type, reduction}, op);
}

void LocalCommunicator::allGather(Stream &stream, const void *in, void *out, size_t count,
                                  DataType type, OpContext op) {
  enqueue(stream, {Kind::AllGather, in, out, count, type}, op);
}

/// Small values share a stage; large ones go from and to where they are.
void LocalCommunicator::allGatherMany(Stream &stream, std::span<const GatheredValue> values,
                                      OpContext op) {
  Call small{.kind = Kind::AllGather};
  for (const GatheredValue &value : values) {
    if (value.bytes > getMostStaged()) {
      allGather(stream, value.in, value.out, value.bytes, DataType::U8, op);
      continue;
    }
    small.values.push_back(value);
    small.count += value.bytes;
  }
  if (!small.values.empty())
    enqueue(stream, std::move(small), op);
}

void LocalCommunicator::reduceScatter(Stream &stream, const void *in, void *out, size_t count,
                                      DataType type, Reduction reduction, OpContext op) {
  enqueue(stream, {Kind::ReduceScatter, in, out, count, type, reduction}, op);
}

void LocalCommunicator::allToAll(Stream &stream, const void *in, void *out, size_t count,
                                 DataType type, OpContext op) {
  enqueue(stream, {Kind::AllToAll, in, out, count, type}, op);
}

void LocalCommunicator::broadcast(Stream &stream, const void *in, void *out, size_t count,
                                  DataType type, int root, OpContext op) {
  enqueue(stream, {Kind::Broadcast, in, out, count, type, Reduction::Sum, root}, op);
}

void LocalCommunicator::send(Stream &stream, const void *in, size_t count, DataType type, int peer,
                             OpContext op) {
  enqueue(stream, {Kind::Send, in, nullptr, count, type, Reduction::Sum, peer}, op);
}

void LocalCommunicator::recv(Stream &stream, void *out, size_t count, DataType type, int peer,
                             OpContext op) {
  enqueue(stream, {Kind::Recv, nullptr, out, count, type, Reduction::Sum, peer}, op);
}

void LocalCommunicator::barrier(Stream &stream, OpContext op) {
  enqueue(stream, {Kind::Barrier}, op);
}

void LocalCommunicator::enqueue(Stream &stream, Call call, const OpContext &op) {
  call.operation.kind = op.kind && *op.kind ? op.kind : nameOf(call.kind);
  call.operation.sequence = op.sequence;
  call.operation.origin = op.origin;
  call.operation.group = group;
  checkRoot(call.kind, call.root, index, getSize(), call.operation);
  stream.enqueueHost([this, call = std::move(call)] { run(call); });
}

void LocalCommunicator::run(const Call &call) {
  membership->check(call.operation);
  if (ranks.size() == 1)
    return runAlone(call);
  if (call.kind == Kind::Send)
    return runSend(call);
  if (call.kind == Kind::Recv)
    return runRecv(call);
  std::lock_guard guard(collective);
  runCollective(call);
}

void LocalCommunicator::runAlone(const Call &call) {
  for (const GatheredValue &value : call.values)
    copyBytes(value.out, value.in, value.bytes);
  if (call.out)
    copyBytes(call.out, call.in, call.count * sizeOf(call.type));
}

//===----------------------------------------------------------------------===//
// Agreement: nobody touches data before all have said the same.
//===----------------------------------------------------------------------===//

LocalCommunicator::Announcement LocalCommunicator::announce(const Call &call) const {
  Announcement mine;
  mine.job = membership->getSegment().getJob();
  mine.epoch = membership->getEpoch();
  mine.terms = {call.kind, call.count,
                call.type, call.reduction,
                call.root, call.operation.sequence.value_or(0),
                {}};
  const std::string &origin = call.kind == Kind::Create ? name : call.operation.origin;
  memcpy(mine.origin, origin.data(), std::min(origin.size(), sizeof mine.origin - 1));
  return mine;
}

CallTerms LocalCommunicator::Announcement::getTerms() const {
  CallTerms result = terms;
  result.origin = origin;
  return result;
}

void LocalCommunicator::compareWith(const Call &call, const Announcement &mine,
                                    const Announcement &theirs, int member) {
  CallTerms own = mine.getTerms(), other = theirs.getTerms();
  if (theirs.job != mine.job || theirs.epoch != mine.epoch || !own.agreesWith(other))
    membership->fail(ErrorCode::InvalidArgument,
                     describeDisagreement(ranks[size_t(index)], own, ranks[size_t(member)], other),
                     call.operation);
}

void LocalCommunicator::open(const Call &call) {
  Announcement &mine = getMember(index).calls[calls % 2];
  mine = announce(call);
  mine.offer = offered;
  meet(call);
  isOffered = false;
  areInsShared = areOutsShared = true;
  for (int member = 0; member < getSize(); ++member) {
    const Announcement &theirs = getMember(member).calls[calls % 2];
    if (member != index)
      compareWith(call, mine, theirs, member);
    isOffered |= bool(theirs.offer);
    areInsShared &= bool(theirs.offer.in);
    areOutsShared &= bool(theirs.offer.out);
  }
  ++calls;
}

/// Members that made an offer have staged nothing before the first meeting. So all meet
/// once more where some did and others did not.
void LocalCommunicator::openStaged(const Call &call) {
  if (!offered)
    open(call);
  if (isOffered)
    meet(call);
}

void LocalCommunicator::meet(const Call &call) {
  uint32_t target = ++meetings;
  getMember(index).meetings.advanceTo(target);
  auto getMissing = [&] {
    std::vector<int> missing;
    for (int member = 0; member < getSize(); ++member)
      if (!getMember(member).meetings.hasReached(target))
        missing.push_back(ranks[size_t(member)]);
    return missing;
  };
  for (int member = 0; member < getSize(); ++member)
    membership->await(getMember(member).meetings, target, call.operation, getMissing);
}

//===----------------------------------------------------------------------===//
// Send and receive
//===----------------------------------------------------------------------===//

/// Chunks of a message; an empty one takes a chunk too, for its announcement.
static uint32_t countChunks(size_t bytes, size_t chunk) {
  return uint32_t(std::max<size_t>(1, (bytes + chunk - 1) / chunk));
}

void LocalCommunicator::runSend(const Call &call) {
  int peer = call.root;
  Channel &channel = getChannel(index, peer);
  ChannelState &state = channels[size_t(peer)];
  std::lock_guard guard(state.sending);
  auto *in = static_cast<const std::byte *>(call.in);
  size_t bytes = call.count * sizeOf(call.type);
  uint32_t begin = state.sent;
  uint32_t end = begin + countChunks(bytes, chunk);
  for (uint32_t number = begin; number != end; ++number) {
    membership->await(channel.received, number + 1 - chunksPerChannel, call.operation,
                      [&] { return std::vector<int>{ranks[size_t(peer)]}; });
    if (number == begin)
      channel.messages[number % chunksPerChannel] = announce(call);
    size_t offset = size_t(number - begin) * chunk;
    if (size_t part = std::min(chunk, bytes - offset))
      memcpy(getChannelChunk(index, peer, number), in + offset, part);
    channel.sent.advanceTo(number + 1);
  }
  state.sent = end;
}

void LocalCommunicator::runRecv(const Call &call) {
  int peer = call.root;
  Channel &channel = getChannel(peer, index);
  ChannelState &state = channels[size_t(peer)];
  std::lock_guard guard(state.receiving);
  auto *out = static_cast<std::byte *>(call.out);
  size_t bytes = call.count * sizeOf(call.type);
  uint32_t begin = state.received;
  uint32_t end = begin + countChunks(bytes, chunk);
  for (uint32_t number = begin; number != end; ++number) {
    membership->await(channel.sent, number + 1, call.operation,
                      [&] { return std::vector<int>{ranks[size_t(peer)]}; });
    if (number == begin)
      compareWith(call, announce(call), channel.messages[number % chunksPerChannel], peer);
    size_t offset = size_t(number - begin) * chunk;
    if (size_t part = std::min(chunk, bytes - offset))
      memcpy(out + offset, getChannelChunk(peer, index, number), part);
    channel.received.advanceTo(number + 1);
  }
  state.received = end;
}
