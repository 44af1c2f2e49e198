//===- CudaPtxFaultsTest.cpp - faults that the PTX interpreter finds ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Kernels with a planted fault, and their correct twins: the interpreter must detect the fault in
// every order of threads, and accept the twin.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxRun.h"

#include "gmock/gmock.h"

#include <cstring>
#include <numeric>

using namespace gridloom::fake;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

namespace {

constexpr size_t threads = 64;

std::string makeKernel(const std::string &body, const std::string &before = "") {
  return ".version 7.8\n.target sm_90\n.address_size 64\n" + before +
         "\n.visible .entry k(\n.param .u64 k_param_0,\n.param .u64 k_param_1\n)\n{\n"
         ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<30>;\n.reg .b64 %rd<30>;\n"
         ".shared .align 16 .b8 s[256];\n.shared .align 16 .b8 t[64];\n"
         // %rd1, %rd2: this thread's words of input and output; %r1: its index; %r2: its word.
         "ld.param.b64 %rd1, [k_param_0];\nld.param.b64 %rd2, [k_param_1];\n"
         "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;\n"
         "add.s64 %rd1, %rd1, %rd3;\nadd.s64 %rd2, %rd2, %rd3;\n"
         "shl.b32 %r3, %r1, 2;\nxor.b32 %r4, %r3, 4;\nxor.b32 %r5, %r3, 128;\n"
         "ld.global.b32 %r2, [%rd1];\n" +
         body + "\nret;\n}\n";
}

/// The output of `ptx` for the input 1, 2, ... (32-bit words); `finding` becomes the finding.
std::vector<uint32_t> run(const std::string &ptx, std::string &finding, uint32_t blocks = 1,
                          uint64_t seed = 0) {
  PtxProgram program(ptx);
  std::vector<uint32_t> words(threads);
  std::iota(words.begin(), words.end(), 1u);
  std::vector<PtxTensor> tensors(2);
  for (PtxTensor &tensor : tensors)
    tensor.bytes.resize(threads * 4);
  std::memcpy(tensors[0].bytes.data(), words.data(), threads * 4);
  tensors[0].isInput = true;
  PtxRun launch;
  launch.grid[0] = blocks;
  launch.block[0] = threads;
  launch.seed = seed;
  finding = program.run("k", launch, tensors);
  std::memcpy(words.data(), tensors[1].bytes.data(), threads * 4);
  return words;
}

/// The finding for `body`; all orders of threads must agree on whether there is one.
std::string findingOf(const std::string &body, uint32_t blocks = 1,
                      const std::string &before = "") {
  std::string first, next;
  run(makeKernel(body, before), first, blocks);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    run(makeKernel(body, before), next, blocks, seed);
    EXPECT_EQ(first.empty(), next.empty()) << first << next;
  }
  return first;
}

/// The first thread's result; there must be no finding.
uint32_t resultOf(const std::string &body, const std::string &before = "") {
  std::string finding;
  uint32_t result = run(makeKernel(body + "\nst.global.b32 [%rd2], %r9;", before), finding)[0];
  EXPECT_EQ(finding, "") << body;
  return result;
}

std::string addressIn(const std::string &variable, const std::string &offset) {
  return "mov.b32 %r10, " + variable + ";\nadd.s32 %r11, %r10, " + offset + ";\n";
}

std::string put() { return addressIn("s", "%r3") + "st.shared.b32 [%r11], %r2;\n"; }
std::string take(const std::string &offset) {
  return addressIn("s", offset) + "ld.shared.b32 %r6, [%r11];\n";
}
std::string give() { return "st.global.b32 [%rd2], %r6;\n"; }

TEST(CudaPtxFaults, SharedMemoryWithoutBarrier) {
  // A neighbour in the same warp, and a thread of the other warp.
  auto isRace = AnyOf(HasSubstr("no barrier orders them"), HasSubstr("never written"));
  for (const char *partner : {"%r4", "%r5"}) {
    EXPECT_THAT(findingOf(put() + take(partner) + give()), isRace);
    EXPECT_EQ(findingOf(put() + "bar.sync 0;\n" + take(partner) + give()), "");
    // The next round must not write before all have read.
    std::string round = put() + "bar.sync 0;\n" + take(partner);
    EXPECT_THAT(findingOf(round + put() + give()), HasSubstr("no barrier orders them"));
    EXPECT_EQ(findingOf(round + "bar.sync 0;\n" + put() + give()), "");
  }
  // A warp barrier orders only the threads of its warp; a shuffle orders none.
  EXPECT_EQ(findingOf(put() + "bar.warp.sync -1;\n" + take("%r4") + give()), "");
  EXPECT_EQ(findingOf(put() + "bar.warp.sync -1;\n" + take("%r4") + "bar.warp.sync -1;\n" + put() +
                      give()),
            "");
  EXPECT_THAT(findingOf(put() + "bar.warp.sync -1;\n" + take("%r5") + give()), isRace);
  EXPECT_THAT(findingOf(put() + "shfl.sync.bfly.b32 %r7, %r2, 1, 31, -1;\n" + take("%r4") + give()),
              HasSubstr("no barrier orders them"));
}

