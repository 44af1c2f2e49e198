//===- CpuDeviceTest.cpp - streams, kernels and matmuls on the CPU --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/device/Device.h"
#include "runtime/device/cpu/CpuLevel.h"
#include "runtime/device/cpu/CpuPackedMatmul.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "support/NarrowFloat.h"

#include <gmock/gmock.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using testing::HasSubstr;

namespace {

std::vector<std::byte> readKernels() {
  std::ifstream file(GRIDLOOM_TEST_KERNELS, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
/// Memory is limited to a few more stacks. Sanitizers' threads need more and would end the process.
TEST(ThreadPoolTest, AThreadThatCannotStartIsAnError) {
  pid_t child = fork();
  if (child == 0) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{pages * 4096 + (uint64_t(64) << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    try {
      ThreadPool pool(200, [] {});
    } catch (const Error &error) {
      _exit(std::string(error.what()).starts_with("cannot start thread ") ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (unsigned threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads, [] {});
    EXPECT_EQ(pool.getNumThreads(), threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      pool.parallelFor(count, [&](int64_t i) { ++runs[size_t(i)]; });
      for (auto &run : runs)
        EXPECT_EQ(run, 1);
    }
  }
}

TEST(ThreadPoolTest, RethrowsWhatATaskThrows) {
  for (unsigned threads : {1u, 3u}) {
    ThreadPool pool(threads, [] {});
    EXPECT_THROW(pool.parallelFor(8,
                                  [](int64_t i) {
                                    if (i == 5)
                                      throw std::runtime_error("five");
                                  }),
                 std::runtime_error);
    std::atomic<int64_t> sum = 0; // the next tasks know nothing of it
    pool.parallelFor(8, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 28);
  }
}

TEST(ThreadPoolTest, CallersTakeTurns) {
  ThreadPool pool(3, [] {});
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int j = 0; j < 200; ++j)
        pool.parallelFor(5, [&](int64_t) { ++sum; });
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_EQ(sum, 4 * 200 * 5);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

TEST(CpuStreamTest, RunsInOrder) {
  auto device = createCpuDevice(1);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  std::vector<int> order;
  for (int i = 0; i < 100; ++i)
    stream->enqueueHost([&, i] { order.push_back(i); });
  stream->synchronize();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(order[size_t(i)], i);
}

TEST(CpuStreamTest, WaitsForTheRecordingBeforeIt) {
  auto device = createCpuDevice(1);
  auto first = device->createStream(StreamKind::Compute, "first");
  auto second = device->createStream(StreamKind::Communication, "second");
  auto event = device->createEvent();
  second->wait(*event); // an event without a record: no wait
  second->synchronize();
  std::atomic<int> value{0};
  for (int round = 1; round <= 50; ++round) {
    first->enqueueHost([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      ++value;
    });
    first->record(*event);
    second->wait(*event);
    second->enqueueHost([&, round] { EXPECT_GE(value, round); });
  }
  second->synchronize();
  EXPECT_EQ(value, 50);
}

TEST(CpuStreamTest, FailuresTravelWithEvents) {
  auto device = createCpuDevice(1);
  std::atomic<int> reports{0};
  std::string reason;
  device->setErrorHandler([&](const std::string &text) {
    reason = text;
    ++reports;
  });
  auto first = device->createStream(StreamKind::Communication, "first");
  auto second = device->createStream(StreamKind::Compute, "second");
  auto event = device->createEvent();
  bool skipped = true;
  first->enqueueHost([] { throw Error(ErrorCode::PeerFailed, "rank 1 left"); });
  first->enqueueHost([&] { skipped = false; });
  first->record(*event);
  second->wait(*event);
  second->enqueueHost([&] { skipped = false; });
  for (Stream *stream : {second.get(), first.get(), first.get()})
    try {
      stream->synchronize();
      FAIL() << "nothing was thrown";
    } catch (const Error &error) {
      EXPECT_STREQ(error.what(), "rank 1 left");
      EXPECT_EQ(error.getCode(), ErrorCode::PeerFailed);
    }
  EXPECT_TRUE(skipped);
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(reason, "rank 1 left");
}

TEST(CpuStreamTest, TellsTimes) {
  auto device = createCpuDevice(1);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  int64_t begin = 0, end = 0;
  stream->recordTime(&begin);
  stream->enqueueHost([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  stream->recordTime(&end);
  stream->synchronize();
  EXPECT_GE(end - begin, 4'000'000);
}

//===----------------------------------------------------------------------===//
// Memory and kernels
//===----------------------------------------------------------------------===//

TEST(CpuDeviceTest, MemoryIsAligned) {
  auto device = createCpuDevice(1);
  for (size_t bytes : {0, 1, 63, 64, 1000}) {
    auto memory = device->allocate(bytes);
    EXPECT_EQ(memory->bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data) % 64, 0u);
  }
  try {
    device->allocate(size_t(1) << 60);
    FAIL() << "a memory of 2^60 bytes was allocated";
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), ErrorCode::OutOfMemory);
    EXPECT_THAT(error.what(), HasSubstr("1152921504606846976"));
  }
}

TEST(CpuDeviceTest, LaunchesEveryRowOnce) {
  std::vector<std::byte> code = readKernels();
  for (unsigned threads : {1u, 2u, 3u}) {
    auto device = createCpuDevice(threads);
    auto kernel = device->loadKernel("test.so", code, "count");
    auto stream = device->createStream(StreamKind::Compute, "compute");
    for (int64_t rows : {0, 1, 2, 3, 100, 1001})
      for (int64_t grain : {0, 1, 64, 5000}) {
        std::vector<int32_t> counts(size_t(rows) + 1, 0);
        void *pointers[] = {counts.data()};
        LaunchShape shape;
        shape.rows = rows;
        shape.grain = grain;
        device->launch(*stream, *kernel, shape, pointers);
        stream->synchronize();
        for (int64_t i = 0; i < rows; ++i)
          ASSERT_EQ(counts[size_t(i)], 1) << rows << " rows, grain " << grain << ", row " << i;
        EXPECT_EQ(counts.back(), 0);
      }
  }
}

TEST(CpuDeviceTest, RefusesWhatDoesNotLoad) {
  auto device = createCpuDevice(1);
  std::vector<std::byte> code = readKernels(), garbage(100);
  auto messageOf = [&](std::span<const std::byte> bytes, const char *symbol) -> std::string {
    try {
      device->loadKernel("test.so", bytes, symbol);
    } catch (const Error &error) {
      EXPECT_EQ(error.getCode(), ErrorCode::InvalidPlan);
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(messageOf(code, "nothing"), HasSubstr("kernels/test.so has no symbol 'nothing'"));
  EXPECT_THAT(messageOf(garbage, "twice"), HasSubstr("kernels/test.so does not load"));
}

/// Two plans' libraries of one name: each keeps its own, and releasing one leaves others usable.
TEST(CpuDeviceTest, LibrariesAreToldApart) {
  auto device = createCpuDevice(1);
  std::vector<std::byte> first = readKernels(), second = first;
  auto one = device->loadKernel("test.so", first, "twice");
  auto two = device->loadKernel("test.so", second, "twice");
  auto again = device->loadKernel("test.so", second, "count");
  one.reset();
  two.reset();
  auto stream = device->createStream(StreamKind::Compute, "compute");
  int32_t value = 0;
  void *pointers[] = {&value};
  device->launch(*stream, *again, {}, pointers);
  stream->synchronize();
  EXPECT_EQ(value, 1);
}

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

/// One problem. Layouts differ in the order of dimensions, padding of rows, and sharing.
struct Problem {
  std::vector<int64_t> batch;
  int64_t m, n, k;
  bool lhsTransposed = false, rhsTransposed = false, outTransposed = false;
  int64_t pad = 0;
  bool lhsShared = false, rhsShared = false; // batch stride 0
  bool bias = false;
  double alpha = 1;
  bool residual = false;
};

std::vector<int64_t> makeStrides(const std::vector<int64_t> &batch, int64_t rows, int64_t columns,
                                 bool transposed, int64_t pad, bool shared, int64_t &elements) {
  int64_t inner = transposed ? rows : columns, outer = transposed ? columns : rows;
  int64_t row = inner + pad, step = outer * row;
  std::vector<int64_t> strides(batch.size());
  elements = step;
  for (size_t i = batch.size(); i-- > 0;) {
    strides[i] = shared ? 0 : elements;
    if (!shared)
      elements *= batch[i];
  }
  strides.push_back(transposed ? 1 : row);
  strides.push_back(transposed ? row : 1);
  return strides;
}

/// A 16-bit float with arithmetic in f32.
template <typename Format> struct Narrow {
  Narrow() = default;
  explicit Narrow(float value) : bits(Format::store(value)) {}
  explicit Narrow(int64_t value) : Narrow(float(value)) {}
  operator float() const { return Format::load(bits); }
  uint16_t bits = 0;
};

template <typename T, typename Out = T, typename Sum = T>
void check(const Problem &p, DataType type, unsigned threads, bool mayPack = false) {
  int64_t lhsCount, rhsCount, outCount, batches = 1;
  auto lhs = makeStrides(p.batch, p.m, p.k, p.lhsTransposed, p.pad, p.lhsShared, lhsCount);
  auto rhs = makeStrides(p.batch, p.k, p.n, p.rhsTransposed, p.pad, p.rhsShared, rhsCount);
  auto out = makeStrides(p.batch, p.m, p.n, p.outTransposed, p.pad, false, outCount);
  std::vector<int64_t> sizes = p.batch;
  for (int64_t size : p.batch)
    batches *= size;
  sizes.insert(sizes.end(), {p.m, p.n, p.k});
  std::vector<T> a(static_cast<size_t>(lhsCount)), b(static_cast<size_t>(rhsCount));
  std::vector<Out> bias(static_cast<size_t>(p.n)), c(static_cast<size_t>(outCount), Out(Sum(-77)));
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = T(int64_t(i * 7 % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = T(int64_t(i * 5 % 11) - 5);
  for (size_t i = 0; i < bias.size(); ++i)
    bias[i] = Out(Sum(int64_t(i % 9) - 4));
  std::vector<Out> residual(c.size());
  for (size_t i = 0; i < residual.size(); ++i)
    residual[i] = Out(Sum(int64_t(i % 5) - 2));

  auto device = createCpuDevice(threads);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  MatmulProblem problem{type, sizes, lhs, rhs, out, p.alpha, {p.bias, p.residual}};
  if constexpr (!std::is_same_v<T, Out>)
    problem.outType = DataType::F32;
  problem.mayPack = mayPack;
  auto plan = device->createMatmul(problem);
  device->matmul(
      *stream, *plan,
      {a.data(), b.data(), p.bias ? bias.data() : nullptr, p.residual ? residual.data() : nullptr},
      c.data());
  stream->synchronize();

  std::vector<bool> written(c.size(), false);
  for (int64_t batch = 0; batch < batches; ++batch) {
    int64_t rest = batch, at[3] = {0, 0, 0};
    for (size_t d = p.batch.size(); d-- > 0; rest /= p.batch[d]) {
      at[0] += rest % p.batch[d] * lhs[d];
      at[1] += rest % p.batch[d] * rhs[d];
      at[2] += rest % p.batch[d] * out[d];
    }
    size_t r = p.batch.size();
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        Sum sum = 0;
        for (int64_t q = 0; q < p.k; ++q)
          sum += Sum(a[size_t(at[0] + i * lhs[r] + q * lhs[r + 1])]) *
                 Sum(b[size_t(at[1] + q * rhs[r] + j * rhs[r + 1])]);
        size_t place = size_t(at[2] + i * out[r] + j * out[r + 1]);
        Out expected = Out(Sum(p.alpha) * sum + (p.bias ? Sum(bias[size_t(j)]) : Sum(0)) +
                           (p.residual ? Sum(residual[place]) : Sum(0)));
        written[place] = true;
        // Small integers: every order of summation is exact.
        ASSERT_EQ(c[place], expected) << batch << ", " << i << ", " << j;
      }
  }
  for (size_t i = 0; i < c.size(); ++i)
    if (!written[i])
      ASSERT_EQ(c[i], Out(Sum(-77))) << "padding at " << i << " was written";
}

std::vector<Problem> listProblems() {
  return {
      {{}, 4, 6, 5},
      {{}, 128, 96, 64},
      {{}, 1, 100, 33},
      {{}, 100, 1, 33},
      {{}, 3, 5, 1},
      {{}, 1, 1, 1},
      {{}, 3, 5, 0},
      {{}, 0, 5, 4},
      {{}, 200, 7, 9, true},
      {{}, 7, 200, 9, false, true},
      {{}, 33, 65, 17, true, true},
      {{}, 33, 65, 17, false, false, true},
      {{}, 33, 65, 17, true, true, true},
      {{}, 33, 65, 17, false, false, false, 16},
      {{}, 33, 65, 17, true, false, false, 3},
      {{}, 33, 65, 17, false, true, true, 5},
      {{3}, 17, 9, 8},
      {{2, 3}, 5, 6, 7},
      {{2, 3}, 5, 6, 7, false, true, false, 1},
      {{4}, 5, 6, 7, false, false, false, 0, true},
      {{4}, 5, 6, 7, false, false, false, 0, false, true},
      {{2, 2}, 5, 6, 7, true, true, true, 2, true, true},
      {{}, 40, 30, 20, false, false, false, 0, false, false, true},
      {{2}, 40, 30, 20, false, false, false, 8, false, false, true, 0.5},
      {{}, 40, 30, 20, false, false, true, 0, false, false, true, 2},
      {{2}, 40, 30, 20, false, false, false, 8, false, false, false, 0.5, true},
      {{}, 40, 30, 20, false, false, true, 0, false, false, true, 2, true},
      {{}, 3, 5, 0, false, false, false, 0, false, false, true, 1, true},
      // Long sums over row-major operands, computed transposed, and some just below the limit.
      {{}, 35, 150, 560, false, true},
      {{2}, 33, 70, 540, false, true, false, 3, false, false, false, 2},
      {{}, 35, 150, 560, false, true, true},
      {{}, 35, 150, 560, false, true, false, 0, false, false, true},
      {{}, 31, 150, 600, false, true},
      // Operands with rows a multiple of 2 KiB apart, which are copied: of one matrix, of each
      // image, shared by images, both, and with padding.
      {{}, 512, 40, 66, true},
      {{3}, 512, 33, 64, true, false, false, 0, true},
      {{2}, 512, 33, 64, true},
      {{}, 36, 1024, 64, false, false, false, 0, false, false, true},
      {{2}, 36, 512, 64, false, false, false, 0, false, true, false, 0.5},
      {{}, 512, 512, 64, true},
      {{}, 500, 40, 66, true, false, false, 12},
      // Rows with a weight that may be packed.
      {{}, 4, 512, 128},
      {{}, 2, 100, 65, false, true, false, 3, false, false, true},
      {{}, 32, 190, 70, false, false, false, 5, false, false, true, 1, true},
      {{}, 5, 64, 64, false, true, false, 0, false, false, false, 1, true},
  };
}

class CpuMatmulTest : public testing::TestWithParam<Problem> {};
TEST_P(CpuMatmulTest, EqualsTheLoop) {
  for (unsigned threads : {1u, 3u})
    for (bool mayPack : {false, true})
      check<float>(GetParam(), DataType::F32, threads, mayPack);
  check<double>(GetParam(), DataType::F64, 2);
  // 16-bit operands with a result of the same type or f32.
  check<Narrow<Half>, Narrow<Half>, float>(GetParam(), DataType::F16, 2);
  check<Narrow<BFloat>, Narrow<BFloat>, float>(GetParam(), DataType::BF16, 2);
  check<Narrow<Half>, float, float>(GetParam(), DataType::F16, 2);
  check<Narrow<BFloat>, float, float>(GetParam(), DataType::BF16, 2);
  if (GetParam().alpha == std::floor(GetParam().alpha)) {
    check<int32_t>(GetParam(), DataType::I32, 2);
    check<int64_t>(GetParam(), DataType::I64, 2);
  }
}
INSTANTIATE_TEST_SUITE_P(Problems, CpuMatmulTest, testing::ValuesIn(listProblems()));

/// A weight is packed again at a new address, and where it is said to have changed.
TEST(CpuMatmulTest, ForgetsPackedWeights) {
  constexpr int64_t m = 4, n = 128, k = 64;
  int64_t sizes[] = {m, n, k}, lhs[] = {k, 1}, rhs[] = {n, 1}, out[] = {n, 1};
  std::vector<float> a(m * k, 1), b(k * n, 1), other(k * n, 2), c(m * n);
  auto device = createCpuDevice(2);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  MatmulProblem problem{DataType::F32, sizes, lhs, rhs, out};
  problem.mayPack = true;
  auto plan = device->createMatmul(problem);
  auto expect = [&](const std::vector<float> &weight, float each) {
    device->matmul(*stream, *plan, {a.data(), weight.data()}, c.data());
    stream->synchronize();
    EXPECT_EQ(c, std::vector<float>(m * n, each));
  };
  expect(b, k);
  expect(other, 2 * k);
  std::ranges::fill(other, 3);
  plan->forgetWeights();
  expect(other, 3 * k);
}

/// Several threads have kernels of oneDNN, too. For operands that it has none for, its loops took a
/// thousand times as long as a product without a packed weight.
TEST(CpuMatmulTest, PacksWhereThereAreKernels) {
  if (!hasCpuLevel("x86-64-v4") || std::getenv("ONEDNN_MAX_CPU_ISA"))
    GTEST_SKIP() << "needs AVX-512";
  constexpr int64_t m = 4, n = 512, k = 256;
  int64_t sizes[] = {m, n, k}, lhs[] = {k, 1}, apart[] = {2 * k, 1}, rhs[] = {n, 1}, out[] = {n, 1};
  MatmulProblem problem{DataType::F32, sizes, lhs, rhs, out};
  problem.mayPack = true;
  for (int64_t threads : {1, 2, 3})
    EXPECT_TRUE(CpuPackedMatmul::create(problem, threads)) << threads;
  problem.lhs = apart;
  EXPECT_FALSE(CpuPackedMatmul::create(problem, 1));
}

/// A copy of an operand lasts for one call only.
TEST(CpuMatmulTest, ReadsOperandsAnew) {
  constexpr int64_t m = 512, n = 32, k = 64;
  std::vector<float> a(m * k, 1), b(k * n, 1), c(m * n);
  int64_t sizes[] = {m, n, k}, lhs[] = {1, m}, rhs[] = {n, 1}, out[] = {n, 1};
  auto device = createCpuDevice(1);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  auto plan = device->createMatmul({DataType::F32, sizes, lhs, rhs, out});
  for (float value : {1.0f, 2.0f}) {
    std::fill(a.begin(), a.end(), value);
    device->matmul(*stream, *plan, {a.data(), b.data()}, c.data());
    stream->synchronize();
    EXPECT_EQ(c, std::vector<float>(m * n, value * k));
  }
}

#ifdef __GLIBC__
/// Bytes that malloc holds in all threads' heaps.
size_t readHeapBytes() {
  char *text = nullptr;
  size_t length = 0;
  FILE *file = open_memstream(&text, &length);
  malloc_info(0, file);
  fclose(file);
  std::string info(text, length), label = "<system type=\"current\" size=\"";
  free(text);
  return std::stoull(info.substr(info.rfind(label) + label.size())); // the last one is the sum
}

/// The library's buffers for these take 2 MiB. Seven of each size took 15 with AVX-512, 13 with
/// AVX2.
TEST(CpuMatmulTest, BuffersOfTheLibraryAreReused) {
  constexpr int64_t batch = 256, width = 1024;
  std::vector<float> a(width * width, 1), b(width * width, 1), c(width * width);
  int64_t rows[] = {width, 1}, columns[] = {1, width};
  int64_t sizes[] = {batch, width, width}, gradientSizes[] = {width, width, batch};
  auto device = createCpuDevice(1);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  size_t before = readHeapBytes();
  for (const MatmulProblem &problem :
       {MatmulProblem{DataType::F32, sizes, rows, rows, rows},
        MatmulProblem{DataType::F32, sizes, rows, columns, rows},
        MatmulProblem{DataType::F32, gradientSizes, columns, rows, rows}}) {
    auto plan = device->createMatmul(problem);
    for (int i = 0; i < 12; ++i) {
      device->matmul(*stream, *plan, {a.data(), b.data()}, c.data());
      stream->synchronize();
    }
  }
  EXPECT_LT(readHeapBytes(), before + (6 << 20));
}
#endif

/// Heads in the layout of a fused QKV projection: batch strides are smaller than row strides.
TEST(CpuMatmulTest, BatchesMayInterleave) {
  constexpr int64_t heads = 3, rows = 4, size = 5, row = heads * size;
  std::vector<float> q(rows * row), k(rows * row), scores(heads * rows * rows);
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = float(i % 7) - 3, k[i] = float(i % 5) - 2;
  int64_t sizes[] = {heads, rows, rows, size};
  int64_t lhs[] = {size, row, 1}, rhs[] = {size, 1, row}, out[] = {rows * rows, rows, 1};
  auto device = createCpuDevice(2);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  auto plan = device->createMatmul({DataType::F32, sizes, lhs, rhs, out});
  device->matmul(*stream, *plan, {q.data(), k.data()}, scores.data());
  stream->synchronize();
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rows; ++j) {
        float sum = 0;
        for (int64_t d = 0; d < size; ++d)
          sum += q[size_t(i * row + h * size + d)] * k[size_t(j * row + h * size + d)];
        EXPECT_EQ(scores[size_t((h * rows + i) * rows + j)], sum);
      }
}

TEST(CpuMatmulTest, RefusesWhatBlasCannotRead) {
  auto device = createCpuDevice(1);
  int64_t sizes[] = {4, 4, 4}, good[] = {4, 1}, gaps[] = {8, 2}, overlap[] = {2, 1};
  auto messageOf = [&](DataType type, std::span<const int64_t> lhs) -> std::string {
    try {
      device->createMatmul({type, sizes, lhs, good, good});
    } catch (const Error &error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(messageOf(DataType::F32, gaps), HasSubstr("lhs of 4 x 4 has strides 8, 2"));
  EXPECT_THAT(messageOf(DataType::F32, overlap), HasSubstr("lhs of 4 x 4 has strides 2, 1"));
  EXPECT_THAT(messageOf(DataType::BF16, gaps), HasSubstr("lhs of 4 x 4 has strides 8, 2"));
  EXPECT_THAT(messageOf(DataType::U8, good), HasSubstr("u8 is not available on the cpu"));
}

TEST(NarrowFloatTest, EveryHalfIsKept) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    float value = Half::load(uint16_t(bits));
    bool isNan = (bits & 0x7fff) > 0x7c00;
    ASSERT_EQ(std::isnan(value), isNan) << bits;
    if (isNan)
      continue;
    ASSERT_EQ(Half::store(value), bits);
    // By definition: mantissa and exponent.
    int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
    double size = exponent == 31  ? INFINITY
                  : exponent == 0 ? std::ldexp(mantissa, -24)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(double(value), bits >> 15 ? -size : size) << bits;
  }
}

TEST(NarrowFloatTest, RoundsToNearestEven) {
  EXPECT_EQ(Half::load(Half::store(2049)), 2048); // ties
  EXPECT_EQ(Half::load(Half::store(2051)), 2052);
  EXPECT_EQ(Half::load(Half::store(2049.01F)), 2050);
  EXPECT_EQ(Half::load(Half::store(65519)), 65504);
  EXPECT_EQ(Half::load(Half::store(65520)), INFINITY);
  EXPECT_EQ(Half::load(Half::store(-1e30F)), -INFINITY);
  EXPECT_EQ(Half::load(Half::store(0x1p-25F)), 0);
  EXPECT_EQ(Half::load(Half::store(0x1.1p-25F)), 0x1p-24F);
  EXPECT_TRUE(std::isnan(Half::load(Half::store(NAN))));
  EXPECT_EQ(BFloat::load(BFloat::store(257)), 256);
  EXPECT_EQ(BFloat::load(BFloat::store(259)), 260);
  EXPECT_EQ(BFloat::load(BFloat::store(3.4e38F)), INFINITY);
  EXPECT_TRUE(std::isnan(BFloat::load(BFloat::store(std::bit_cast<float>(0x7f800001)))));
}

} // namespace
