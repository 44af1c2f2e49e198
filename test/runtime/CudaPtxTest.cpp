//===- CudaPtxTest.cpp - kernels interpreted on the fake GPU --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The fake driver interprets PTX, so that compiled kernels run without a GPU. These tests check the
// interpreter with kernels small enough to know the result of.
//
//===----------------------------------------------------------------------===//

#include "test/fake/GpuHarness.h"

#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

/// out[i] = sum over the block of in[..], by shuffles within warps and shared memory between them.
constexpr const char *blockSum = R"(
.version 7.8
.target sm_80
.address_size 64

.visible .entry block_sum(
	.param .u64 .ptr .align 1 block_sum_param_0,
	.param .u64 .ptr .align 1 block_sum_param_1
)
.maxntid 128, 1, 1
{
	.reg .pred 	%p<4>;
	.reg .b32 	%r<24>;
	.reg .b64 	%rd<9>;
	.shared .align 16 .b8 partial[16];

	ld.param.b64 	%rd1, [block_sum_param_0];
	ld.param.b64 	%rd2, [block_sum_param_1];
	cvta.to.global.u64 	%rd3, %rd1;
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, %ctaid.x;
	shl.b32 	%r3, %r2, 7;
	or.b32  	%r4, %r3, %r1;
	mul.wide.u32 	%rd4, %r4, 4;
	add.s64 	%rd5, %rd3, %rd4;
	ld.global.b32 	%r5, [%rd5];
	shfl.sync.bfly.b32 	%r6, %r5, 16, 31, -1;
	add.f32 	%r7, %r5, %r6;
	shfl.sync.bfly.b32 	%r8, %r7, 8, 31, -1;
	add.f32 	%r9, %r7, %r8;
	shfl.sync.bfly.b32 	%r10|%p3, %r9, 4, 31, -1;
	@!%p3 bra 	$L__END;
	add.f32 	%r11, %r9, %r10;
	shfl.sync.bfly.b32 	%r12, %r11, 2, 31, -1;
	add.f32 	%r13, %r11, %r12;
	shfl.sync.bfly.b32 	%r14, %r13, 1, 31, -1;
	add.f32 	%r15, %r13, %r14;
	and.b32 	%r16, %r1, 31;
	setp.ne.s32 	%p1, %r16, 0;
	@%p1 bra 	$L__BB0_2;
	shr.u32 	%r17, %r1, 3;
	mov.b32 	%r18, partial;
	add.s32 	%r19, %r18, %r17;
	st.shared.b32 	[%r19], %r15;
$L__BB0_2:
	bar.sync 	0;
	ld.shared.v4.b32 	{%r20, %r21, %r22, %r23}, [partial];
	add.f32 	%r20, %r20, %r21;
	add.f32 	%r22, %r22, %r23;
	add.f32 	%r20, %r20, %r22;
	add.s64 	%rd6, %rd2, %rd4;
	st.global.b32 	[%rd6], %r20;
$L__END:
	ret;

}
)";

std::string makeKernel(const std::string &name, const std::string &body) {
  return ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry " + name +
         "(\n.param .u64 " + name + "_param_0,\n.param .u64 " + name + "_param_1\n)\n{\n" + body +
         "\nret;\n}\n";
}

class CudaPtxTest : public FakeGpus {
protected:
  /// Runs a kernel on `in` and an output of as many bytes.
  template <typename T, typename R>
  std::vector<R> run(const std::string &ptx, const std::string &name, const std::vector<T> &in,
                     uint32_t grid, uint32_t block) {
    CudaDevice device(0);
    auto stream = device.createStream(StreamKind::Compute, "compute");
    auto kernel = device.loadKernel(name + ".ptx", std::as_bytes(std::span(ptx)), name);
    auto from = upload(device, *stream, in);
    auto to = upload(device, *stream, std::vector<R>(in.size()));
    LaunchShape shape;
    shape.grid[0] = grid;
    shape.block[0] = block;
    void *pointers[] = {from->data, to->data};
    device.launch(*stream, *kernel, shape, pointers);
    return download<R>(device, *stream, to->data, in.size());
  }

  /// The output of one thread for the input `in`; `body` computes %r2 from %r1.
  template <typename T, typename R> R compute(T in, const std::string &body) {
    std::string ptx = makeKernel("one", "ld.param.b64 %rd1, [one_param_0];\n"
                                        "ld.param.b64 %rd2, [one_param_1];\n"
                                        "ld.global.b32 %r1, [%rd1];\n" +
                                            body + "\nst.global.b32 [%rd2], %r2;");
    return run<T, R>(ptx, "one", {in}, 1, 1).front();
  }
};

TEST_F(CudaPtxTest, ReducesABlockByShufflesAndSharedMemory) {
  std::vector<float> in(256);
  std::iota(in.begin(), in.end(), 1.0f);
  std::vector<float> out = run<float, float>(blockSum, "block_sum", in, 2, 128);
  EXPECT_EQ(out[0], 128 * 129 / 2);
  EXPECT_EQ(out[127], out[0]);
  EXPECT_EQ(out[128], 256 * 257 / 2 - 128 * 129 / 2);
  EXPECT_EQ(out[255], out[128]);
}