TEST(CudaPtxFaults, OneWordOfSeveralThreads) {
  EXPECT_THAT(findingOf("st.shared.b32 [s], %r1;\n"),
              HasSubstr("writes what another thread writes"));
  EXPECT_EQ(findingOf("setp.eq.s32 %p1, %r1, 0;\n@%p1 st.shared.b32 [s], %r1;\nbar.sync 0;\n"
                      "ld.shared.b32 %r6, [s];\n" +
                      give()),
            "");
  // Bytes of one word are separate locations.
  EXPECT_EQ(findingOf(addressIn("s", "%r1") +
                      "cvt.u16.u32 %rs1, %r1;\nst.shared.b8 [%r11], %rs1;\n"
                      "bar.sync 0;\nld.shared.b32 %r6, [s+4];\n" +
                      give()),
            "");
  EXPECT_THAT(findingOf(addressIn("s", "%r1") +
                        "cvt.u16.u32 %rs1, %r1;\nst.shared.b8 [%r11], %rs1;\n"
                        "ld.shared.b32 %r6, [s+4];\n" +
                        give()),
              HasSubstr("no barrier orders them"));
}

TEST(CudaPtxFaults, BlocksAreInNoOrder) {
  std::string own = "mov.u32 %r12, %ctaid.x;\nmul.wide.u32 %rd5, %r12, 4;\n"
                    "ld.param.b64 %rd4, [k_param_1];\nadd.s64 %rd5, %rd4, %rd5;\n"
                    "setp.eq.s32 %p1, %r1, 0;\n";
  EXPECT_EQ(findingOf("mov.b32 %r6, 7;\n" + own + "@%p1 st.global.b32 [%rd5], %r6;\n", 64), "");
  EXPECT_THAT(findingOf("mov.b32 %r6, 7;\n" + give(), 2), HasSubstr("what another block writes"));
  // One block writes what others read, which is a race in any order.
  EXPECT_THAT(findingOf("mov.b32 %r6, 7;\n" + own +
                            "@%p1 st.global.b32 [%rd5], %r6;\n"
                            "@%p1 ld.global.b32 %r7, [%rd4];\n",
                        3),
              HasSubstr("another block"));
}

TEST(CudaPtxFaults, AtomicsAreTogether) {
  std::string zero = "setp.eq.s32 %p1, %r1, 0;\nmov.b32 %r6, 0;\n@%p1 st.shared.b32 [s], %r6;\n"
                     "bar.sync 0;\n";
  std::string add = "red.shared.add.u32 [s], %r2;\n";
  EXPECT_EQ(findingOf(zero + add + "bar.sync 0;\nld.shared.b32 %r6, [s];\n" + give()), "");
  EXPECT_THAT(findingOf(zero + add + "ld.shared.b32 %r6, [s];\n" + give()),
              HasSubstr("no barrier orders them"));
  EXPECT_EQ(resultOf(zero + add + "bar.sync 0;\nld.shared.b32 %r9, [s];\n"), 64u * 65 / 2);
  EXPECT_EQ(resultOf(zero + "atom.shared.max.u32 %r8, [s], %r2;\nbar.sync 0;\n"
                            "ld.shared.b32 %r9, [s];\n"),
            64u);
}

TEST(CudaPtxFaults, WhatWasNeverWritten) {
  EXPECT_THAT(findingOf("ld.shared.b32 %r6, [s];\n" + give()),
              HasSubstr("reads memory that was never written"));
  EXPECT_THAT(findingOf("ld.global.b32 %r6, [%rd2];\n" + give()),
              HasSubstr("reads memory that was never written"));
  EXPECT_THAT(findingOf("add.s32 %r6, %r20, 1;\n" + give()), HasSubstr("unwritten"));
  EXPECT_THAT(findingOf("setp.eq.s32 %p2, %r20, 1;\n@%p2 bra $E;\n" + give() + "$E:"),
              HasSubstr("branches on what was never written"));
  EXPECT_THAT(findingOf("st.global.b32 [%rd20], %r2;\n"),
              HasSubstr("writes at an address that was never written"));
  EXPECT_THAT(
      findingOf("setp.lt.s32 %p1, %r1, 63;\nmov.b32 %r6, 7;\n@%p1 st.global.b32 [%rd2], %r6;"),
      HasSubstr("leaves a part of pointer 1 unwritten"));
  // Values that a select drops or a mask clears may be unwritten.
  EXPECT_EQ(findingOf("setp.ge.s32 %p1, %r1, 0;\nselp.b32 %r6, %r2, %r20, %p1;\n" + give()), "");
  EXPECT_EQ(findingOf("and.b32 %r6, %r20, 0;\n" + give()), "");
}

