//===- PtxInterpreter.cpp - running PTX on the host -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxBlock.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace gridloom::fake {

namespace {

unsigned lowest(uint32_t set) { return static_cast<unsigned>(std::countr_zero(set)); }
uint32_t bit(unsigned lane) { return uint32_t(1) << lane; }

uint32_t countThreads(const Launch &launch) {
  return launch.block[0] * launch.block[1] * launch.block[2];
}

/// A block's shared variables; a dynamic one, the last, has the size that the launch requests.
std::vector<PtxVariable> layOutShared(const PtxKernel &kernel, const Launch &launch) {
  std::vector<PtxVariable> variables = kernel.shared;
  if (kernel.hasDynamicShared)
    variables.back().end += launch.sharedBytes;
  return variables;
}

/// The end of the last variable, padded to its alignment.
size_t endOf(const std::vector<PtxVariable> &variables) {
  if (variables.empty())
    return 0;
  size_t alignment = variables.back().alignment;
  return (variables.back().end + alignment - 1) / alignment * alignment;
}

uint32_t readSpecial(uint32_t special, uint32_t thread, const Launch &launch,
                     const uint32_t *index) {
  const uint32_t *size = launch.block;
  uint32_t dim = special % 3;
  switch (special / 3) {
  case 0:
    return dim == 0   ? thread % size[0]
           : dim == 1 ? thread / size[0] % size[1]
                      : thread / size[0] / size[1];
  case 1:
    return size[dim];
  case 2:
    return index[dim];
  case 3:
    return launch.grid[dim];
  default:
    return dim == 0   ? thread % ptxWarpSize
           : dim == 1 ? thread / ptxWarpSize
                      : (countThreads(launch) + ptxWarpSize - 1) / ptxWarpSize;
  }
}

} // namespace

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

PtxBlocks::PtxBlocks(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers,
                     const PtxOptions &options)
    : kernel(kernel), launch(launch), buffers(buffers), options(options), random(options.seed),
      sharedVariables(layOutShared(kernel, launch)), shared(endOf(sharedVariables)),
      local(kernel.localBytes * countThreads(launch)), sharedShadow(shared.size()),
      localShadow(local.size()), definedAtStart(kernel.numSlots),
      instructionsLeft(options.maxInstructions ? options.maxInstructions : ~uint64_t(0)) {
  uint32_t threads = countThreads(launch);
  warps.resize((threads + ptxWarpSize - 1) / ptxWarpSize);
  for (const auto &[slot, bits] : kernel.constants)
    definedAtStart[slot] = ~uint32_t(0);
  for (const auto &[slot, special] : kernel.specials)
    definedAtStart[slot] = ~uint32_t(0);
  for (uint32_t slot : kernel.parameters)
    definedAtStart[slot] = ~uint32_t(0);
  for (PtxWarp &warp : warps) {
    warp.number = static_cast<uint32_t>(&warp - warps.data());
    uint32_t here = std::min(ptxWarpSize, threads - warp.number * ptxWarpSize);
    warp.exist = here == ptxWarpSize ? ~uint32_t(0) : bit(here) - 1;
    warp.parts.resize(kernel.numSlots);
    warp.file.resize(size_t(ptxWarpSize) * kernel.numSlots);
    for (const auto &[slot, bits] : kernel.constants)
      std::fill_n(warp.slot(slot), ptxWarpSize, bits);
    for (size_t n = 0; n < kernel.parameters.size(); ++n)
      std::fill_n(warp.slot(kernel.parameters[n]), ptxWarpSize,
                  reinterpret_cast<uint64_t>(launch.pointers[n]));
  }
}

void PtxBlocks::start(const uint32_t *index) {
  clock = blockClock = 1;
  std::fill(shared.begin(), shared.end(), std::byte{0xff});
  sharedShadow.clear();
  localShadow.clear();
  for (PtxWarp &warp : warps) {
    warp.done = warp.atBarrier = warp.atMeeting = 0;
    warp.clock = clock;
    warp.pc = {};
    warp.defined = definedAtStart;
    for (std::vector<uint8_t> &parts : warp.parts)
      parts.clear();
    for (const auto &[slot, special] : kernel.specials)
      for (unsigned lane = 0; lane < ptxWarpSize; ++lane)
        warp.slot(slot)[lane] =
            readSpecial(special, warp.number * ptxWarpSize + lane, launch, index);
  }
}

