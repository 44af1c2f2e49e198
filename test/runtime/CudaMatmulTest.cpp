//===- CudaMatmulTest.cpp - matrix multiplication on a GPU ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/MatmulLayout.h"
#include "support/NarrowFloat.h"
#include "support/TemporaryFolder.h"
#include "test/fake/GpuHarness.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

namespace {

using CudaMatmulTest = FakeGpus;

/// A problem that owns its sizes and strides.
struct Problem {
  std::vector<int64_t> sizes, lhs, rhs, out;
  double alpha = 1;
  bool bias = false;
  uint64_t workspaceLimit = 0;
  DataType type = DataType::F32;
  bool tf32 = false;
  std::optional<DataType> outType;
  Activation activation = Activation::None;
  bool residual = false;

  operator MatmulProblem() const {
    return {type,           sizes, lhs,    rhs, out, alpha, {bias, residual, activation},
            workspaceLimit, tf32,  outType};
  }
};

/// Row-major and contiguous.
Problem makeProblem(std::vector<int64_t> batch, int64_t m, int64_t n, int64_t k) {
  auto strides = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> result(batch.size());
    int64_t stride = rows * columns;
    for (size_t i = batch.size(); i-- > 0; stride *= batch[i])
      result[i] = stride;
    result.insert(result.end(), {columns, 1});
    return result;
  };
  Problem problem;
  problem.lhs = strides(m, k);
  problem.rhs = strides(k, n);
  problem.out = strides(m, n);
  problem.sizes = std::move(batch);
  problem.sizes.insert(problem.sizes.end(), {m, n, k});
  return problem;
}

/// The number of elements from the first to the last, gaps included.
size_t getExtent(const std::vector<int64_t> &sizes, const std::vector<int64_t> &strides) {
  int64_t last = 0;
  for (size_t i = 0; i < strides.size(); ++i)
    last += (sizes[i] - 1) * strides[i];
  return static_cast<size_t>(last) + 1;
}

struct Extents {
  std::vector<int64_t> lhs, rhs, out;
  explicit Extents(const Problem &problem) {
    size_t batch = problem.sizes.size() - 3;
    std::vector<int64_t> dims(problem.sizes.begin(), problem.sizes.begin() + long(batch));
    int64_t m = problem.sizes[batch], n = problem.sizes[batch + 1], k = problem.sizes[batch + 2];
    lhs = rhs = out = dims;
    lhs.insert(lhs.end(), {m, k});
    rhs.insert(rhs.end(), {k, n});
    out.insert(out.end(), {m, n});
  }
};

/// A 16-bit float.
template <typename Format> struct Narrow {
  Narrow() = default;
  explicit Narrow(double value) : bits(Format::store(float(value))) {}
  operator double() const { return double(Format::load(bits)); }
  bool operator==(const Narrow &other) const { return bits == other.bits; }
  uint16_t bits = 0;
};

/// The problem's result by definition.
template <typename T, typename Out = T>
std::vector<Out> multiply(const Problem &problem, const std::vector<T> &lhs,
                          const std::vector<T> &rhs, const std::vector<Out> &bias,
                          const std::vector<Out> &residual, std::vector<Out> out) {
  size_t batch = problem.sizes.size() - 3;
  int64_t m = problem.sizes[batch], n = problem.sizes[batch + 1], k = problem.sizes[batch + 2];
  int64_t count = std::accumulate(problem.sizes.begin(), problem.sizes.begin() + long(batch),
                                  int64_t(1), std::multiplies<>());
  for (int64_t i = 0; i < count; ++i) {
    int64_t l = 0, r = 0, o = 0, rest = i;
    for (size_t dim = batch; dim-- > 0; rest /= problem.sizes[dim]) {
      int64_t index = rest % problem.sizes[dim];
      l += index * problem.lhs[dim];
      r += index * problem.rhs[dim];
      o += index * problem.out[dim];
    }
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t x = 0; x < k; ++x)
          sum += double(lhs[size_t(l + row * problem.lhs[batch] + x * problem.lhs[batch + 1])]) *
                 double(rhs[size_t(r + x * problem.rhs[batch] + column * problem.rhs[batch + 1])]);
        auto at = size_t(o + row * problem.out[batch] + column * problem.out[batch + 1]);
        sum = sum * problem.alpha + (problem.bias ? double(bias[size_t(column)]) : 0) +
              (problem.residual ? double(residual[at]) : 0);
        if (problem.activation == Activation::Relu)
          sum = std::max(sum, 0.0);
        if (problem.activation == Activation::Gelu)
          sum = sum / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
        out[at] = Out(sum);
      }
  }
  return out;
}