TEST(CudaPtxFaults, ThreadsThatPart) {
  EXPECT_THAT(
      findingOf("setp.eq.s32 %p1, %r1, 3;\n@%p1 bra $E;\nbar.sync 0;\n$E:\nmov.b32 %r6, 1;\n" +
                give()),
      HasSubstr("wait for each other at different places"));
  EXPECT_THAT(findingOf("setp.lt.s32 %p1, %r1, 32;\n@%p1 bra $E;\nbar.sync 0;\nbra $F;\n$E:\n"
                        "bar.sync 0;\n$F:\nmov.b32 %r6, 1;\n" +
                        give()),
              HasSubstr("wait for each other at different places"));
  EXPECT_THAT(findingOf("setp.eq.s32 %p1, %r1, 3;\nmov.b32 %r6, 1;\n@%p1 bra $E;\n"
                        "shfl.sync.bfly.b32 %r6, %r2, 1, 31, -1;\n$E:\nbar.sync 0;\n" +
                        give()),
              HasSubstr("wait for each other at different places"));
  EXPECT_THAT(findingOf("setp.eq.s32 %p1, %r1, 3;\nmov.b32 %r6, 1;\n@%p1 bra $E;\n"
                        "shfl.sync.idx.b32 %r6, %r2, 2, 31, 0xfffffff7;\n$E:\n" +
                        give()),
              HasSubstr("mask lacks it"));
  EXPECT_THAT(findingOf("and.b32 %r12, %r1, 31;\nsetp.eq.s32 %p1, %r12, 3;\nmov.b32 %r6, 1;\n"
                        "@%p1 bra $E;\nshfl.sync.idx.b32 %r6, %r2, 3, 31, 0xfffffff7;\n$E:\n" +
                        give()),
              HasSubstr("shuffles from a lane that is not there"));
  EXPECT_THAT(findingOf("$E:\nsetp.eq.s32 %p1, %r1, 99;\n@%p1 bra $E;\nbar.sync 1;\n"),
              HasSubstr("is not number 0"));
}

TEST(CudaPtxFaults, Addresses) {
  EXPECT_THAT(findingOf("ld.global.b32 %r6, [%rd1+4];\n" + give()),
              AllOf(HasSubstr("reads outside of its buffers"), HasSubstr("thread 63 of block 0")));
  EXPECT_THAT(findingOf("ld.global.b32 %r6, [%rd1+-4];\n" + give()),
              AllOf(HasSubstr("reads outside of its buffers"), HasSubstr("thread 0 of block 0")));
  EXPECT_THAT(findingOf("ld.global.b32 %r6, [%rd1+2];\n" + give()), HasSubstr("misaligned"));
  EXPECT_THAT(findingOf("ld.global.v4.b32 {%r6, %r7, %r8, %r9}, [%rd1];\n" + give()),
              HasSubstr("misaligned access of 16 bytes"));
  EXPECT_THAT(findingOf("ld.shared.b32 %r6, [s+256];\n" + give()),
              HasSubstr("leaves its shared memory"));
  EXPECT_THAT(findingOf("ld.shared.b32 %r6, [t+-4];\n" + give()),
              HasSubstr("leaves its shared memory"));
  EXPECT_THAT(findingOf("ld.global.nc.b32 %r6, [%rd1];\nst.global.b32 [%rd1], %r6;\n"),
              HasSubstr("read-only cache"));
  EXPECT_THAT(findingOf("mov.b64 %rd5, c;\nst.global.b32 [%rd5], %r2;\n", 1,
                        ".global .align 64 .b8 c[8] = {1, 0, 0, 0, 2, 0, 0, 0};"),
              HasSubstr("writes outside of its buffers"));
}

