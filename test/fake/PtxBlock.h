//===- PtxBlock.h - one block of threads ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Threads run by warps: an instruction runs for all threads of a warp that have reached it. The
// order of threads, warps and blocks depends on a seed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXBLOCK_H
#define GRIDLOOM_TEST_FAKE_PTXBLOCK_H

#include "test/fake/PtxModule.h"

#include <random>

namespace gridloom::fake {

inline constexpr unsigned ptxWarpSize = 32;

/// The threads of a warp, with sets of threads as 32 bits.
struct PtxWarp {
  uint32_t number = 0;
  uint32_t exist = 0;
  uint32_t done = 0;
  uint32_t atBarrier = 0; // of the block
  uint32_t atMeeting = 0; // of the warp: a shuffle, a vote, a barrier
  uint32_t clock = 0;     // the block's clock at the warp's last barrier
  std::array<uint32_t, ptxWarpSize> pc = {};
  std::vector<uint64_t> file;    // 32 values per slot
  std::vector<uint32_t> defined; // per slot: threads with a known value
  /// Per slot, for threads with a partly known value: the known bytes. Empty if there are none.
  std::vector<std::vector<uint8_t>> parts;

  uint32_t ready() const { return exist & ~(done | atBarrier | atMeeting); }
  /// The known bytes of a thread's value, as bits.
  uint8_t knownBytes(uint32_t index, unsigned lane) const {
    if (defined[index] >> lane & 1)
      return 0xff;
    return parts[index].empty() ? 0 : parts[index][lane];
  }
  void setKnownBytes(uint32_t index, unsigned lane, uint8_t bytes);
  uint64_t *slot(uint32_t index) { return file.data() + size_t(ptxWarpSize) * index; }
};

/// Runs the blocks of a launch, one at a time.
class PtxBlocks {
public:
  PtxBlocks(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers,
            const PtxOptions &options);

  /// Runs the block at `index` with number `block`; the launch's first has number `firstBlock`.
  void run(const uint32_t *index, uint32_t block, uint32_t firstBlock);

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw PtxError("kernel " + kernel.name + " " + what);
  }
  [[noreturn]] void failAt(const PtxWarp &warp, unsigned lane, const PtxInstruction &instruction,
                           const std::string &what) const;

  void start(const uint32_t *index);
  void runWarp(PtxWarp &warp);
  uint32_t chooseGroup(const PtxWarp &warp);
  void runGroup(PtxWarp &warp, uint32_t group, uint64_t budget);
  uint32_t applyGuard(PtxWarp &warp, const PtxInstruction &instruction, uint32_t group);
  void compute(PtxWarp &warp, const PtxInstruction &instruction, uint32_t active);
  void computeUnknown(PtxWarp &warp, const PtxInstruction &instruction, uint32_t active);

  // Synchronisation of threads.
  bool releaseMeetings(PtxWarp &warp);
  void meet(PtxWarp &warp, const PtxInstruction &instruction, uint32_t members, uint32_t mask);
  void shuffle(PtxWarp &warp, const PtxInstruction &instruction, uint32_t members, uint32_t mask);
  void vote(PtxWarp &warp, const PtxInstruction &instruction, uint32_t members);
  void reduce(PtxWarp &warp, const PtxInstruction &instruction, uint32_t members);
  bool releaseBarrier();

  // Memory.
  struct Place {
    std::byte *data = nullptr;
    PtxShadow *shadow = nullptr; // null for constants
    size_t offset = 0;           // in the shadow
    bool isShared = false;
    PtxBuffer *buffer = nullptr;
  };
  Place locate(PtxWarp &warp, const PtxInstruction &instruction, unsigned lane, size_t bytes,
               bool writes);
  Place locateGlobal(PtxWarp &warp, const PtxInstruction &instruction, unsigned lane,
                     uint64_t address, size_t bytes, bool writes);
  PtxMoment now(const PtxWarp &warp, unsigned lane, bool isShared) const;
  /// Fails with `what` if a thread of `active` has an unwritten address.
  void requireAddress(const PtxWarp &warp, const PtxInstruction &instruction, uint32_t active,
                      const std::string &what) const;
  void load(PtxWarp &warp, const PtxInstruction &instruction, uint32_t active);
  void noteUnwritten(PtxWarp &warp, const PtxInstruction &instruction, unsigned lane,
                     const Place &place);
  void store(PtxWarp &warp, const PtxInstruction &instruction, uint32_t active);
  void modify(PtxWarp &warp, const PtxInstruction &instruction, uint32_t active);

  const PtxKernel &kernel;
  const Launch &launch;
  std::vector<PtxBuffer> &buffers;
  PtxOptions options;
  std::mt19937_64 random;
  std::vector<PtxVariable> sharedVariables;
  std::vector<std::byte> shared, local;
  PtxShadow sharedShadow, localShadow;
  std::vector<uint32_t> definedAtStart;
  std::vector<PtxWarp> warps;
  PtxBuffer *lastBuffer = nullptr;
  uint32_t block = 0, firstBlock = 0;
  uint32_t clock = 0, blockClock = 0;
  uint64_t instructionsLeft;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXBLOCK_H