template <typename T> std::vector<T> makeValues(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T &value : values)
    value = T(double(random() % 17) - 8);
  return values;
}

/// Compares the device with the definition; all numbers are small integers, so results are equal.
template <typename T = float, typename Out = T> void check(const Problem &problem) {
  SCOPED_TRACE(describeMatmul(problem));
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  Extents extents(problem);
  std::vector<T> lhs = makeValues<T>(getExtent(extents.lhs, problem.lhs), 1);
  std::vector<T> rhs = makeValues<T>(getExtent(extents.rhs, problem.rhs), 2);
  std::vector<Out> bias = makeValues<Out>(size_t(extents.out.back()), 3);
  std::vector<Out> out = makeValues<Out>(getExtent(extents.out, problem.out), 4);
  std::vector<Out> residual = makeValues<Out>(out.size(), 5);
  auto plan = device.createMatmul(problem);
  auto deviceLhs = upload(device, *stream, lhs);
  auto deviceRhs = upload(device, *stream, rhs);
  auto deviceResidual = upload(device, *stream, residual);
  auto deviceBias = upload(device, *stream, bias);
  auto deviceOut = upload(device, *stream, out);
  device.matmul(*stream, *plan,
                {deviceLhs->data, deviceRhs->data, problem.bias ? deviceBias->data : nullptr,
                 problem.residual ? deviceResidual->data : nullptr},
                deviceOut->data);
  // Elements between the rows of the output must not change.
  EXPECT_EQ(download<Out>(device, *stream, deviceOut->data, out.size()),
            (multiply<T, Out>(problem, lhs, rhs, bias, residual, out)));
}

TEST_F(CudaMatmulTest, RowMajor) { check(makeProblem({}, 5, 7, 3)); }
TEST_F(CudaMatmulTest, DoublePrecision) {
  Problem problem = makeProblem({2}, 5, 7, 3);
  problem.type = DataType::F64;
  problem.alpha = 0.5;
  check<double>(problem);
}
TEST_F(CudaMatmulTest, Activations) {
  for (auto activation : {Activation::Relu, Activation::Gelu})
    for (bool bias : {false, true}) {
      Problem problem = makeProblem({2}, 4, 5, 6);
      problem.alpha = 0.125;
      problem.bias = bias;
      problem.activation = activation;
      check(problem);
      problem.type = DataType::BF16;
      check<Narrow<BFloat>>(problem);
    }
}

/// Relu of NaN must be NaN; cuBLASLt's epilogue gives 0.
TEST_F(CudaMatmulTest, NanPassesThroughRelu) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (bool bias : {false, true}) {
    Problem problem = makeProblem({}, 2, 3, 1);
    problem.activation = Activation::Relu;
    problem.bias = bias;
    CudaDevice device(0);
    auto stream = device.createStream(StreamKind::Compute, "compute");
    auto plan = device.createMatmul(problem);
    auto lhs = upload(device, *stream, std::vector<float>{nan, -1});
    auto rhs = upload(device, *stream, std::vector<float>{2, 0, -INFINITY});
    auto biases = upload(device, *stream, std::vector<float>{0, 1, 0});
    auto out = device.allocate(6 * sizeof(float));
    device.matmul(*stream, *plan, {lhs->data, rhs->data, bias ? biases->data : nullptr}, out->data);
    std::vector<float> result = download<float>(device, *stream, out->data, 6);
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(std::isnan(result[size_t(i)])) << i;
    EXPECT_EQ(std::vector<float>(result.begin() + 3, result.end()),
              (std::vector<float>{0, bias ? 1.0f : 0.0f, INFINITY}));
  }
}