TEST(CudaPtxFaults, CallsConstantsAndMemoryOfThreads) {
  EXPECT_EQ(resultOf("mov.b64 %rd5, c;\nld.global.nc.b32 %r9, [%rd5+4];\n",
                     ".global .align 64 .b8 c[8] = {1, 0, 0, 0, 2, 0, 0, 0};"),
            2u);
  std::string twice = ".func (.param .b32 result) twice(\n.param .b32 twice_0\n)\n{\n"
                      ".reg .pred %p<2>;\n.reg .b32 %r<9>;\nld.param.b32 %r1, [twice_0];\n"
                      "setp.gt.s32 %p1, %r1, 5;\n@%p1 bra $SKIP;\nadd.s32 %r1, %r1, %r1;\n"
                      "$SKIP:\nst.param.b32 [result], %r1;\nret;\n}\n";
  std::string call = "{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r2;\n"
                     "call.uni (b), twice, (a);\nld.param.b32 %r9, [b];\n}\n";
  EXPECT_EQ(resultOf(call + "{\n.param .b32 a2;\n.param .b32 b2;\nst.param.b32 [a2], %r9;\n"
                            "call.uni (b2), twice, (a2);\nld.param.b32 %r9, [b2];\n}\n",
                     twice),
            4u);
  EXPECT_EQ(
      resultOf(".local .align 8 .b8 depot[16];\nmov.b64 %rd5, depot;\n"
               "cvta.local.u64 %rd6, %rd5;\nst.b32 [%rd6+4], %r2;\nld.local.b32 %r9, [%rd5+4];"),
      1u);
  EXPECT_THAT(findingOf(".local .align 8 .b8 depot[16];\nld.local.b32 %r6, [depot];\n" + give()),
              HasSubstr("never written"));
}

TEST(CudaPtxFaults, TextThatPtxasWouldRefuse) {
  for (const char *body : {"add.s64 %rd5, %r1, 1;", "add.s32 %rd5, %r1, 1;", "mov.b32 %rs1, %r1;",
                           "ld.global.b64 %r1, [%rd1];", "setp.eq.s32 %r1, %r1, 1;",
                           "ld.global.v2.b32 {%r1, %r2, %r3}, [%rd1];", "cvt.f32.f64 %r1, %rd1;",
                           "fma.f32 %r1, %r1, %r1, %r1;", "mul.s32 %r1, %r1, %r1;",
                           "mov.u32 %r1, %clock;", "mov.b32 %r1, %q1;", "add.frob.s32 %r1, %r1, 1;",
                           "ex2.f32 %r1, %r1;", "selp.b32 %r1, %r1, %r1, %r1;"})
    EXPECT_THAT(findingOf(body), HasSubstr(std::string("is not understood: ") + body));
}

TEST(CudaPtxFaults, Bits) {
  auto check = [](const std::string &body, uint32_t expected) {
    EXPECT_EQ(resultOf(body), expected) << body;
  };
  check("prmt.b32 %r9, 0x33221100, 0x77665544, 0x5140U;", 0x55114400);
  check("prmt.b32 %r9, 0x33221180, 0, 0x8888;", 0xffffffff);
  check("bfe.u32 %r9, 0x12345678, 8, 12;", 0x456);
  check("bfe.s32 %r9, 0x00000800, 4, 8;", 0xffffff80);
  check("bfi.b32 %r9, 0xab, 0x12345678, 8, 8;", 0x1234ab78);
  check("shf.l.wrap.b32 %r9, 0x80000001, 0x00000001, 33;", 3);
  check("shf.r.clamp.b32 %r9, 0x80000001, 0x00000001, 1;", 0xc0000000);
  check("lop3.b32 %r9, 0xf0, 0xcc, 0xaa, 0x96;", 0xf0 ^ 0xcc ^ 0xaa);
  check("clz.b32 %r9, 0x00010000;", 15);
  check("popc.b64 %r9, 0xff00ff;", 16);
  check("mul.hi.u32 %r9, 0x80000000, 6;", 3);
  check("mad.lo.s32 %r9, %r2, 3, -5;", 0xfffffffe);
  check("mul.wide.s16 %r9, -3, 7;", 0xffffffeb);
  check("cvt.s16.s8 %rs1, 0x80;\ncvt.u32.u16 %r9, %rs1;", 0xff80);
  check("cvt.sat.u8.s32 %rs1, 300;\ncvt.u32.u16 %r9, %rs1;", 255);
  check("min.s16 %rs1, -1, 1;\ncvt.s32.s16 %r9, %rs1;", 0xffffffff);
  check("max.u16 %rs1, -1, 1;\ncvt.s32.s16 %r9, %rs1;", 0xffffffff);
  check("shr.s32 %r9, -8, 40;", 0xffffffff);
  check("rem.s32 %r9, -7, 3;", 0xffffffff);
  check("sub.s64 %rd5, 1, 3;\nmov.b64 {_, %r9}, %rd5;", 0xffffffff);
  check("mov.b64 %rd5, {%r2, %r2};\nshr.u64 %rd5, %rd5, 32;\ncvt.u32.u64 %r9, %rd5;", 1);
  check("activemask.b32 %r9;", 0xffffffff);
  check("setp.lt.u32 %p1, %r1, 3;\nvote.sync.ballot.b32 %r9, %p1, -1;", 7);
  check("redux.sync.add.s32 %r9, %r2, -1;", 32 * 33 / 2);
  check("add.s16x2 %r9, 0x0001ffff, 0x00010001;", 0x00020000);
}

