//===- LocalCollectives.cpp - the collectives' data movement --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Reduce.h"
#include "runtime/comm/local/LocalCommunicator.h"

#include <algorithm>
#include <cstring>

using namespace gridloom::rt;

size_t LocalCommunicator::getPartBegin(size_t total, size_t parts, size_t index,
                                       size_t elementBytes) {
  size_t line = 64 / elementBytes;
  size_t part = (total + parts - 1) / parts;
  part = (part + line - 1) / line * line;
  return std::min(total, part * index);
}

void LocalCommunicator::runCollective(const Call &call) {
  offered = offer(call);
  if (runDirectly(call))
    return;
  switch (call.kind) {
  case Kind::AllReduce:
    return isReducedAtOnce(call) ? reduceAtOnce(call) : reduceByParts(call);
  case Kind::AllGather:
    return call.values.empty() ? gather(call) : gatherMany(call);
  case Kind::ReduceScatter:
    return scatterReduce(call);
  case Kind::AllToAll:
    return exchange(call);
  case Kind::Broadcast:
    return spread(call);
  default:
    return open(call);
  }
}

bool LocalCommunicator::isReducedAtOnce(const Call &call) const {
  // Saves a meeting and costs little arithmetic.
  constexpr size_t most = 8 << 10;
  return call.count * sizeOf(call.type) <= std::min(most, chunk);
}

void LocalCommunicator::reduceAtOnce(const Call &call) {
  copyBytes(getStage(index, rounds), call.in, call.count * sizeOf(call.type));
  open(call);
  std::vector<const void *> inputs;
  for (int member = 0; member < getSize(); ++member)
    inputs.push_back(member == index ? call.in : getStage(member, rounds));
  reduceOnHost(call.out, inputs, call.count, call.type, call.reduction);
  ++rounds;
}

/// Per chunk: each member reduces its part of all members' stages into its own stage, from which
/// all copy it. The next chunk is staged before the meeting, so that one meeting serves both.
void LocalCommunicator::reduceByParts(const Call &call) {
  const size_t n = ranks.size();
  const size_t element = sizeOf(call.type);
  const size_t perRound = chunk / element;
  const auto *in = static_cast<const std::byte *>(call.in);
  auto *out = static_cast<std::byte *>(call.out);
  auto begin = [&](size_t total, size_t part) { return getPartBegin(total, n, part, element); };

  // A member reads its own part from its input, so it stages the rest only.
  auto stage = [&](size_t first, uint64_t round) {
    size_t total = std::min(perRound, call.count - first);
    std::byte *to = getStage(index, round);
    size_t skip = begin(total, size_t(index)) * element;
    size_t resume = begin(total, size_t(index) + 1) * element;
    copyBytes(to, in + first * element, skip);
    copyBytes(to + resume, in + first * element + resume, total * element - resume);
  };

  stage(0, rounds);
  openStaged(call);
  std::vector<const void *> inputs(n);
  for (size_t first = 0; first < call.count; first += perRound, ++rounds) {
    size_t total = std::min(perRound, call.count - first);
    size_t part = begin(total, size_t(index));
    size_t count = begin(total, size_t(index) + 1) - part;
    for (size_t member = 0; member < n; ++member)
      inputs[member] = member == size_t(index) ? in + (first + part) * element
                                               : getStage(int(member), rounds) + part * element;
    std::byte *reduced = getStage(index, rounds) + part * element;
    reduceOnHost(reduced, inputs, count, call.type, call.reduction);
    if (first + perRound < call.count)
      stage(first + perRound, rounds + 1);
    meet(call);
    for (size_t member = 0; member < n; ++member) {
      size_t from = begin(total, member);
      copyBytes(out + (first + from) * element, getStage(int(member), rounds) + from * element,
                (begin(total, member + 1) - from) * element);
    }
  }
}

void LocalCommunicator::gather(const Call &call) {
  const size_t bytes = call.count * sizeOf(call.type);
  const auto *in = static_cast<const std::byte *>(call.in);
  auto *out = static_cast<std::byte *>(call.out);
  size_t first = 0;
  do {
    size_t part = std::min(chunk, bytes - first);
    copyBytes(getStage(index, rounds), in + first, part);
    first == 0 ? openStaged(call) : meet(call);
    for (int member = 0; member < getSize(); ++member)
      copyBytes(out + size_t(member) * bytes + first,
                member == index ? in + first : getStage(member, rounds), part);
    ++rounds;
    first += part;
  } while (first < bytes);
}