TEST_F(CudaMatmulTest, DoublesTakeABias) {
  // cuBLASLt has no epilogues for f64.
  for (bool residual : {false, true})
    for (auto activation : {Activation::None, Activation::Relu}) {
      Problem problem = makeProblem({2}, 5, 7, 3);
      problem.type = DataType::F64;
      problem.bias = true;
      problem.residual = residual;
      problem.activation = activation;
      check<double>(problem);
    }
}

TEST_F(CudaMatmulTest, PartialSumsAreNotRounded) {
  // If partial sums were bf16, 256 + 1 + 1 would be 256.
  Problem problem = makeProblem({}, 1, 1, 4);
  problem.type = DataType::BF16;
  problem.workspaceLimit = 4096;
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto plan = device.createMatmul(problem);
  using Number = Narrow<BFloat>;
  auto lhs = upload(device, *stream, std::vector<Number>(4, Number(1)));
  auto rhs =
      upload(device, *stream, std::vector<Number>{Number(256), Number(1), Number(1), Number(0)});
  auto out = device.allocate(sizeof(Number));
  device.matmul(*stream, *plan, {lhs->data, rhs->data}, out->data);
  EXPECT_EQ(double(download<Number>(device, *stream, out->data, 1)[0]), 258);
}

TEST_F(CudaMatmulTest, Residuals) {
  for (bool bias : {false, true}) {
    Problem problem = makeProblem({3, 2}, 4, 5, 6);
    problem.alpha = 0.5;
    problem.bias = bias;
    problem.residual = true;
    problem.activation = Activation::Relu;
    check(problem);
    problem.out = {7 * 8 * 5, 7 * 4, 7, 1}; // rows with gaps
    problem.activation = Activation::None;
    check(problem);
    problem.type = DataType::BF16;
    check<Narrow<BFloat>>(problem);
    problem.outType = DataType::F32;
    check<Narrow<BFloat>, float>(problem);
    problem.type = DataType::F64;
    problem.outType.reset();
    problem.bias = false; // a bias of f64 needs a dense result
    check<double>(problem);
  }
}

TEST_F(CudaMatmulTest, SixteenBits) {
  for (bool bias : {false, true}) {
    Problem problem = makeProblem({2}, 5, 7, 30);
    problem.bias = bias;
    problem.alpha = 0.5;
    problem.type = DataType::F16;
    check<Narrow<Half>>(problem);
    problem.type = DataType::BF16;
    check<Narrow<BFloat>>(problem);
    // f32 results are not rounded; the bias has their type.
    problem.outType = DataType::F32;
    check<Narrow<BFloat>, float>(problem);
    problem.type = DataType::F16;
    check<Narrow<Half>, float>(problem);
  }
}

TEST_F(CudaMatmulTest, SixteenBitMatricesMayStartAtOddElements) {
  Problem problem = makeProblem({3}, 3, 5, 3); // matrices of 9, 15 and 15 elements
  problem.type = DataType::BF16;
  check<Narrow<BFloat>>(problem);
  problem.outType = DataType::F32;
  check<Narrow<BFloat>, float>(problem);
}