TEST(CudaPtxFaults, Floats) {
  auto check = [](const std::string &body, uint32_t expected) {
    EXPECT_EQ(resultOf(body), expected) << body;
  };
  check("add.rn.f16x2 %r9, 0x3c003c00, 0x40003c00;", 0x42004000);
  check("mul.bf16x2 %r9, 0x40004000, 0x3fc04000;", 0x40404080);
  // 1.0234375 * 1.0234375 - 1: rounding twice would lose the last bit.
  check("fma.rn.bf16 %rs1, 0x3f83, 0x3f83, 0xbf80;\ncvt.u32.u16 %r9, %rs1;", 0x3d42);
  // 2049 + 2^-20 in f16, just above a midpoint: rounding to f32 first would lose the 2^-20.
  check("fma.rn.f16 %rs1, 0x1400, 0x0400, 0x6801;\ncvt.u32.u16 %r9, %rs1;", 0x6801);
  check("cvt.rn.bf16x2.f32 %r9, 0f3F800000, 0f40000000;", 0x3f804000);
  check("cvt.rn.bf16.f32 %rs1, 0f3F808000;\ncvt.u32.u16 %r9, %rs1;", 0x3f80);
  check("cvt.rn.bf16.f32 %rs1, 0f3F818000;\ncvt.u32.u16 %r9, %rs1;", 0x3f82);
  check("cvt.rz.f16.f32 %rs1, 0f477FFFFF;\ncvt.u32.u16 %r9, %rs1;", 0x7bff);
  check("cvt.rn.f16.f32 %rs1, 0f33800000;\ncvt.u32.u16 %r9, %rs1;", 0x0001);
  check("cvt.f32.f16 %r9, 0x0001;", 0x33800000);
  check("cvt.rzi.s32.f32 %r9, 0f7FC00000;", 0);
  check("cvt.rzi.s32.f64 %r9, 0d7FF8000000000000;", 0x80000000);
  check("cvt.rni.f32.f32 %r9, 0f40200000;", 0x40000000);
  check("cvt.rn.f32.u64 %r9, 0xffffffffffffffff;", 0x5f800000);
  check("cvt.rn.f32.f64 %r9, 0d3FF0000010000001;", 0x3f800001);
  check("add.rz.f32 %r9, 0f3F800000, 0f33FFFFFF;", 0x3f800000);
  check("add.rp.f32 %r9, 0f3F800000, 0f00000001;", 0x3f800001);
  check("fma.rm.f32 %r9, 0f3F800000, 0f3F800000, 0f80000001;", 0x3f7fffff);
  check("div.rn.f32 %r9, 0f3F800000, 0f40400000;", 0x3eaaaaab);
  check("add.sat.f32 %r9, 0f3F800000, 0f3F800000;", 0x3f800000);
  check("min.f32 %r9, 0f00000000, 0f80000000;", 0x80000000);
  check("max.f16 %rs1, 0x7e00, 0x3c00;\ncvt.u32.u16 %r9, %rs1;", 0x3c00);
  check("setp.lt.and.f32 %p1|%p2, %r2, 0f3F800000, 1;\nselp.b32 %r9, 1, 2, %p1;", 1);
  check("setp.nan.f32 %p1, 0f7FC00000, %r2;\nselp.b32 %r9, 1, 2, %p1;", 1);
  check("setp.neu.f64 %p1, 0d7FF8000000000000, 0d3FF0000000000000;\nselp.b32 %r9, 1, 2, %p1;", 1);
  check("testp.infinite.f32 %p1, 0fFF800000;\nselp.b32 %r9, 1, 2, %p1;", 1);
  check("mul.ftz.f32 %r9, 0f00400000, 0f40000000;", 0);
  check("rcp.approx.ftz.f64 %rd5, 0d4000000000000000;\nmov.b64 {_, %r9}, %rd5;", 0x3fe00000);
  check("copysign.f32 %r9, 0f80000000, 0f3F800000;", 0xbf800000);
  check("ex2.approx.ftz.bf16 %rs1, 0x4040;\ncvt.u32.u16 %r9, %rs1;", 0x4100);
}

} // namespace
