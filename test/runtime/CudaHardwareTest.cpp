//===- CudaHardwareTest.cpp - tests on a real GPU -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the fakes cannot show: that the driver compiles our PTX, that cuBLASLt reads our layouts as
// intended, that NCCL accepts our calls. Skipped without a GPU. One GPU is enough; NCCL between
// GPUs needs two.
//
//===----------------------------------------------------------------------===//

#include "test/fake/GpuHarness.h"

#include <dlfcn.h>
#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;

namespace {

/// out[i] = 2 * in[i] + 1 for block * grid floats.
constexpr const char *scalePtx = R"(
.version 7.8
.target sm_80
.address_size 64
.visible .entry scale(
	.param .u64 scale_param_0,
	.param .u64 scale_param_1
)
{
	.reg .b32 	%r<8>;
	.reg .b64 	%rd<8>;
	ld.param.b64 	%rd1, [scale_param_0];
	ld.param.b64 	%rd2, [scale_param_1];
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mov.u32 	%r3, %tid.x;
	mad.lo.s32 	%r4, %r1, %r2, %r3;
	mul.wide.u32 	%rd3, %r4, 4;
	add.s64 	%rd4, %rd1, %rd3;
	add.s64 	%rd5, %rd2, %rd3;
	ld.global.b32 	%r5, [%rd4];
	fma.rn.f32 	%r6, %r5, 0f40000000, 0f3F800000;
	st.global.b32 	[%rd5], %r6;
	ret;
}
)";