TEST_F(CudaMatmulTest, Tf32RoundsOperands) {
  Problem problem = makeProblem({}, 1, 1, 1);
  auto run = [&](float lhs) {
    CudaDevice device(0);
    auto stream = device.createStream(StreamKind::Compute, "compute");
    auto plan = device.createMatmul(problem);
    auto deviceLhs = upload(device, *stream, std::vector<float>{lhs});
    auto deviceRhs = upload(device, *stream, std::vector<float>{1});
    auto out = device.allocate(4);
    device.matmul(*stream, *plan, {deviceLhs->data, deviceRhs->data}, out->data);
    return download<float>(device, *stream, out->data, 1)[0];
  };
  EXPECT_EQ(run(1 + 0x1p-20F), 1 + 0x1p-20F);
  problem.tf32 = true;
  EXPECT_EQ(run(1 + 0x1p-20F), 1);
  EXPECT_EQ(run(1 + 0x1p-10F), 1 + 0x1p-10F);
}

/// Uses a folder of its own. The second algorithm takes microseconds, the others seconds.
struct CudaAutotuneTest : FakeGpus {
  CudaAutotuneTest() { setenv("GRIDLOOM_FAKE_CUBLASLT_TIMES", "6000000,50,4000000", 1); }
  ~CudaAutotuneTest() override { unsetenv("GRIDLOOM_FAKE_CUBLASLT_TIMES"); }

  std::shared_ptr<AutotuneCache> open(const Device &device, bool measures) const {
    return std::make_shared<AutotuneCache>(folder, device.getTuningName(), measures);
  }
  /// The number of the algorithm that runs the problem.
  static std::string run(CudaDevice &device, const Problem &problem) {
    auto stream = device.createStream(StreamKind::Compute, "compute");
    auto plan = device.createMatmul(problem);
    auto memory = upload(device, *stream, makeValues<float>(256, 6));
    auto out = device.allocate(1024);
    size_t before = fake::getCalls("cublasLtMatmul").size();
    device.matmul(*stream, *plan, {memory->data, memory->data}, out->data);
    stream->synchronize();
    std::string call = fake::getCalls("cublasLtMatmul").at(before).detail;
    return call.substr(call.rfind(' ') + 1);
  }

  TemporaryFolder temporary;
  std::filesystem::path folder = temporary.getPath();
};

TEST_F(CudaAutotuneTest, TheFastestIsUsedFromTheNextLoadOn) {
  Problem problem = makeProblem({}, 16, 16, 4);
  problem.workspaceLimit = 1 << 16;
  CudaDevice device(0);
  EXPECT_THAT(device.getTuningName(), HasSubstr("sm_90-"));
  EXPECT_THAT(device.getTuningName(), Not(HasSubstr("/")));
  EXPECT_EQ(run(device, problem), "0");
  auto cache = open(device, /*measures=*/true);
  device.setTuning(cache);
  EXPECT_EQ(run(device, problem), "0") << "other ranks may have measured something else";
  EXPECT_EQ(cache->getNumMeasured(), 1u);
  run(device, problem);
  EXPECT_EQ(cache->getNumMeasured(), 1u);
  Problem other = makeProblem({}, 16, 8, 4);
  run(device, other);
  EXPECT_EQ(cache->getNumMeasured(), 2u);
  EXPECT_THAT(cache->save(), IsEmpty());

  CudaDevice next(0);
  next.setTuning(open(next, /*measures=*/false));
  EXPECT_EQ(run(next, problem), "1");
  EXPECT_EQ(fake::getCalls("cublasLtMatmulAlgoCheck").size(), 1u);
  // Unmeasured problems use the heuristic.
  EXPECT_EQ(run(next, makeProblem({}, 4, 4, 4)), "0");
  check(problem);
}

TEST_F(CudaAutotuneTest, WhatCannotBeMeasuredIsGuessed) {
  Problem problem = makeProblem({}, 16, 16, 4);
  CudaDevice device(0);
  auto cache = open(device, true);
  device.setTuning(cache);
  // No memory for the operands.
  fake::failCall("cuMemAlloc_v2", 2);
  EXPECT_EQ(run(device, problem), "0");
  EXPECT_EQ(cache->getNumMeasured(), 0u);
  // The first algorithm fails when it is called.
  fake::failCall("cublasLtMatmul", 15);
  device.createMatmul(problem);
  EXPECT_EQ(cache->getNumMeasured(), 1u);
}