/// Values lie in a stage one after another, as many as it has room for.
void LocalCommunicator::gatherMany(const Call &call) {
  bool isFirst = true;
  for (std::span<const GatheredValue> rest = call.values; !rest.empty(); isFirst = false) {
    size_t number = 0, staged = 0;
    for (; number < rest.size() && staged + rest[number].bytes <= chunk; ++number) {
      copyBytes(getStage(index, rounds) + staged, rest[number].in, rest[number].bytes);
      staged += rest[number].bytes;
    }
    isFirst ? openStaged(call) : meet(call);
    for (int member = 0; member < getSize(); ++member) {
      const std::byte *from = getStage(member, rounds);
      for (const GatheredValue &value : rest.first(number)) {
        copyBytes(static_cast<std::byte *>(value.out) + size_t(member) * value.bytes,
                  member == index ? value.in : from, value.bytes);
        from += value.bytes;
      }
    }
    ++rounds;
    rest = rest.subspan(number);
  }
}

/// A stage holds a piece for every member.
void LocalCommunicator::scatterReduce(const Call &call) {
  const size_t n = ranks.size();
  const size_t element = sizeOf(call.type);
  const size_t pieceBytes = chunk / n / 64 * 64;
  const size_t perRound = pieceBytes / element;
  const auto *in = static_cast<const std::byte *>(call.in);
  auto *out = static_cast<std::byte *>(call.out);
  std::vector<const void *> inputs(n);
  size_t first = 0;
  do {
    size_t count = std::min(perRound, call.count - first);
    auto getInput = [&](size_t part) { return in + (part * call.count + first) * element; };
    for (size_t member = 0; member < n; ++member)
      if (member != size_t(index))
        copyBytes(getStage(index, rounds) + member * pieceBytes, getInput(member), count * element);
    first == 0 ? openStaged(call) : meet(call);
    for (size_t member = 0; member < n; ++member)
      inputs[member] = member == size_t(index)
                           ? getInput(member)
                           : getStage(int(member), rounds) + size_t(index) * pieceBytes;
    reduceOnHost(out + first * element, inputs, count, call.type, call.reduction);
    ++rounds;
    first += count;
  } while (first < call.count);
}

void LocalCommunicator::exchange(const Call &call) {
  const size_t n = ranks.size();
  const size_t pieceBytes = chunk / n / 64 * 64;
  const size_t bytes = call.count * sizeOf(call.type);
  const auto *in = static_cast<const std::byte *>(call.in);
  auto *out = static_cast<std::byte *>(call.out);
  size_t first = 0;
  do {
    size_t part = std::min(pieceBytes, bytes - first);
    for (size_t member = 0; member < n; ++member)
      copyBytes(getStage(index, rounds) + member * pieceBytes, in + member * bytes + first, part);
    first == 0 ? openStaged(call) : meet(call);
    for (size_t member = 0; member < n; ++member)
      copyBytes(out + member * bytes + first,
                getStage(int(member), rounds) + size_t(index) * pieceBytes, part);
    ++rounds;
    first += part;
  } while (first < bytes);
}

void LocalCommunicator::spread(const Call &call) {
  const size_t bytes = call.count * sizeOf(call.type);
  const bool isRoot = call.root == index;
  const bool isStaging = isRoot && !offered;
  const auto *in = static_cast<const std::byte *>(call.in);
  auto *out = static_cast<std::byte *>(call.out);
  size_t first = 0;
  do {
    size_t part = std::min(chunk, bytes - first);
    if (isStaging)
      copyBytes(getStage(index, rounds), in + first, part);
    first == 0 ? open(call) : meet(call);
    if (first == 0 && getOffer(call.root))
      return spreadDirectly(call);
    copyBytes(out + first, isRoot ? in + first : getStage(call.root, rounds), part);
    ++rounds;
    first += part;
  } while (first < bytes);
}