TEST_F(CudaPtxTest, ComputesAsPtxDefines) {
  EXPECT_EQ((compute<float, float>(3, "mul.f32 %r2, %r1, 0f40000000;")), 6);
  EXPECT_EQ((compute<float, float>(3, "fma.rn.f32 %r2, %r1, %r1, 0fBF800000;")), 8);
  EXPECT_EQ((compute<float, float>(3, "mov.b64 %rd3, {%r1, 0f40A00000};\n"
                                      "fma.rn.f32x2 %rd3, %rd3, %rd3, %rd3;\n"
                                      "mov.b64 {%r1, %r2}, %rd3;\nsub.f32 %r2, %r2, %r1;")),
            18);
  EXPECT_EQ((compute<float, float>(4, "rsqrt.approx.f32 %r2, %r1;")), 0.5f);
  EXPECT_EQ((compute<float, float>(-2, "copysign.f32 %r2, %r1, 0f40400000;")), -3);
  EXPECT_EQ((compute<float, float>(1e-40f, "mul.ftz.f32 %r2, %r1, 0f40000000;")), 0);
  EXPECT_EQ((compute<float, float>(NAN, "max.f32 %r2, %r1, 0f40000000;")), 2);
  EXPECT_TRUE(std::isnan(compute<float, float>(NAN, "max.NaN.f32 %r2, %r1, 0f40000000;")));
  EXPECT_EQ((compute<float, int>(2.5f, "cvt.rni.s32.f32 %r2, %r1;")), 2);
  EXPECT_EQ((compute<float, int>(-2.5f, "cvt.rzi.s32.f32 %r2, %r1;")), -2);
  EXPECT_EQ((compute<float, int>(-2.5f, "cvt.rmi.s32.f32 %r2, %r1;")), -3);
  EXPECT_EQ((compute<float, int>(1e20f, "cvt.rzi.s32.f32 %r2, %r1;")), INT32_MAX);
  EXPECT_EQ((compute<int, float>(-7, "cvt.rn.f32.s32 %r2, %r1;")), -7);
  EXPECT_EQ((compute<int, int>(-7, "shr.s32 %r2, %r1, 1;")), -4);
  EXPECT_EQ((compute<int, int>(-7, "shr.u32 %r2, %r1, 28;")), 15);
  EXPECT_EQ((compute<int, int>(5, "shl.b32 %r2, %r1, 40;")), 0);
  EXPECT_EQ((compute<int, int>(-7, "mul.hi.s32 %r2, %r1, 3;")), -1);
  EXPECT_EQ((compute<int, int>(-7, "cvt.s64.s32 %rd3, %r1;\nshr.s64 %rd3, %rd3, 1;\n"
                                   "cvt.u32.u64 %r2, %rd3;")),
            -4);
  EXPECT_EQ((compute<int, int>(-1, "setp.lt.u32 %p1, %r1, 3;\nselp.b32 %r2, 1, 2, %p1;")), 2);
  EXPECT_EQ((compute<int, int>(-1, "setp.lt.s32 %p1, %r1, 3;\nselp.b32 %r2, 1, 2, %p1;")), 1);
  EXPECT_EQ((compute<float, int>(NAN, "setp.lt.f32 %p1, %r1, 0f00000000;\n"
                                      "selp.b32 %r2, 1, 2, %p1;")),
            2);
  EXPECT_EQ((compute<float, int>(NAN, "setp.ltu.f32 %p1, %r1, 0f00000000;\n"
                                      "selp.b32 %r2, 1, 2, %p1;")),
            1);
}

TEST_F(CudaPtxTest, WhatIsNotUnderstoodIsNamed) {
  std::string ptx = makeKernel("odd", "brev.b32 %r1, %r2;");
  EXPECT_THAT(
      catchError(ErrorCode::Internal, [&] { (run<float, float>(ptx, "odd", {1.0f}, 1, 1)); }),
      StartsWith("cuLaunchKernel failed"));
  EXPECT_THAT(fake::takeFindings(),
              ElementsAre(AllOf(HasSubstr("kernel odd has neither a host function nor PTX"),
                                HasSubstr("is not understood: brev.b32 %r1, %r2;"))));
}

TEST_F(CudaPtxTest, PlantedAccessOutsideOfItsBuffersIsFound) {
  std::string ptx = makeKernel("far", "ld.param.b64 %rd1, [far_param_0];\n"
                                      "ld.global.b32 %r1, [%rd1+4096];");
  catchError(ErrorCode::Internal, [&] { (run<float, float>(ptx, "far", {1.0f}, 1, 1)); });
  EXPECT_THAT(fake::takeFindings(),
              Contains(StartsWith("kernel far reads outside of its buffers")));
}