TEST_F(CudaAutotuneTest, WhatTheLibraryNoLongerTakesIsGuessedAndMeasuredAgain) {
  Problem problem = makeProblem({}, 16, 16, 4);
  CudaDevice device(0);
  device.setTuning(open(device, true));
  run(device, problem);
  auto cache = open(device, true);
  device.setTuning(cache);
  run(device, problem);
  cache->save();
  fake::failCall("cublasLtMatmulAlgoCheck", 15);
  CudaDevice next(0);
  auto again = open(next, true);
  next.setTuning(again);
  EXPECT_EQ(run(next, problem), "0");
  EXPECT_EQ(again->getNumMeasured(), 1u);
  EXPECT_THAT(again->save(), IsEmpty());
  CudaDevice last(0);
  last.setTuning(open(last, false));
  EXPECT_EQ(run(last, problem), "1");
}

TEST_F(CudaMatmulTest, Vectors) {
  check(makeProblem({}, 1, 7, 3));
  check(makeProblem({}, 5, 1, 3));
  check(makeProblem({}, 5, 7, 1));
  check(makeProblem({}, 1, 1, 1));
}
TEST_F(CudaMatmulTest, Batch) { check(makeProblem({2, 3}, 4, 5, 6)); }

TEST_F(CudaMatmulTest, AlphaAndBias) {
  Problem problem = makeProblem({2}, 4, 5, 6);
  problem.alpha = -2;
  problem.bias = true;
  check(problem);
}

TEST_F(CudaMatmulTest, PaddedRows) {
  Problem problem = makeProblem({}, 4, 8, 6);
  problem.rhs = {24, 1}; // a weight with rows of N + 16 elements
  problem.out = {9, 1};
  check(problem);
}

TEST_F(CudaMatmulTest, TransposedOperands) {
  Problem problem = makeProblem({}, 4, 5, 6);
  problem.lhs = {1, 4};
  check(problem);
  problem.rhs = {1, 6};
  check(problem);
}

TEST_F(CudaMatmulTest, TransposedOutput) {
  Problem problem = makeProblem({}, 4, 5, 6);
  problem.out = {1, 4};
  check(problem);
  problem.bias = true;
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan, [&] { CudaDevice(0).createMatmul(problem); }),
              HasSubstr("has a bias and an output whose columns are contiguous"));
}

TEST_F(CudaMatmulTest, HeadsOfAttention) {
  // q and k are [batch, sequence, heads, size]; scores are [batch, heads, sequence, sequence].
  int64_t batch = 2, heads = 3, sequence = 4, size = 8;
  Problem problem;
  problem.sizes = {batch, heads, sequence, sequence, size};
  problem.lhs = {sequence * heads * size, size, heads * size, 1};
  problem.rhs = {sequence * heads * size, size, 1, heads * size};
  problem.out = {heads * sequence * sequence, sequence * sequence, sequence, 1};
  problem.alpha = 0.25;
  check(problem);
  EXPECT_EQ(layOutMatmul(problem).batch, heads);
  EXPECT_EQ(layOutMatmul(problem).calls.size(), size_t(batch));
}

TEST_F(CudaMatmulTest, BroadcastOperand) {
  Problem problem = makeProblem({3}, 4, 5, 6);
  problem.rhs = {0, 5, 1};
  check(problem);
}

TEST_F(CudaMatmulTest, MergesBatchDimensions) {
  EXPECT_EQ(layOutMatmul(makeProblem({2, 3, 1, 4}, 5, 6, 7)).batch, 24);
  EXPECT_EQ(layOutMatmul(makeProblem({2, 3, 1, 4}, 5, 6, 7)).calls.size(), 1u);
}