void PtxBlocks::run(const uint32_t *index, uint32_t number, uint32_t first) {
  block = number;
  firstBlock = first;
  start(index);
  std::vector<size_t> order(warps.size());
  std::iota(order.begin(), order.end(), size_t(0));
  for (;;) {
    if (options.seed)
      std::shuffle(order.begin(), order.end(), random);
    bool moved = false;
    for (size_t n : order)
      if (warps[n].ready()) {
        runWarp(warps[n]);
        moved = true;
      }
    bool released = false;
    for (PtxWarp &warp : warps)
      if (warp.atMeeting && !warp.ready())
        released |= releaseMeetings(warp);
    if (moved || released)
      continue;
    if (std::all_of(warps.begin(), warps.end(),
                    [](const PtxWarp &warp) { return warp.done == warp.exist; }))
      return;
    if (!releaseBarrier())
      fail("has threads that wait for each other at different places");
  }
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

/// Runs a warp until all its threads wait or are done; with a seed, only for a while.
void PtxBlocks::runWarp(PtxWarp &warp) {
  for (uint64_t turns = options.seed ? 1 + random() % 16 : ~uint64_t(0); turns > 0; --turns) {
    uint32_t group = chooseGroup(warp);
    if (!group)
      return;
    runGroup(warp, group, options.seed ? 1 + random() % 64 : ~uint64_t(0));
  }
}

/// Threads at one instruction: those furthest behind, or with a seed any.
uint32_t PtxBlocks::chooseGroup(const PtxWarp &warp) {
  uint32_t ready = warp.ready();
  if (!ready)
    return 0;
  uint32_t pc = ~uint32_t(0);
  if (options.seed) {
    uint32_t rest = ready;
    for (uint64_t skip = random() % static_cast<unsigned>(std::popcount(ready)); skip > 0; --skip)
      rest &= rest - 1;
    pc = warp.pc[lowest(rest)];
  } else {
    for (uint32_t rest = ready; rest; rest &= rest - 1)
      pc = std::min(pc, warp.pc[lowest(rest)]);
  }
  uint32_t group = 0;
  for (uint32_t rest = ready; rest; rest &= rest - 1)
    if (warp.pc[lowest(rest)] == pc)
      group |= bit(lowest(rest));
  return group;
}

uint32_t PtxBlocks::applyGuard(PtxWarp &warp, const PtxInstruction &i, uint32_t group) {
  if (i.guard < 0)
    return group;
  auto slot = static_cast<uint32_t>(i.guard);
  if (uint32_t unknown = group & ~warp.defined[slot])
    failAt(warp, lowest(unknown), i, "branches on what was never written");
  const uint64_t *guards = warp.slot(slot);
  uint32_t active = 0;
  for (uint32_t rest = group; rest; rest &= rest - 1)
    if ((guards[lowest(rest)] != 0) != i.guardInverted)
      active |= bit(lowest(rest));
  return active;
}

/// Runs the threads of `group`, which are at one instruction, until they diverge, wait, use up the
/// budget, or reach other threads.
void PtxBlocks::runGroup(PtxWarp &warp, uint32_t group, uint64_t budget) {
  uint32_t pc = warp.pc[lowest(group)];
  uint32_t meeting = ~uint32_t(0); // where the nearest threads ahead are
  for (uint32_t rest = warp.ready() & ~group; rest; rest &= rest - 1)
    if (warp.pc[lowest(rest)] > pc)
      meeting = std::min(meeting, warp.pc[lowest(rest)]);
  auto leave = [&](uint32_t who, uint32_t place) {
    for (; who; who &= who - 1)
      warp.pc[lowest(who)] = place;
  };
  for (; budget > 0; --budget) {
    if (pc >= kernel.code.size())
      fail("runs past its end");
    if (--instructionsLeft == 0)
      fail("does not end within " + std::to_string(options.maxInstructions) + " instructions");
    const PtxInstruction &i = kernel.code[pc];
    uint32_t active = applyGuard(warp, i, group);
    uint32_t next = pc + 1;
    if (i.compute) {
      if (active)
        compute(warp, i, active);
    } else {
      switch (i.name) {
      case PtxName::Bra:
        if (active == group) {
          next = i.target;
        } else if (active) {
          leave(active, i.target);
          return leave(group & ~active, next);
        }
        break;
      case PtxName::Exit:
        warp.done |= active;
        group &= ~active;
        if (!group)
          return;
        break;
      case PtxName::Trap:
        if (active)
          failAt(warp, lowest(active), i, "traps");
        break;
      case PtxName::Ld:
        load(warp, i, active);
        break;
      case PtxName::St:
        store(warp, i, active);
        break;
      case PtxName::Atom:
        modify(warp, i, active);
        break;
      case PtxName::Activemask:
        std::fill_n(warp.slot(i.results[0]), ptxWarpSize, active);
        warp.defined[i.results[0]] |= active;
        break;
      default:
        (i.name == PtxName::Bar && !i.has("warp") ? warp.atBarrier : warp.atMeeting) |= active;
        leave(active, pc);
        group &= ~active;
        if (!group)
          return;
      }
    }
    pc = next;
    if (pc >= meeting)
      break;
  }
  leave(group, pc);
}

void PtxBlocks::failAt(const PtxWarp &warp, unsigned lane, const PtxInstruction &i,
                       const std::string &what) const {
  fail(what + " (thread " + std::to_string(warp.number * ptxWarpSize + lane) + " of block " +
       std::to_string(block - firstBlock) + " at '" + i.text + "')");
}

//===----------------------------------------------------------------------===//
// Values that were never written
//===----------------------------------------------------------------------===//

void PtxWarp::setKnownBytes(uint32_t index, unsigned lane, uint8_t bytes) {
  if (bytes == 0xff) {
    defined[index] |= bit(lane);
    return;
  }
  defined[index] &= ~bit(lane);
  if (parts[index].empty())
    parts[index].resize(ptxWarpSize);
  parts[index][lane] = bytes;
}

void PtxBlocks::compute(PtxWarp &warp, const PtxInstruction &i, uint32_t active) {
  uint32_t known = active;
  for (unsigned n = 0; n < i.numSources; ++n)
    known &= warp.defined[i.sources[n]];
  if (known != active)
    return computeUnknown(warp, i, active);
  i.compute(i, warp.file.data(), active);
  for (unsigned n = 0; n < i.numResults; ++n)
    warp.defined[i.results[n]] |= active;
}

namespace {

/// The lowest `count` bytes, as bits.
uint8_t lowBytes(unsigned count) {
  return static_cast<uint8_t>(count >= 8 ? 0xff : (1 << count) - 1);
}

/// The known bytes of the first result. `sources` are the known bytes of `values`.
uint8_t findKnown(const PtxInstruction &i, const uint8_t *sources, const uint64_t *values) {
  unsigned size = getBytes(i.type);
  uint8_t needed = lowBytes(size);
  auto isKnown = [&](unsigned n) { return (sources[n] & needed) == needed; };
  switch (i.name) {
  case PtxName::Selp:
    return sources[2] & 1 ? sources[values[2] & 1 ? 0 : 1] : 0;
  case PtxName::Mov: {
    if (i.numSources == 1)
      return (sources[0] & needed) == needed ? 0xff : sources[0];
    unsigned part = size / i.numSources, known = 0;
    for (unsigned n = 0; n < i.numSources; ++n)
      known |= unsigned(sources[n] & lowBytes(part)) << (n * part);
    return known == needed ? 0xff : static_cast<uint8_t>(known);
  }
  case PtxName::Cvt: {
    if (i.round != 0 || i.saturate || i.numSources != 1)
      break;
    // For integers, truncated bytes do not matter, and zero extension adds known ones.
    unsigned kept = sources[0] & lowBytes(std::min(size, getBytes(i.to)));
    if (isKnown(0) || kept == lowBytes(getBytes(i.to)))
      return 0xff;
    bool isUnsigned = i.type == PtxType::U8 || i.type == PtxType::U16 || i.type == PtxType::U32;
    return static_cast<uint8_t>(isUnsigned ? kept | (0xffU & ~unsigned(needed)) : kept);
  }
  case PtxName::Prmt: {
    unsigned known = 0;
    for (unsigned n = 0; n < 4 && (sources[2] & 3) == 3; ++n) {
      unsigned choice = values[2] >> (4 * n) & 7;
      known |= unsigned(sources[choice / 4] >> (choice % 4) & 1) << n;
    }
    return known == 15 ? 0xff : static_cast<uint8_t>(known);
  }
  case PtxName::And:
  case PtxName::Or: {
    // Byte by byte: 0 and x is 0, all ones or x is all ones.
    unsigned known = sources[0] & sources[1];
    for (unsigned n = 0; n < 2; ++n)
      for (unsigned byte = 0; byte < size; ++byte) {
        unsigned all = i.type == PtxType::Pred ? 1 : 0xff;
        unsigned value = values[n] >> (8 * byte) & all;
        if ((sources[n] >> byte & 1) && value == (i.name == PtxName::And ? 0 : all))
          known |= 1U << byte;
      }
    return (known & needed) == needed ? 0xff : static_cast<uint8_t>(known);
  }
  case PtxName::Add:
  case PtxName::Sub:
  case PtxName::Mul: {
    // The lower bytes of the result depend only on the lower bytes of the operands.
    bool isInteger = i.type >= PtxType::U8 && i.type <= PtxType::S64;
    if (!isInteger || i.has("hi") || i.has("wide") || i.saturate || i.carriesIn || i.has("cc"))
      break;
    auto count =
        static_cast<unsigned>(std::countr_one(static_cast<uint8_t>(sources[0] & sources[1])));
    return count >= size ? 0xff : lowBytes(count);
  }
  default:
    break;
  }
  for (unsigned n = 0; n < i.numSources; ++n)
    if (!isKnown(n))
      return 0;
  return 0xff;
}

} // namespace

/// Like `compute`, if some operand is not fully written: the unwritten bytes may not matter.
void PtxBlocks::computeUnknown(PtxWarp &warp, const PtxInstruction &i, uint32_t active) {
  std::array<std::array<uint8_t, ptxWarpSize>, 8> known = {};
  for (uint32_t rest = active; rest; rest &= rest - 1) {
    unsigned lane = lowest(rest);
    uint8_t sources[8];
    uint64_t values[8];
    for (unsigned n = 0; n < i.numSources; ++n) {
      sources[n] = warp.knownBytes(i.sources[n], lane);
      values[n] = warp.slot(i.sources[n])[lane];
    }
    if (i.name == PtxName::Mov && i.numResults > 1) {
      unsigned part = getBytes(i.type) / i.numResults;
      for (unsigned n = 0; n < i.numResults; ++n) {
        auto bytes = static_cast<uint8_t>(sources[0] >> (n * part) & lowBytes(part));
        known[n][lane] = bytes == lowBytes(part) ? 0xff : bytes;
      }
      continue;
    }
    for (unsigned n = 0; n < i.numResults; ++n)
      known[n][lane] = findKnown(i, sources, values);
  }
  i.compute(i, warp.file.data(), active);
  for (unsigned n = 0; n < i.numResults; ++n)
    for (uint32_t rest = active; rest; rest &= rest - 1)
      warp.setKnownBytes(i.results[n], lowest(rest), known[n][lowest(rest)]);
}

//===----------------------------------------------------------------------===//
// Synchronisation of threads
//===----------------------------------------------------------------------===//

/// Releases threads that have all reached the same warp-wide instruction.
bool PtxBlocks::releaseMeetings(PtxWarp &warp) {
  bool released = false;
  for (uint32_t waiting = warp.atMeeting; waiting;) {
    unsigned first = lowest(waiting);
    uint32_t pc = warp.pc[first];
    const PtxInstruction &i = kernel.code[pc];
    uint32_t slot = i.sources[i.numSources - 1];
    if (!(warp.defined[slot] & bit(first)))
      failAt(warp, first, i, "has a mask of threads that was never written");
    auto mask = static_cast<uint32_t>(warp.slot(slot)[first]);
    uint32_t here = 0;
    for (uint32_t rest = waiting; rest; rest &= rest - 1)
      if (warp.pc[lowest(rest)] == pc &&
          static_cast<uint32_t>(warp.slot(slot)[lowest(rest)]) == mask)
        here |= bit(lowest(rest));
    waiting &= ~here;
    if (uint32_t strange = here & ~mask)
      failAt(warp, lowest(strange), i, "is at an instruction whose mask lacks it");
    if ((mask & warp.exist & ~warp.done) != here)
      continue; // some are missing
    meet(warp, i, here, mask);
    warp.atMeeting &= ~here;
    for (uint32_t rest = here; rest; rest &= rest - 1)
      warp.pc[lowest(rest)] = pc + 1;
    released = true;
  }
  return released;
}

void PtxBlocks::meet(PtxWarp &warp, const PtxInstruction &i, uint32_t members, uint32_t mask) {
  switch (i.name) {
  case PtxName::Shfl:
    return shuffle(warp, i, members, mask);
  case PtxName::Vote:
    return vote(warp, i, members);
  case PtxName::Redux:
    return reduce(warp, i, members);
  default:
    if (members != (warp.exist & ~warp.done))
      fail("has a barrier of some threads of a warp, which is not understood");
    warp.clock = ++clock;
  }
}

/// shfl.sync.MODE.b32 d|p, a, b, c, mask
void PtxBlocks::shuffle(PtxWarp &warp, const PtxInstruction &i, uint32_t members, uint32_t mask) {
  std::array<uint64_t, ptxWarpSize> values;
  std::copy_n(warp.slot(i.sources[0]), ptxWarpSize, values.begin());
  uint32_t known = warp.defined[i.sources[0]];
  for (uint32_t rest = members; rest; rest &= rest - 1) {
    unsigned number = lowest(rest);
    if (!(warp.defined[i.sources[1]] & warp.defined[i.sources[2]] & bit(number)))
      failAt(warp, number, i, "shuffles from a lane whose number was never written");
    auto lane = static_cast<int>(number);
    auto by = static_cast<int>(warp.slot(i.sources[1])[number] & 31);
    auto c = static_cast<int>(warp.slot(i.sources[2])[number]);
    int segment = c >> 8 & 31;
    int clamp = c & 31;
    int limit = (lane & segment) | (clamp & ~segment);
    int source = i.mode == 'b'   ? lane ^ by
                 : i.mode == 'd' ? lane + by
                 : i.mode == 'u' ? lane - by
                                 : (lane & segment) | (by & ~segment);
    bool inRange = i.mode == 'u' ? source >= limit : source <= limit;
    if (!inRange)
      source = lane;
    if (source < 0 || source >= static_cast<int>(ptxWarpSize) ||
        !(members & mask & bit(static_cast<unsigned>(source))))
      failAt(warp, number, i, "shuffles from a lane that is not there");
    auto from = static_cast<unsigned>(source);
    warp.slot(i.results[0])[number] = static_cast<uint32_t>(values[from]);
    warp.setKnownBytes(i.results[0], number, known & bit(from) ? 0xff : 0);
    if (i.numResults > 1) {
      warp.slot(i.results[1])[number] = inRange;
      warp.defined[i.results[1]] |= bit(number);
    }
  }
}

void PtxBlocks::vote(PtxWarp &warp, const PtxInstruction &i, uint32_t members) {
  if (uint32_t unknown = members & ~warp.defined[i.sources[0]])
    failAt(warp, lowest(unknown), i, "votes on what was never written");
  uint32_t ballot = 0;
  for (uint32_t rest = members; rest; rest &= rest - 1)
    if (warp.slot(i.sources[0])[lowest(rest)])
      ballot |= bit(lowest(rest));
  bool all = ballot == members;
  uint64_t result = i.has("ballot") ? ballot
                    : i.has("all")  ? all
                    : i.has("any")  ? ballot != 0
                                    : all || ballot == 0;
  for (uint32_t rest = members; rest; rest &= rest - 1)
    warp.slot(i.results[0])[lowest(rest)] = result;
  warp.defined[i.results[0]] |= members;
}

void PtxBlocks::reduce(PtxWarp &warp, const PtxInstruction &i, uint32_t members) {
  bool isSigned = i.type == PtxType::S32;
  uint64_t result = warp.slot(i.sources[0])[lowest(members)] & 0xffffffff;
  for (uint32_t rest = members & (members - 1); rest; rest &= rest - 1) {
    uint64_t value = warp.slot(i.sources[0])[lowest(rest)] & 0xffffffff;
    bool isLess =
        isSigned ? static_cast<int32_t>(value) < static_cast<int32_t>(result) : value < result;
    result = i.has("add")   ? result + value
             : i.has("and") ? result & value
             : i.has("or")  ? result | value
             : i.has("xor") ? result ^ value
             : i.has("min") ? (isLess ? value : result)
                            : (isLess ? result : value);
  }
  bool known = (members & ~warp.defined[i.sources[0]]) == 0;
  for (uint32_t rest = members; rest; rest &= rest - 1) {
    warp.slot(i.results[0])[lowest(rest)] = result & 0xffffffff;
    warp.setKnownBytes(i.results[0], lowest(rest), known ? 0xff : 0);
  }
}

/// Releases a block whose threads have all reached the same barrier.
bool PtxBlocks::releaseBarrier() {
  uint32_t pc = ~uint32_t(0);
  for (const PtxWarp &warp : warps) {
    if (warp.atBarrier != warp.exist)
      return false;
    for (uint32_t rest = warp.exist; rest; rest &= rest - 1) {
      if (pc == ~uint32_t(0))
        pc = warp.pc[lowest(rest)];
      if (warp.pc[lowest(rest)] != pc)
        return false;
    }
  }
  const PtxInstruction &i = kernel.code[pc];
  if (warps[0].slot(i.sources[0])[0] != 0)
    fail("waits at a barrier that is not number 0, which is not understood");
  blockClock = ++clock;
  for (PtxWarp &warp : warps) {
    warp.atBarrier = 0;
    warp.pc.fill(pc + 1);
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

void runPtx(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers,
            const PtxOptions &options) {
  for (int dim = 0; dim < 3; ++dim)
    if (kernel.maxThreads[0] && launch.block[dim] > kernel.maxThreads[dim])
      throw PtxError("kernel " + kernel.name + " is launched with " +
                     std::to_string(launch.block[dim]) + " threads along a dimension, it allows " +
                     std::to_string(kernel.maxThreads[dim]));
  size_t shared = 0;
  for (const PtxVariable &variable : kernel.shared)
    shared += variable.end - variable.begin;
  if (shared > ptxSharedBytes)
    throw PtxError("kernel " + kernel.name + " has " + std::to_string(shared) +
                   " bytes of static shared memory, more than the " +
                   std::to_string(ptxSharedBytes) + " that there may be");
  std::sort(buffers.begin(), buffers.end(),
            [](const PtxBuffer &x, const PtxBuffer &y) { return x.base < y.base; });
  uint32_t count = launch.grid[0] * launch.grid[1] * launch.grid[2];
  uint32_t first = takePtxBlocks(count);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), uint32_t(0));
  if (options.seed) {
    std::mt19937_64 random(options.seed);
    std::shuffle(order.begin(), order.end(), random);
  }
  PtxBlocks blocks(kernel, launch, buffers, options);
  for (uint32_t number : order) {
    uint32_t index[3] = {number % launch.grid[0], number / launch.grid[0] % launch.grid[1],
                         number / launch.grid[0] / launch.grid[1]};
    blocks.run(index, first + number, first);
  }
}

} // namespace gridloom::fake
