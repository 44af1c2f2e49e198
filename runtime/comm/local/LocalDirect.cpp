//===- LocalDirect.cpp - collectives on operands in shared memory ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A call is between two meetings: open, before which every member's input is complete and its
// output free, and one after which nobody touches another's operands. In between each member reads
// all inputs that concern it and writes bytes that no other writes or reads.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Reduce.h"
#include "runtime/comm/local/LocalCommunicator.h"

#include <algorithm>
#include <cstring>

using namespace gridloom::rt;

LocalCommunicator::Offer LocalCommunicator::offer(const Call &call) const {
  const size_t bytes = call.count * sizeOf(call.type), all = bytes * ranks.size();
  SegmentMemory &memory = membership->getSegmentMemory();
  const size_t most = getMostStaged();
  Offer mine;
  switch (call.kind) {
  case Kind::AllReduce: // staged, it meets as often
    if (isReducedAtOnce(call))
      return {};
    mine = {memory.find(call.in, bytes), memory.find(call.out, bytes)};
    return mine.in && mine.out ? mine : Offer{};
  case Kind::AllGather:
    if (bytes <= most || !call.values.empty())
      return {};
    return {memory.find(call.in, bytes), memory.find(call.out, all)};
  case Kind::ReduceScatter:
  case Kind::AllToAll:
    if (all <= most)
      return {};
    return {memory.find(call.in, all), {}};
  case Kind::Broadcast:
    if (bytes <= most || call.root != index)
      return {};
    return {memory.find(call.in, bytes), {}};
  default:
    return {};
  }
}

bool LocalCommunicator::runDirectly(const Call &call) {
  if (call.kind == Kind::Broadcast || !offered) // only the root of a broadcast stages
    return false;
  open(call);
  if (call.kind == Kind::AllReduce && areInsShared && areOutsShared)
    reduceDirectly(call);
  else if (call.kind == Kind::AllGather && (areInsShared || areOutsShared))
    gatherDirectly(call);
  else if (call.kind == Kind::ReduceScatter && areInsShared)
    scatterReduceDirectly(call);
  else if (call.kind == Kind::AllToAll && areInsShared)
    exchangeDirectly(call);
  else
    return false;
  meet(call);
  return true;
}

const LocalCommunicator::Offer &LocalCommunicator::getOffer(int member) const {
  return getMember(member).calls[(calls - 1) % 2].offer;
}

std::byte *LocalCommunicator::map(const SegmentPlace &place) {
  std::shared_ptr<Mapping> &mapping = peerMemory[place.region];
  if (!mapping) {
    mapping = membership->getSegment().map(place.region, place.regionBytes);
    mapping->populate();
  }
  return mapping->getData() + place.at;
}

/// Each member reduces its part, in blocks, and hands every block on while it is in the cache.
/// Where input and output are one, a part of either is touched by its member alone.
void LocalCommunicator::reduceDirectly(const Call &call) {
  const size_t n = ranks.size(), element = sizeOf(call.type);
  const size_t perBlock = (size_t(32) << 10) / element;
  const size_t first = getPartBegin(call.count, n, size_t(index), element);
  const size_t end = getPartBegin(call.count, n, size_t(index) + 1, element);
  std::vector<const void *> inputs(n);
  std::vector<std::byte *> ins(n), outs(n);
  for (size_t member = 0; member < n; ++member) {
    ins[member] = map(getOffer(int(member)).in);
    outs[member] = map(getOffer(int(member)).out);
  }
  for (size_t begin = first; begin < end; begin += perBlock) {
    size_t count = std::min(perBlock, end - begin);
    for (size_t member = 0; member < n; ++member)
      inputs[member] = ins[member] + begin * element;
    std::byte *mine = outs[size_t(index)] + begin * element;
    reduceOnHost(mine, inputs, count, call.type, call.reduction);
    for (size_t member = 0; member < n; ++member)
      if (member != size_t(index))
        copyBytes(outs[member] + begin * element, mine, count * element);
  }
}

/// Members begin with their own, so that no two read one's memory, or write it, at a time.
void LocalCommunicator::gatherDirectly(const Call &call) {
  const size_t bytes = call.count * sizeOf(call.type);
  for (int i = 0; i < getSize(); ++i) {
    int member = (index + i) % getSize();
    if (areInsShared)
      copyBytes(static_cast<std::byte *>(call.out) + size_t(member) * bytes,
                member == index ? call.in : map(getOffer(member).in), bytes);
    else
      copyBytes(map(getOffer(member).out) + size_t(index) * bytes, call.in, bytes);
  }
}

void LocalCommunicator::scatterReduceDirectly(const Call &call) {
  const size_t mine = size_t(index) * call.count * sizeOf(call.type);
  std::vector<const void *> inputs;
  for (int member = 0; member < getSize(); ++member)
    inputs.push_back(map(getOffer(member).in) + mine);
  reduceOnHost(call.out, inputs, call.count, call.type, call.reduction);
}

void LocalCommunicator::exchangeDirectly(const Call &call) {
  const size_t bytes = call.count * sizeOf(call.type);
  for (int i = 0; i < getSize(); ++i) {
    int member = (index + i) % getSize();
    copyBytes(static_cast<std::byte *>(call.out) + size_t(member) * bytes,
              map(getOffer(member).in) + size_t(index) * bytes, bytes);
  }
}

void LocalCommunicator::spreadDirectly(const Call &call) {
  copyBytes(call.out, call.root == index ? call.in : map(getOffer(call.root).in),
            call.count * sizeOf(call.type));
  meet(call);
}