TEST_F(CudaMatmulTest, BatchesAreCountedIn32Bits) {
  MatmulLayout layout = layOutMatmul(makeProblem({4, int64_t(1) << 30}, 1, 1, 1));
  EXPECT_EQ(layout.batch, int64_t(1) << 30);
  EXPECT_EQ(layout.calls.size(), 4u);
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan,
                         [] { layOutMatmul(makeProblem({int64_t(1) << 31}, 1, 1, 1)); }),
              HasSubstr("has a batch of 2147483648, cuBLASLt takes at most 2147483647"));
}

TEST_F(CudaMatmulTest, RandomStrides) {
  // Random mixes of batch dimensions, transposes and padding that a library can run.
  std::mt19937 random(7);
  auto draw = [&](int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  };
  for (int round = 0; round < 200; ++round) {
    Problem problem;
    size_t batch = random() % 3;
    for (size_t i = 0; i < batch; ++i)
      problem.sizes.push_back(draw(1, 3));
    for (int i = 0; i < 3; ++i)
      problem.sizes.push_back(draw(1, 6));
    int64_t m = problem.sizes[batch], n = problem.sizes[batch + 1], k = problem.sizes[batch + 2];
    bool transposedOut = random() % 4 == 0;
    problem.bias = !transposedOut && random() % 2;
    problem.workspaceLimit = random() % 2 ? 1 << 20 : 0;
    auto strides = [&](int64_t rows, int64_t columns, bool transposed) {
      int64_t inner = transposed ? rows : columns;
      int64_t outer = inner + draw(0, 2);
      int64_t stride = outer * (transposed ? columns : rows) + draw(0, 3);
      std::vector<int64_t> result(batch);
      // Dimensions in a drawn order: [batch, heads] or [heads, batch] in memory.
      bool reversed = random() % 2;
      for (size_t i = 0; i < batch; ++i) {
        size_t dim = reversed ? i : batch - 1 - i;
        result[dim] = stride;
        stride *= problem.sizes[dim];
      }
      if (transposed)
        result.insert(result.end(), {1, outer});
      else
        result.insert(result.end(), {outer, 1});
      return result;
    };
    problem.lhs = strides(m, k, random() % 2);
    problem.rhs = strides(k, n, random() % 2);
    problem.out = strides(m, n, transposedOut);
    if (problem.bias && n != 1 && problem.out.back() != 1)
      continue;
    check(problem);
    if (HasFailure())
      break;
  }
}

TEST_F(CudaMatmulTest, PointersNeedNotBeAligned) {
  Problem problem = makeProblem({}, 4, 4, 4);
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto plan = device.createMatmul(problem);
  std::vector<float> values = makeValues<float>(17, 5);
  auto lhs = upload(device, *stream, values);
  auto rhs = upload(device, *stream, values);
  auto out = device.allocate(64);
  device.matmul(*stream, *plan, {static_cast<float *>(lhs->data) + 1, rhs->data}, out->data);
  std::vector<float> shifted(values.begin() + 1, values.end());
  EXPECT_EQ(download<float>(device, *stream, out->data, 16),
            multiply(problem, shifted, values, {}, {}, std::vector<float>(16)));
}

TEST_F(CudaMatmulTest, OnlyPointersThatAreNotAlignedNeedTheirAlgorithm) {
  setenv("GRIDLOOM_FAKE_CUBLASLT_ALIGNMENT", "16", 1);
  Problem problem = makeProblem({}, 4, 4, 4);
  check(problem);
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto plan = device.createMatmul(problem);
  auto memory = upload(device, *stream, makeValues<float>(17, 5));
  auto out = device.allocate(64);
  auto *shifted = static_cast<float *>(memory->data) + 1;
  EXPECT_THAT(
      catchError(ErrorCode::InvalidPlan,
                 [&] { device.matmul(*stream, *plan, {shifted, memory->data}, out->data); }),
      HasSubstr("of pointers that are aligned to 4 bytes, but for 16"));
  unsetenv("GRIDLOOM_FAKE_CUBLASLT_ALIGNMENT");
}