TEST_F(CudaPtxTest, PlantedStaticSharedMemoryBeyondABlocksIsFound) {
  auto launch = [&](const std::string &bytes) {
    std::string ptx = makeKernel("large", ".shared .align 16 .b8 half[24576];\n"
                                          ".shared .align 16 .b8 rest[" +
                                              bytes + "];\nmov.b32 %r1, rest;");
    run<float, float>(ptx, "large", {1.0f}, 1, 1);
  };
  launch("24576");
  EXPECT_THAT(fake::takeFindings(), IsEmpty());
  catchError(ErrorCode::Internal, [&] { launch("24577"); });
  EXPECT_THAT(fake::takeFindings(),
              Contains("kernel large has 49153 bytes of static shared memory, more than the 49152 "
                       "that there may be"));
}

TEST_F(CudaPtxTest, PlantedReadOfMemoryNobodyWroteIsFound) {
  auto read = [](bool byKernel) {
    CudaDevice device(0);
    auto stream = device.createStream(StreamKind::Compute, "compute");
    std::string ptx = makeKernel("move", "ld.param.b64 %rd1, [move_param_0];\n"
                                         "ld.param.b64 %rd2, [move_param_1];\n"
                                         "ld.global.b32 %r1, [%rd1];\nst.global.b32 [%rd2], %r1;");
    auto kernel = device.loadKernel("move.ptx", std::as_bytes(std::span(ptx)), "move");
    auto memory = device.allocate(2 * sizeof(float));
    auto *values = static_cast<float *>(memory->data);
    void *pointers[] = {values, values + 1};
    if (byKernel)
      device.launch(*stream, *kernel, {}, pointers);
    float value = 0;
    device.copyOut(*stream, &value, values + 1, sizeof(value));
    stream->synchronize();
  };
  read(false);
  EXPECT_THAT(fake::takeFindings(),
              ElementsAre(AllOf(StartsWith("cuMemcpyDtoHAsync"),
                                HasSubstr("reads memory that was never written"))));
  catchError(ErrorCode::Internal, [&] { read(true); });
  EXPECT_THAT(fake::takeFindings(),
              Contains(StartsWith("kernel move reads memory that was never written")));
}

TEST_F(CudaPtxTest, PlantedDivergentBarrierIsFound) {
  std::string ptx = makeKernel("hang", "mov.u32 %r1, %tid.x;\nsetp.eq.s32 %p1, %r1, 0;\n"
                                       "@%p1 bra $SKIP;\n"
                                       "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\nbra $END;\n"
                                       "$SKIP:\nbar.sync 0;\n$END:");
  catchError(ErrorCode::Internal, [&] { (run<float, float>(ptx, "hang", {1.0f, 2.0f}, 1, 2)); });
  EXPECT_THAT(fake::takeFindings(),
              Contains("kernel hang has threads that wait for each other at different places"));
}

TEST_F(CudaPtxTest, PlantedMissingWaitIsFoundByWhatKernelsTouch) {
  // Two streams and one buffer: reads of one part do not race with writes of another part.
  std::string ptx = makeKernel("move", "ld.param.b64 %rd1, [move_param_0];\n"
                                       "ld.param.b64 %rd2, [move_param_1];\n"
                                       "ld.global.b32 %r1, [%rd1];\nst.global.b32 [%rd2], %r1;");
  fake::Options options;
  options.schedule = fake::Schedule::OldestFirst;
  fake::reset(options);
  CudaDevice device(0);
  auto first = device.createStream(StreamKind::Compute, "first");
  auto second = device.createStream(StreamKind::Compute, "second");
  auto kernel = device.loadKernel("move.ptx", std::as_bytes(std::span(ptx)), "move");
  auto memory = upload(device, *first, std::vector<float>{1, 2, 3, 4});
  auto *values = static_cast<float *>(memory->data);
  auto launch = [&](Stream &stream, int from, int to) {
    void *pointers[] = {values + from, values + to};
    device.launch(stream, *kernel, {}, pointers);
  };
  launch(*first, 0, 1);
  launch(*second, 2, 3);
  first->synchronize();
  second->synchronize();
  EXPECT_THAT(fake::takeFindings(), testing::IsEmpty());
  // A copy that is submitted after the kernel is ordered after it, even if it is checked earlier.
  float last = 0;
  launch(*first, 0, 1);
  device.copyOut(*first, &last, values + 1, sizeof(last));
  launch(*first, 3, 1);
  first->synchronize();
  EXPECT_EQ(last, 1);
  EXPECT_THAT(fake::takeFindings(), testing::IsEmpty());
  launch(*first, 0, 1);
  launch(*second, 1, 2);
  first->synchronize();
  second->synchronize();
  EXPECT_THAT(fake::takeFindings(), ElementsAre(AllOf(StartsWith("race: kernel move on stream 1"),
                                                      HasSubstr("kernel move on stream 0"))));
}

} // namespace
