//===- PtxAccess.cpp - loads, stores and atomic operations ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxBlock.h"
#include "test/fake/PtxNumbers.h"

#include <cstring>

namespace gridloom::fake {

PtxMoment PtxBlocks::now(const PtxWarp &warp, unsigned lane, bool isShared) const {
  PtxMoment moment;
  moment.block = block;
  moment.firstBlock = isShared ? block : firstBlock;
  moment.thread = warp.number * ptxWarpSize + lane;
  moment.clock = clock;
  moment.blockClock = blockClock;
  moment.warpClock = warp.clock;
  return moment;
}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

PtxBlocks::Place PtxBlocks::locate(PtxWarp &warp, const PtxInstruction &i, unsigned lane,
                                   size_t bytes, bool writes) {
  auto address = static_cast<uint64_t>(i.offset);
  if (i.hasBase)
    address += warp.slot(i.base)[lane];
  if (address % bytes)
    failAt(warp, lane, i, "makes a misaligned access of " + std::to_string(bytes) + " bytes");
  PtxSpace space = i.space;
  if (space == PtxSpace::Generic) {
    space = address >= ptxLocalWindow    ? PtxSpace::Local
            : address >= ptxSharedWindow ? PtxSpace::Shared
                                         : PtxSpace::Global;
    address -= space == PtxSpace::Local    ? ptxLocalWindow
               : space == PtxSpace::Shared ? ptxSharedWindow
                                           : 0;
  }
  if (space == PtxSpace::Global)
    return locateGlobal(warp, i, lane, address, bytes, writes);
  if (space == PtxSpace::Shared) {
    for (const PtxVariable &variable : sharedVariables) {
      // A vector load may read up to the end of the variable's alignment: LLVM emits such loads and
      // drops the rest.
      size_t past = writes || i.vector == 1 ? 1 : variable.alignment;
      if (address >= variable.begin && address + bytes <= (variable.end + past - 1) / past * past)
        return {shared.data() + address, &sharedShadow, address, true, nullptr};
    }
    failAt(warp, lane, i,
           "leaves its shared memory, variables up to byte " + std::to_string(shared.size()) +
               ", at byte " + std::to_string(static_cast<int64_t>(address)));
  }
  if (address + bytes > kernel.localBytes)
    failAt(warp, lane, i,
           "leaves the " + std::to_string(kernel.localBytes) + " bytes of a thread's memory");
  size_t offset = (warp.number * ptxWarpSize + lane) * kernel.localBytes + address;
  return {local.data() + offset, &localShadow, offset, false, nullptr};
}

PtxBlocks::Place PtxBlocks::locateGlobal(PtxWarp &warp, const PtxInstruction &i, unsigned lane,
                                         uint64_t address, size_t bytes, bool writes) {
  auto *pointer = reinterpret_cast<std::byte *>(address);
  auto holds = [&](const PtxBuffer &buffer) {
    return pointer >= buffer.base && pointer + bytes <= buffer.end;
  };
  // Buffers are sorted; an address belongs to the one that begins last before it.
  auto isMeant = [&](PtxBuffer *buffer) {
    return holds(*buffer) && (buffer == &buffers.back() || buffer[1].base > pointer);
  };
  PtxBuffer *found = lastBuffer && isMeant(lastBuffer) ? lastBuffer : nullptr;
  for (size_t n = buffers.size(); !found && n-- > 0;)
    if (holds(buffers[n]))
      found = &buffers[n];
  if (!found) {
    for (const auto &words : kernel.data) {
      auto *begin = reinterpret_cast<std::byte *>(words->data());
      if (!writes && pointer >= begin && pointer + bytes <= begin + 8 * words->size())
        return {pointer, nullptr, 0, false, nullptr};
    }
    failAt(warp, lane, i, std::string(writes ? "writes" : "reads") + " outside of its buffers");
  }
  lastBuffer = found;
  std::byte *&begin = writes ? found->writeBegin : found->readBegin;
  std::byte *&end = writes ? found->writeEnd : found->readEnd;
  begin = begin ? std::min(begin, pointer) : pointer;
  end = std::max(end, pointer + bytes);
  return {pointer, found->shadow, static_cast<size_t>(pointer - found->begin), false, found};
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

static bool isSigned(PtxType type) {
  return type == PtxType::S8 || type == PtxType::S16 || type == PtxType::S32;
}

void PtxBlocks::requireAddress(const PtxWarp &warp, const PtxInstruction &i, uint32_t active,
                               const std::string &what) const {
  if (uint32_t unknown = i.hasBase ? active & ~warp.defined[i.base] : 0)
    failAt(warp, static_cast<unsigned>(std::countr_zero(unknown)), i, what);
}

void PtxBlocks::load(PtxWarp &warp, const PtxInstruction &i, uint32_t active) {
  size_t bytes = getBytes(i.type);
  size_t all = bytes * i.vector;
  requireAddress(warp, i, active, "reads at an address that was never written");
  unsigned sign = isSigned(i.type) ? static_cast<unsigned>(64 - 8 * bytes) : 0;
  for (unsigned n = 0; n < i.vector; ++n)
    warp.defined[i.results[n]] |= active;
  forLanes(active, [&](unsigned lane) {
    Place place = locate(warp, i, lane, all, false);
    if (place.shadow) {
      PtxMoment moment = now(warp, lane, place.isShared);
      moment.isReadOnly = i.readOnly;
      if (const char *wrong = place.shadow->read(place.offset, all, moment))
        failAt(warp, lane, i, wrong);
      if (!place.shadow->isWritten(place.offset, all))
        noteUnwritten(warp, i, lane, place);
    }
    for (unsigned n = 0; n < i.vector; ++n) {
      uint64_t bits = 0;
      std::memcpy(&bits, place.data + n * bytes, bytes);
      if (sign)
        bits = static_cast<uint64_t>(static_cast<int64_t>(bits << sign) >> sign);
      warp.slot(i.results[n])[lane] = bits;
    }
  });
}

/// A load that includes unwritten bytes. They are allowed if a shared vector has a part that was
/// written, because the rest may be dropped, and for global memory if not strict: the result is
/// then unknown.
void PtxBlocks::noteUnwritten(PtxWarp &warp, const PtxInstruction &i, unsigned lane,
                              const Place &place) {
  size_t bytes = getBytes(i.type);
  bool isAllowed = !place.isShared && !options.strict;
  for (unsigned n = 0; n < i.vector; ++n)
    isAllowed |=
        i.vector > 1 && place.isShared && place.shadow->isWritten(place.offset + n * bytes, bytes);
  if (!isAllowed)
    failAt(warp, lane, i, "reads memory that was never written");
  for (unsigned n = 0; n < i.vector; ++n) {
    unsigned known = 0;
    for (unsigned byte = 0; byte < bytes; ++byte)
      known |= unsigned(place.shadow->isWritten(place.offset + n * bytes + byte, 1)) << byte;
    bool isWhole = known + 1 == 1U << bytes;
    warp.setKnownBytes(i.results[n], lane, isWhole ? 0xff : static_cast<uint8_t>(known));
  }
}

void PtxBlocks::store(PtxWarp &warp, const PtxInstruction &i, uint32_t active) {
  size_t bytes = getBytes(i.type);
  size_t all = bytes * i.vector;
  requireAddress(warp, i, active, "writes at an address that was never written");
  forLanes(active, [&](unsigned lane) {
    Place place = locate(warp, i, lane, all, true);
    if (const char *wrong = place.shadow->write(place.offset, all, now(warp, lane, place.isShared)))
      failAt(warp, lane, i, wrong);
    for (unsigned n = 0; n < i.vector; ++n) {
      uint64_t bits = warp.slot(i.sources[n])[lane];
      std::memcpy(place.data + n * bytes, &bits, bytes);
      uint8_t known = warp.knownBytes(i.sources[n], lane);
      for (unsigned byte = 0; byte < bytes; byte = known == 0xff ? 8 : byte + 1)
        place.shadow->markWritten(place.offset + n * bytes + byte, known == 0xff ? bytes : 1,
                                  known >> byte & 1);
    }
  });
}

/// The new value of an atomic operation on `old`; `second` is cas's new value.
template <typename T> static T combineAtomic(const PtxInstruction &i, T old, T value, T second) {
  if (i.has("exch"))
    return value;
  if (i.has("cas"))
    return old == value ? second : old;
  if (i.has("min"))
    return std::min(old, value);
  if (i.has("max"))
    return std::max(old, value);
  if (i.has("add")) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                            static_cast<std::make_unsigned_t<T>>(value));
    else
      return old + value;
  }
  if constexpr (std::is_integral_v<T>)
    return i.has("and") ? old & value : i.has("or") ? old | value : old ^ value;
  return value;
}