TEST_F(CudaMatmulTest, WorkspaceIsOneStreams) {
  // Two streams multiply at once: sharing a workspace would be a race.
  Problem small = makeProblem({}, 4, 4, 4), large = makeProblem({}, 16, 16, 4);
  small.workspaceLimit = large.workspaceLimit = 1 << 16;
  CudaDevice device(0);
  auto first = device.createStream(StreamKind::Compute, "first");
  auto second = device.createStream(StreamKind::Compute, "second");
  auto memory = upload(device, *first, makeValues<float>(64, 6));
  auto out = device.allocate(2048);
  auto *results = static_cast<float *>(out->data);
  auto smallPlan = device.createMatmul(small);
  auto largePlan = device.createMatmul(large);
  device.matmul(*first, *smallPlan, {memory->data, memory->data}, results);
  device.matmul(*second, *smallPlan, {memory->data, memory->data}, results + 16);
  device.matmul(*first, *largePlan, {memory->data, memory->data}, results + 32);
  device.matmul(*first, *smallPlan, {memory->data, memory->data}, results);
  first->synchronize();
  second->synchronize();
  EXPECT_EQ(fake::getCalls("cuMemAllocAsync").size(), 3u);
}

TEST_F(CudaMatmulTest, LimitsWorkspace) {
  Problem problem = makeProblem({}, 64, 64, 4);
  problem.workspaceLimit = 100;
  check(problem);
  EXPECT_THAT(fake::getCalls("cuMemAllocAsync"), IsEmpty());
}

TEST_F(CudaMatmulTest, StridesWithoutContiguityAreRefused) {
  Problem problem = makeProblem({}, 4, 5, 6);
  problem.lhs = {24, 2};
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan, [&] { CudaDevice(0).createMatmul(problem); }),
              StartsWith("matmul of [4, 6] x [6, 5] has an lhs with strides 24 and 2"));
  problem = makeProblem({}, 4, 5, 6);
  problem.out = {10, 2};
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan, [&] { CudaDevice(0).createMatmul(problem); }),
              HasSubstr("has an output with strides 10 and 2"));
}

TEST_F(CudaMatmulTest, IntegersAreRefused) {
  Problem problem = makeProblem({}, 4, 5, 6);
  problem.type = DataType::I32;
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan, [&] { CudaDevice(0).createMatmul(problem); }),
              HasSubstr("of i32: cuBLASLt multiplies f32"));
}

TEST_F(CudaMatmulTest, MissingLibraryIsOneLine) {
  setenv("GRIDLOOM_CUBLASLT", "/nowhere/libcublasLt.so.13", 1);
  Problem problem = makeProblem({}, 4, 5, 6);
  EXPECT_THAT(catchError(ErrorCode::Unavailable, [&] { CudaDevice(0).createMatmul(problem); }),
              StartsWith("/nowhere/libcublasLt.so.13 not found: the plan multiplies matrices with "
                         "cuBLASLt; install"));
}

TEST_F(CudaMatmulTest, FailingCallIsNamed) {
  Problem problem = makeProblem({}, 4, 5, 6);
  fake::failCall("cublasLtMatmulAlgoGetHeuristic", 15);
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan, [&] { CudaDevice(0).createMatmul(problem); }),
              HasSubstr("no algorithm for matmul of [4, 6] x [6, 5] within 0 bytes of workspace"));
  fake::failCall("cublasLtMatmul", 7);
  EXPECT_THAT(catchError(ErrorCode::Internal, [&] { check(problem); }),
              HasSubstr("cublasLtMatmul failed with CUBLAS_STATUS_INVALID_VALUE running matmul of "
                        "[4, 6] x [6, 5] on stream compute"));
}

} // namespace
