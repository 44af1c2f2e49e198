//===- PtxModule.h - PTX, read and run on the host --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Enough of PTX for the kernels our code generator makes through LLVM: integers, f32, f64 and f16,
// shared memory, barriers and shuffles. What it does not know it refuses by name, so that no kernel
// runs half understood.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXMODULE_H
#define GRIDLOOM_TEST_FAKE_PTXMODULE_H

#include "test/fake/FakeCuda.h"

#include <map>
#include <stdexcept>
#include <string_view>

namespace gridloom::fake {

/// What stands in a PTX text that this does not know, or a kernel that does what it must not.
struct PtxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class PtxType : uint8_t { Pred, U8, U16, U32, U64, S8, S16, S32, S64, F16, F32, F64 };

enum class PtxName : uint8_t {
  Abs,
  Add,
  And,
  Bar,
  Bra,
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
  Mad,
  Max,
  Min,
  Mov,
  Mul,
  Neg,
  Not,
  Or,
  Rcp,
  Rem,
  Rsqrt,
  Selp,
  Setp,
  Shfl,
  Shl,
  Shr,
  Sin,
  Sqrt,
  St,
  Sub,
  Tanh,
  Xor
};

enum class PtxCompare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Num, Nan };

struct PtxOperand {
  enum Kind : uint8_t { None, Register, Immediate, Special, Discard } kind = None;
  uint32_t index = 0;     // of a register or a special register
  uint64_t immediate = 0; // bits, in the instruction's type
};

/// One instruction, e.g. "@!%p1 setp.lt.and.f32 %p2, %r1, 0f00000000, %p3".
struct PtxInstruction {
  std::string text;
  PtxName name = PtxName::Exit;
  PtxType type = PtxType::U32; // the last type named
  PtxType to = PtxType::U32;   // cvt: the first
  int vector = 1;
  int guard = -1; // predicate register
  bool guardInverted = false;
  bool flush = false;     // ftz
  bool wide = false;      // mul, mad: the product has twice the width
  bool high = false;      // mul, mad: its upper half
  bool keepNan = false;   // min, max
  bool saturate = false;  // cvt: to 0 ... 1
  bool packs = false;     // mov: of two halves into one register
  bool shared = false;    // ld, st: shared memory
  bool parameter = false; // ld: a parameter
  bool warp = false;      // bar: of the warp
  char round = 0;         // cvt to an integral value: z, n, m(inus), p(lus); fma: m(inus)
  char mode = 0;          // shfl: b(fly), d(own), u(p), i(dx); setp: a(nd), o(r), x(or)
  PtxCompare compare = PtxCompare::Eq;
  bool unordered = false;           // setp: true of NaN
  uint32_t target = 0;              // bra
  std::vector<PtxOperand> operands; // of a load or store: the registers
  PtxOperand base;                  // load, store: [base + offset]; shfl: the predicate
  int64_t offset = 0;
};

struct PtxKernel {
  std::string name;
  std::vector<std::string> parameters; // 8 bytes each: pointers
  std::vector<PtxInstruction> code;
  uint32_t numRegisters = 0;
  uint32_t maxThreads[3] = {0, 0, 0}; // .maxntid; 0: not given
  size_t sharedBytes = 0;             // static
};

/// The kernels of a PTX text. Throws PtxError naming the line that is not understood.
std::map<std::string, PtxKernel> parsePtx(const std::string &text);

/// Where a kernel's pointers may lead, and what it touched there.
struct PtxBuffer {
  std::byte *base = nullptr;                  // the pointer
  std::byte *begin = nullptr, *end = nullptr; // the memory it points into
  std::byte *readBegin = nullptr, *readEnd = nullptr;
  std::byte *writeBegin = nullptr, *writeEnd = nullptr;
};

/// Runs all blocks of a launch, one after another; fills in what each buffer's part was touched.
/// Throws PtxError when the kernel leaves its buffers or its threads diverge at a barrier.
void runPtx(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXMODULE_H