class CudaHardwareTest : public testing::Test {
protected:
  void SetUp() override {
    try {
      device = std::make_unique<CudaDevice>(0);
    } catch (const Error &error) {
      ASSERT_EQ(error.getCode(), ErrorCode::Unavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
    stream = device->createStream(StreamKind::Compute, "compute");
  }

  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Stream> stream;
};

TEST_F(CudaHardwareTest, CopiesThroughPinnedMemory) {
  std::vector<float> in(5 << 20);
  std::iota(in.begin(), in.end(), 0.0f);
  auto memory = upload(*device, *stream, in);
  EXPECT_EQ(download<float>(*device, *stream, memory->data, in.size()), in);
}

TEST_F(CudaHardwareTest, CompilesAndRunsPtx) {
  std::string_view ptx = scalePtx;
  auto kernel = device->loadKernel("scale.ptx", std::as_bytes(std::span(ptx)), "scale");
  std::vector<float> in(1024);
  std::iota(in.begin(), in.end(), 0.0f);
  auto from = upload(*device, *stream, in);
  auto to = device->allocate(from->bytes);
  LaunchShape shape;
  shape.grid[0] = 4;
  shape.block[0] = 256;
  void *pointers[] = {from->data, to->data};
  int64_t times[2] = {};
  stream->recordTime(&times[0]);
  device->launch(*stream, *kernel, shape, pointers);
  stream->recordTime(&times[1]);
  std::vector<float> out = download<float>(*device, *stream, to->data, in.size());
  for (size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(out[i], 2 * in[i] + 1);
  EXPECT_LE(times[0], times[1]);
  EXPECT_LE(times[1], getMonotonicTime());
}

TEST_F(CudaHardwareTest, MultipliesAsDefined) {
  // [heads, M, K] x [heads, K, N] + bias, with interleaved heads and a transposed right side; small
  // integers, so the result is exact.
  constexpr int64_t heads = 3, m = 32, n = 48, k = 64;
  const int64_t sizes[] = {heads, m, n, k}, lhs[] = {k, heads * k, 1}, rhs[] = {n * k, 1, k},
                out[] = {m * n, n, 1};
  MatmulProblem problem;
  problem.sizes = sizes;
  problem.lhs = lhs;
  problem.rhs = rhs;
  problem.out = out;
  problem.epilogue.bias = true;
  problem.alpha = 0.5;
  problem.workspaceLimit = 32 << 20;
  auto make = [](size_t count, int seed) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = float(int(i * 7 + size_t(seed)) % 9 - 4);
    return values;
  };
  std::vector<float> left = make(heads * m * k, 1), right = make(heads * n * k, 2),
                     bias = make(n, 3);
  auto plan = device->createMatmul(problem);
  auto a = upload(*device, *stream, left), b = upload(*device, *stream, right),
       c = upload(*device, *stream, bias);
  auto d = device->allocate(heads * m * n * sizeof(float));
  device->matmul(*stream, *plan, {a->data, b->data, c->data}, d->data);
  std::vector<float> result = download<float>(*device, *stream, d->data, heads * m * n);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column) {
        float sum = 0;
        for (int64_t x = 0; x < k; ++x)
          sum +=
              left[size_t(h * k + row * heads * k + x)] * right[size_t(h * n * k + x + column * k)];
        ASSERT_EQ(result[size_t(h * m * n + row * n + column)], 0.5f * sum + bias[size_t(column)]);
      }
}

/// Runs many all_reduces over `size` GPUs, one thread each.
std::vector<std::string> reduceOver(int size) {
  ThreadExchange exchange;
  return runRanks(size, [&](int rank) {
    CudaDevice device(rank);
    auto transport = createNcclTransport(device, rank, size, exchange.makeOptions(rank));
    auto stream = device.createStream(StreamKind::Communication, "comm");
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    auto world = transport->createCommunicator(ranks, "world");
    auto memory = upload(device, *stream, std::vector<float>(1000, 1.0f));
    for (uint32_t i = 0; i < 5; ++i)
      world->allReduce(*stream, memory->data, memory->data, 1000, DataType::F32, Reduction::Sum,
                       {"all_reduce", i, "test"});
    world->barrier(*stream, {"barrier", 5, "test"});
    EXPECT_EQ(download<float>(device, *stream, memory->data, 1000),
              std::vector<float>(1000, std::pow(float(size), 5.0f)));
  });
}

TEST_F(CudaHardwareTest, NcclOfOneRank) {
  std::vector<std::string> errors = reduceOver(1);
  if (errors[0].find("not found") != std::string::npos)
    GTEST_SKIP() << errors[0];
  EXPECT_EQ(errors[0], "");
}

TEST_F(CudaHardwareTest, MarksHowFarAStreamIs) {
  if (!device->getContext()->use().canWriteValues())
    GTEST_SKIP() << "the driver is older than CUDA 12";
  uint32_t last = 0;
  for (int i = 0; i < 3; ++i)
    last = stream->mark();
  stream->synchronize();
  EXPECT_EQ(stream->readMark(), std::optional<uint32_t>(last));
}

/// x = 4 x + 3, by two kernels on one stream with a collective of one rank on another stream
/// between them; the second kernel's input passes through a workspace allocated while capturing.
TEST_F(CudaHardwareTest, ReplaysAGraphOfTwoStreamsAndACollective) {
  if (std::string obstacle = device->whyNotCapturable(); !obstacle.empty())
    GTEST_SKIP() << obstacle;
  ThreadExchange exchange;
  std::unique_ptr<Transport> transport;
  try {
    transport = createNcclTransport(*device, 0, 1, exchange.makeOptions(0));
  } catch (const Error &error) {
    ASSERT_EQ(error.getCode(), ErrorCode::Unavailable) << error.what();
    GTEST_SKIP() << error.what();
  }
  auto comm = device->createStream(StreamKind::Communication, "comm");
  int all[] = {0};
  auto world = transport->createCommunicator(all, "world");
  std::string_view ptx = scalePtx;
  auto kernel = device->loadKernel("scale.ptx", std::as_bytes(std::span(ptx)), "scale");
  constexpr size_t count = 1024;
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  auto x = upload(*device, *stream, values), y = upload(*device, *stream, values),
       z = upload(*device, *stream, values);
  auto first = device->createEvent(), second = device->createEvent();
  auto submit = [&](void *through) {
    LaunchShape shape;
    shape.grid[0] = 4;
    shape.block[0] = 256;
    void *there[] = {x->data, y->data}, *back[] = {z->data, x->data};
    device->launch(*stream, *kernel, shape, there);
    stream->record(*first);
    comm->wait(*first);
    world->allReduce(*comm, y->data, z->data, count, DataType::F32, Reduction::Sum,
                     {"all_reduce", 0, "test"});
    comm->record(*second);
    stream->wait(*second);
    device->copy(*stream, through, z->data, z->bytes);
    device->copy(*stream, z->data, through, z->bytes);
    device->launch(*stream, *kernel, shape, back);
  };
  auto other = device->allocate(z->bytes);
  submit(other->data); // opens the connections
  stream->synchronize();
  comm->synchronize();

  Stream *streams[] = {stream.get(), comm.get()};
  device->beginCapture(streams);
  submit(static_cast<CudaStream &>(*stream).getWorkspace(z->bytes));
  auto graph = device->endCapture();
  for (int i = 0; i < 3; ++i)
    device->replay(*stream, *graph);
  std::vector<float> result = download<float>(*device, *stream, x->data, count);
  for (size_t i = 0; i < count; ++i) {
    float expected = values[i];
    for (int run = 0; run < 4; ++run)
      expected = 4 * expected + 3;
    ASSERT_EQ(result[i], expected);
  }
  graph.reset(); // before the communicator that it uses
}

TEST_F(CudaHardwareTest, NcclOfAllGpus) {
  int count = 0;
  device->getContext()->use().deviceGetCount(&count);
  if (count < 2)
    GTEST_SKIP() << "this machine has " << count << " GPU, NCCL refuses two ranks on one";
  EXPECT_THAT(reduceOver(count), testing::Each(""));
}

} // namespace
