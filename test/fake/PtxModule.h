//===- PtxModule.h - PTX, read and run on the host --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PTX after parsing: calls are inlined, names are numbers, and each computing instruction has its
// function. Anything unknown is refused by name when the text is parsed, so that no kernel runs
// partly understood.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXMODULE_H
#define GRIDLOOM_TEST_FAKE_PTXMODULE_H

#include "test/fake/PtxMemory.h"

#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gridloom::fake {

/// Unsupported PTX, or a kernel's error.
struct PtxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class PtxType : uint8_t {
  None,
  Pred,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F32,
  F64,
  U16x2,
  S16x2,
  F16x2,
  BF16x2,
  F32x2
};

/// The bytes of a value of `type` in memory.
constexpr unsigned getBytes(PtxType type) {
  constexpr unsigned bytes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 4, 4, 4, 4, 8};
  return bytes[static_cast<size_t>(type)];
}

enum class PtxName : uint8_t {
  Abs,
  Activemask,
  Add,
  And,
  Atom,
  Bar,
  Bfe,
  Bfi,
  Bmsk,
  Bra,
  Clz,
  Cnot,
  Copysign,
  Cos,
  Cvt,
  Cvta,
  Div,
  Ex2,
  Exit,
  Fma,
  Ld,
  Lg2,
  Lop3,
  Mad,
  Max,
  Min,
  Mov,
  Mul,
  Neg,
  Not,
  Or,
  Popc,
  Prmt,
  Rcp,
  Redux,
  Rem,
  Rsqrt,
  Sad,
  Selp,
  Setp,
  Shf,
  Shfl,
  Shl,
  Shr,
  Sin,
  Sqrt,
  St,
  Sub,
  Szext,
  Tanh,
  Testp,
  Trap,
  Vote,
  Xor
};

enum class PtxSpace : uint8_t { Generic, Global, Shared, Local };

struct PtxInstruction;

/// Computes an instruction for the lanes in `active`. `file` has 32 values per slot.
using PtxCompute = void (*)(const PtxInstruction &instruction, uint64_t *file, uint32_t active);

/// One instruction, e.g. "@!%p1 setp.lt.and.f32 %p2, %r1, 0f00000000, %p3". Operands are slots of
/// the register file, which also has constants and special registers.
struct PtxInstruction {
  std::string text;
  std::vector<std::string> modifiers; // between the name and the types
  PtxName name = PtxName::Exit;
  PtxType type = PtxType::None; // the last type named
  PtxType to = PtxType::None;   // the first
  PtxSpace space = PtxSpace::Generic;
  uint8_t vector = 1;
  uint8_t numResults = 0, numSources = 0;
  bool guardInverted = false;
  bool flush = false;           // ftz
  bool saturate = false;        // to 0 ... 1; of an integer to its range
  bool approximate = false;     // approx, full
  bool readOnly = false;        // ld.nc
  bool carriesIn = false;       // addc, subc, madc
  bool hasBase = false;         // the address is base + offset, else offset
  char round = 0;               // n(earest), z(ero), m(inus), p(lus)
  uint8_t compare = 0;          // setp: true of less (1), equal (2), greater (4), unordered (8)
  char mode = 0;                // shfl: b(fly) d(own) u(p) i(dx); setp: a(nd) o(r) x(or)
  int guard = -1;               // slot of a predicate
  uint32_t target = 0;          // bra
  uint32_t base = 0;            // load, store: the address's slot
  int64_t offset = 0;           // load, store
  PtxCompute compute = nullptr; // of computing instructions
  std::array<uint32_t, 8> results = {}, sources = {};

  bool has(std::string_view modifier) const {
    for (const std::string &other : modifiers)
      if (other == modifier)
        return true;
    return false;
  }
};

/// The function of a computing instruction; null if name, types and modifiers do not fit together.
PtxCompute selectCompute(const PtxInstruction &instruction);
PtxCompute selectInteger(const PtxInstruction &instruction);
PtxCompute selectCarrying(const PtxInstruction &instruction);
PtxCompute selectFloat(const PtxInstruction &instruction);
PtxCompute selectConvert(const PtxInstruction &instruction);

/// Start of the generic addresses of shared and local memory: above all host addresses.
inline constexpr uint64_t ptxSharedWindow = uint64_t(1) << 60;
inline constexpr uint64_t ptxLocalWindow = uint64_t(1) << 61;

/// Special registers; PtxKernel::specials has indices into this list.
inline constexpr std::string_view ptxSpecials[] = {
    "%tid.x",   "%tid.y",    "%tid.z",    "%ntid.x",   "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y",
    "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%nwarpid"};

/// Bytes of shared memory that a kernel may declare, and a launch request without opting in.
inline constexpr unsigned ptxSharedBytes = 48 * 1024;

struct PtxVariable {
  size_t begin = 0, end = 0, alignment = 1;
};

struct PtxKernel {
  std::string name;
  std::vector<uint32_t> parameters; // slots; 8 bytes each: pointers
  std::vector<PtxInstruction> code;
  uint32_t numSlots = 0;
  std::vector<std::pair<uint32_t, uint64_t>> constants; // slot, bits
  std::vector<std::pair<uint32_t, uint32_t>> specials;  // slot, index
  uint32_t maxThreads[3] = {0, 0, 0};                   // .maxntid; 0: none
  /// Variables in shared memory, with unused gaps between them. With `hasDynamicShared` the last
  /// one grows by the launch's shared memory.
  std::vector<PtxVariable> shared;
  bool hasDynamicShared = false;
  size_t localBytes = 0; // per thread
  /// Constants in global memory.
  std::vector<std::shared_ptr<std::vector<uint64_t>>> data;
};

/// The kernels of a PTX text. Throws PtxError with the line that is not supported.
std::map<std::string, PtxKernel> parsePtx(const std::string &text);

struct PtxOptions {
  /// 0: warps run in turn, and threads of a warp together where possible. Otherwise the seed of a
  /// random order of blocks, warps and threads.
  uint64_t seed = 0;
  /// Loads of unwritten memory are errors; if false, values computed from it count as unwritten.
  bool strict = true;
  /// The limit on warp instructions of a launch, beyond which it counts as endless. 0: none.
  uint64_t maxInstructions = 0;
};

/// Runs all blocks of a launch, one after another, and fills in the ranges of each buffer that were
/// accessed. Throws PtxError if the kernel leaves its memory, races, or its threads diverge at a
/// barrier.
void runPtx(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers,
            const PtxOptions &options = {});

/// While an object lives, approximate instructions err by up to their stated accuracy.
class GRIDLOOM_FAKE_EXPORT PtxInaccuracy {
public:
  explicit PtxInaccuracy(uint64_t seed);
  ~PtxInaccuracy();
  PtxInaccuracy(const PtxInaccuracy &) = delete;
  PtxInaccuracy &operator=(const PtxInaccuracy &) = delete;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXMODULE_H