static uint64_t combineBits(const PtxInstruction &i, uint64_t old, uint64_t value,
                            uint64_t second) {
  auto as = [&](auto zero) {
    using T = decltype(zero);
    return encode(combineAtomic<T>(i, decode<T>(old), decode<T>(value), decode<T>(second)));
  };
  switch (i.type) {
  case PtxType::U32:
    return as(uint32_t());
  case PtxType::S32:
    return as(int32_t());
  case PtxType::U64:
    return as(uint64_t());
  case PtxType::S64:
    return as(int64_t());
  case PtxType::F32:
    return as(float());
  case PtxType::F64:
    return as(double());
  default:
    throw PtxError("an atomic operation of a type that is not understood: " + i.text);
  }
}

void PtxBlocks::modify(PtxWarp &warp, const PtxInstruction &i, uint32_t active) {
  size_t bytes = getBytes(i.type);
  bool isCas = i.has("cas");
  uint32_t known = active & (i.hasBase ? warp.defined[i.base] : ~uint32_t(0)) &
                   warp.defined[i.sources[0]] & (isCas ? warp.defined[i.sources[1]] : ~uint32_t(0));
  if (uint32_t unknown = active & ~known)
    failAt(warp, static_cast<unsigned>(std::countr_zero(unknown)), i,
           "uses what was never written");
  forLanes(active, [&](unsigned lane) {
    Place place = locate(warp, i, lane, bytes, true);
    if (place.buffer) { // it also reads
      PtxBuffer &buffer = *place.buffer;
      buffer.readBegin = buffer.readBegin ? std::min(buffer.readBegin, place.data) : place.data;
      buffer.readEnd = std::max(buffer.readEnd, place.data + bytes);
    }
    PtxMoment moment = now(warp, lane, place.isShared);
    moment.atomic = true;
    if (const char *wrong = place.shadow->write(place.offset, bytes, moment))
      failAt(warp, lane, i, wrong);
    if (!place.shadow->isWritten(place.offset, bytes))
      failAt(warp, lane, i, "reads memory that was never written");
    uint64_t old = 0;
    std::memcpy(&old, place.data, bytes);
    uint64_t result = combineBits(i, old, warp.slot(i.sources[0])[lane],
                                  isCas ? warp.slot(i.sources[1])[lane] : 0);
    std::memcpy(place.data, &result, bytes);
    if (i.numResults) {
      warp.slot(i.results[0])[lane] = old;
      warp.defined[i.results[0]] |= uint32_t(1) << lane;
    }
  });
}

} // namespace gridloom::fake
