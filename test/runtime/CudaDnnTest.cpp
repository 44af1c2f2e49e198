//===- CudaDnnTest.cpp - convolution and attention on a GPU ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// On the fake GPU, compared with their definitions. If the real cuDNN is installed, it also plans
// them for an H200 that is only described: selecting engines for our graphs needs no GPU.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CuDnnGraph.h"
#include "test/fake/GpuHarness.h"

#include <cmath>
#include <dlfcn.h>
#include <limits>
#include <random>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::HasSubstr;

namespace {

using Dims = std::vector<int64_t>;
using CudaDnnTest = FakeGpus;

Dims getRowMajor(const Dims &sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

/// The strides of [N, C, spatial...] with neighbouring channels next to each other.
Dims getChannelsLast(const Dims &sizes) {
  Dims strides(sizes.size(), 1);
  int64_t stride = sizes[1];
  for (size_t i = sizes.size(); i-- > 2; stride *= sizes[i])
    strides[i] = stride;
  strides[0] = stride;
  return strides;
}

size_t getExtent(const Dims &sizes, const Dims &strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    last += (sizes[i] - 1) * strides[i];
  return size_t(last) + 1;
}

template <typename Visit> void forEachIndex(const Dims &sizes, Visit visit) {
  Dims index(sizes.size(), 0);
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  for (; count > 0; --count) {
    visit(index);
    for (size_t i = sizes.size(); i-- > 0;) {
      if (++index[i] < sizes[i])
        break;
      index[i] = 0;
    }
  }
}

size_t locate(const Dims &index, const Dims &strides) {
  int64_t place = 0;
  for (size_t i = 0; i < index.size(); ++i)
    place += index[i] * strides[i];
  return size_t(place);
}

/// A problem that owns its lists.
struct Convolution {
  Dims input, weight, strides, low, high, dilations;
  int64_t groups = 1;
  bool bias = false, residual = false, relu = false, channelsLast = false, tf32 = false;
  DataType type = DataType::F32;
  uint64_t workspaceLimit = uint64_t(1) << 30;
  Dims output = {}, inputStrides = {}, weightStrides = {}, outputStrides = {};

  ConvolutionProblem get() {
    output = {input[0], weight[0]};
    for (size_t i = 0; i < strides.size(); ++i)
      output.push_back((input[i + 2] + low[i] + high[i] - (weight[i + 2] - 1) * dilations[i] - 1) /
                           strides[i] +
                       1);
    auto layOut = channelsLast ? getChannelsLast : getRowMajor;
    inputStrides = layOut(input);
    weightStrides = layOut(weight);
    outputStrides = layOut(output);
    Epilogue epilogue{bias, residual, relu ? Activation::Relu : Activation::None};
    return {type,          input,         inputStrides, weight, weightStrides,
            output,        outputStrides, strides,      low,    high,
            dilations,     groups,        epilogue,     tf32,   /*constantWeight=*/false,
            workspaceLimit};
  }

  /// Computes the definition.
  std::vector<float> compute(const std::vector<float> &x, const std::vector<float> &w,
                             const std::vector<float> &b, const std::vector<float> &r) const {
    std::vector<float> y(getExtent(output, outputStrides));
    int64_t share = output[1] / groups;
    Dims taps(weight.begin() + 1, weight.end());
    forEachIndex(output, [&](const Dims &to) {
      double sum = bias ? double(b[size_t(to[1])]) : 0;
      sum += residual ? double(r[locate(to, outputStrides)]) : 0;
      forEachIndex(taps, [&](const Dims &k) {
        Dims from = to, tap = {to[1]};
        tap.insert(tap.end(), k.begin(), k.end());
        from[1] = to[1] / share * weight[1] + k[0];
        for (size_t i = 2; i < to.size(); ++i) {
          from[i] = to[i] * strides[i - 2] + k[i - 1] * dilations[i - 2] - low[i - 2];
          if (from[i] < 0 || from[i] >= input[i])
            return;
        }
        sum += double(x[locate(from, inputStrides)]) * double(w[locate(tap, weightStrides)]);
      });
      y[locate(to, outputStrides)] = float(relu ? std::max(sum, 0.0) : sum);
    });
    return y;
  }
};

std::vector<float> makeValues(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float &value : values)
    value = float(int(random() % 9) - 4);
  return values;
}

/// Compares the device with the definition; all numbers are small integers, so results are equal.
void expectComputes(Convolution convolution, size_t misalignment = 0) {
  ConvolutionProblem problem = convolution.get();
  CudaDevice device(0);
  std::unique_ptr<LibraryPlan> plan = device.createConvolution(problem);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto x = makeValues(getExtent(convolution.input, convolution.inputStrides), 1),
       w = makeValues(getExtent(convolution.weight, convolution.weightStrides), 2),
       b = makeValues(size_t(convolution.output[1]), 3),
       r = makeValues(getExtent(convolution.output, convolution.outputStrides), 4);
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<const void *> inputs;
  auto add = [&](std::vector<float> values) {
    values.insert(values.begin(), misalignment, 0);
    memory.push_back(upload(device, *stream, values));
    inputs.push_back(static_cast<float *>(memory.back()->data) + misalignment);
  };
  add(x);
  add(w);
  if (convolution.bias)
    add(b);
  if (convolution.residual)
    add(r);
  auto out = upload(device, *stream, std::vector<float>(r.size()));
  device.call(*stream, *plan, inputs, out->data);
  EXPECT_EQ(download<float>(device, *stream, out->data, r.size()), convolution.compute(x, w, b, r));
}

Convolution makePlain() { return {{2, 4, 7, 6}, {6, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}; }

/// Problems of all kinds, by name, with each epilogue that cuDNN supports: none, bias, or bias and
/// residual, without and with relu.
std::map<std::string, Convolution> getConvolutions() {
  const std::map<std::string, Convolution> kinds = {
      {"plain", makePlain()},
      {"strided", {{1, 3, 9, 9}, {8, 3, 3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}},
      {"padded on one side", {{1, 8, 9, 9}, {8, 8, 3, 3}, {1, 1}, {0, 2}, {2, 0}, {1, 1}}},
      {"dilated", {{1, 4, 9, 9}, {4, 4, 3, 3}, {1, 1}, {0, 0}, {0, 0}, {2, 3}}},
      {"grouped", {{2, 8, 6, 6}, {16, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4}},
      {"of one channel each", {{1, 8, 6, 6}, {8, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 8}},
      {"one-dimensional", {{2, 4, 20}, {8, 4, 5}, {2}, {2}, {1}, {1}}},
      {"three-dimensional",
       {{1, 2, 5, 6, 4}, {4, 2, 3, 2, 1}, {1, 2, 1}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}}},
      {"of single elements", {{2, 8, 5, 5}, {4, 8, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}}},
  };
  std::map<std::string, Convolution> all;
  for (auto [name, convolution] : kinds)
    for (bool relu : {false, true})
      for (int added = relu; added < 3; ++added) {
        convolution.relu = relu;
        convolution.bias = added > 0;
        convolution.residual = added > 1;
        all[name + (convolution.bias ? ", bias" : "") + (convolution.residual ? ", residual" : "") +
            (relu ? ", relu" : "")] = convolution;
      }
  return all;
}

TEST_F(CudaDnnTest, ConvolvesWhatTheDefinitionDoes) {
  for (auto [name, convolution] : getConvolutions())
    for (bool channelsLast : {false, true}) {
      SCOPED_TRACE(name + (channelsLast ? ", channels last" : ""));
      convolution.channelsLast = channelsLast;
      expectComputes(convolution);
    }
}

/// Relu of NaN must be NaN; cuDNN's own gives 0.
TEST_F(CudaDnnTest, NanPassesThroughRelu) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Convolution convolution{{1, 1, 1, 4}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}};
  convolution.bias = convolution.relu = true;
  ConvolutionProblem problem = convolution.get();
  CudaDevice device(0);
  std::unique_ptr<LibraryPlan> plan = device.createConvolution(problem);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto x = upload(device, *stream, std::vector<float>{nan, -3, 3, -INFINITY}),
       w = upload(device, *stream, std::vector<float>{1}),
       b = upload(device, *stream, std::vector<float>{1});
  auto out = device.allocate(4 * sizeof(float));
  const void *inputs[] = {x->data, w->data, b->data};
  device.call(*stream, *plan, inputs, out->data);
  std::vector<float> result = download<float>(device, *stream, out->data, 4);
  EXPECT_TRUE(std::isnan(result[0]));
  EXPECT_EQ(std::vector<float>(result.begin() + 1, result.end()), (std::vector<float>{0, 4, 0}));
}

TEST_F(CudaDnnTest, PlansAgainForPointersThatAreLessAligned) {
  Convolution convolution = makePlain();
  convolution.bias = true;
  expectComputes(convolution, /*misalignment=*/1);
}

/// The workspace of the engine chosen for `convolution`.
size_t getWorkspace(Convolution convolution) {
  CudaDevice device(0);
  ConvolutionProblem problem = convolution.get();
  return createCuDnnConvolution(std::make_shared<const CuDnn>(device.getContext(), ""), problem)
      ->getWorkspaceBytes();
}

TEST_F(CudaDnnTest, TakesTheFirstEngineThatFits) {
  Convolution convolution = makePlain();
  convolution.bias = convolution.relu = true;
  // The fast engine rounds f32 to TF32.
  EXPECT_EQ(getWorkspace(convolution), 0u);
  convolution.tf32 = true;
  size_t wanted = getWorkspace(convolution);
  EXPECT_GT(wanted, 0u);
  expectComputes(convolution);
  convolution.workspaceLimit = wanted - 1;
  EXPECT_EQ(getWorkspace(convolution), 0u);
}

TEST_F(CudaDnnTest, MeasuresEnginesOnceAndKeepsTheFastest) {
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                 ("gridloom-dnn-tuning-" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  Convolution convolution = makePlain();
  convolution.bias = convolution.tf32 = true; // two engines apply
  ConvolutionProblem problem = convolution.get();
  auto open = [&](bool measures) {
    return std::make_shared<AutotuneCache>(folder, "fake", measures);
  };
  auto getCalls = [] { return fake::getCalls("cudnnBackendExecute").size(); };
  auto cache = open(true);
  {
    CudaDevice device(0);
    device.setTuning(cache);
    device.createConvolution(problem);
  }
  EXPECT_EQ(cache->getNumMeasured(), 1u);
  EXPECT_EQ(getCalls(), 2u * (1 + 2 + 3 * 5));
  EXPECT_EQ(cache->save(), "");
  // Now the choice is known: nothing runs to find it.
  for (bool measures : {false, true}) {
    auto again = open(measures);
    EXPECT_EQ(again->getComplaint(), "");
    CudaDevice device(0);
    device.setTuning(again);
    device.createConvolution(problem);
    EXPECT_EQ(again->getNumMeasured(), 0u);
    EXPECT_EQ(getCalls(), 2u * (1 + 2 + 3 * 5));
  }
  // Another epilogue is another problem, and is measured.
  problem.epilogue.residual = true;
  auto other = open(true);
  CudaDevice device(0);
  device.setTuning(other);
  device.createConvolution(problem);
  EXPECT_EQ(other->getNumMeasured(), 1u);
}

TEST_F(CudaDnnTest, EqualCallsShareAnEngine) {
  CudaDevice device(0);
  auto countPlanning = [&](const ConvolutionProblem &problem, auto &call) {
    size_t before = fake::getCalls("cudnnBackendFinalize").size();
    call = device.createConvolution(problem);
    return fake::getCalls("cudnnBackendFinalize").size() - before;
  };
  Convolution convolution = makePlain();
  convolution.bias = convolution.tf32 = true;
  ConvolutionProblem problem = convolution.get();
  decltype(device.createConvolution(problem)) first, second, other;
  size_t whole = countPlanning(problem, first);
  EXPECT_LT(countPlanning(problem, second), whole);
  problem.epilogue.residual = true;
  EXPECT_GE(countPlanning(problem, other), whole);
  first.reset();
  second.reset();
  problem.epilogue.residual = false;
  EXPECT_EQ(countPlanning(problem, first), whole); // the engine went with its last call
}

TEST_F(CudaDnnTest, SaysWhatNoEngineTakes) {
  CudaDevice device(0);
  Dims sizes = {1, 2, 8, 8, 12, 12}, strides = {192, 96, 12, 1};
  AttentionProblem problem;
  problem.sizes = sizes;
  problem.query = problem.key = problem.value = problem.out = strides;
  std::string error = catchError(ErrorCode::InvalidPlan, [&] { device.createAttention(problem); });
  EXPECT_THAT(error,
              HasSubstr("no engine for attention of f16 batch 1, heads 2, queries 8, keys 8, "
                        "depth 12, values 12"));
  EXPECT_THAT(error, HasSubstr("--no-cudnn"));
  problem.type = DataType::F32;
  EXPECT_THAT(catchError(ErrorCode::InvalidPlan, [&] { device.createAttention(problem); }),
              HasSubstr("of f16 and bf16"));
  Convolution convolution = makePlain();
  convolution.type = DataType::I8;
  EXPECT_THAT(
      catchError(ErrorCode::InvalidPlan, [&] { device.createConvolution(convolution.get()); }),
      HasSubstr("of i8"));
}

TEST_F(CudaDnnTest, SaysWhatTheLibraryAnswers) {
  CudaDevice device(0);
  fake::failCall("cudnnBackendFinalize", 2000);
  EXPECT_THAT(
      catchError(ErrorCode::Internal, [&] { device.createConvolution(makePlain().get()); }),
      HasSubstr("cudnnBackendFinalize failed with CUDNN_STATUS_BAD_PARAM describing convolution"));
  fake::failCall("cudnnCreate", 1001);
  CudaDevice other(0);
  EXPECT_THAT(catchError(ErrorCode::Internal, [&] { other.createConvolution(makePlain().get()); }),
              HasSubstr("cudnnCreate failed with"));
}

TEST_F(CudaDnnTest, NeedsCuDnnOfVersionNine) {
  setenv("GRIDLOOM_CUDNN", "libcudnn_missing.so.9", 1);
  CudaDevice without(0);
  EXPECT_THAT(
      catchError(ErrorCode::Unavailable, [&] { without.createConvolution(makePlain().get()); }),
      HasSubstr("libcudnn_missing.so.9 not found: the plan has convolutions"));
  setenv("GRIDLOOM_CUDNN", GRIDLOOM_FAKE_CUDNN_OLD_PATH, 1);
  CudaDevice old(0);
  EXPECT_THAT(catchError(ErrorCode::Unavailable, [&] { old.createConvolution(makePlain().get()); }),
              HasSubstr("is cuDNN 8.9, older than 9"));
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

struct Attention {
  Dims sizes, mask = {};
  bool causal = false;
  DataType type = DataType::F16;
  double scale = 0.25;
  Dims query = {}, key = {}, value = {}, out = {};

  Dims with(size_t rows, size_t columns) const {
    return {sizes[0], sizes[1], sizes[rows], sizes[columns]};
  }
  AttentionProblem get() {
    query = getRowMajor(with(2, 4));
    key = getRowMajor(with(3, 4));
    value = getRowMajor(with(3, 5));
    out = getRowMajor(with(2, 5));
    return {type, type, sizes, query, key, value, out, mask, scale, causal, uint64_t(1) << 30};
  }
};

std::vector<_Float16> makeHalves(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<_Float16> values(count);
  for (_Float16 &value : values)
    value = static_cast<_Float16>(float(int(random() % 65) - 32) / 16);
  return values;
}

/// By definition, in f64.
std::vector<double> compute(const Attention &attention, const std::vector<_Float16> &q,
                            const std::vector<_Float16> &k, const std::vector<_Float16> &v,
                            const std::vector<_Float16> &mask) {
  std::vector<double> y(getExtent(attention.with(2, 5), attention.out));
  Dims rows = {attention.sizes[0], attention.sizes[1], attention.sizes[2]};
  forEachIndex(rows, [&](const Dims &row) {
    std::vector<double> weights;
    double sum = 0;
    for (int64_t key = 0; key < attention.sizes[3]; ++key) {
      double score = 0;
      for (int64_t d = 0; d < attention.sizes[4]; ++d)
        score += double(q[locate({row[0], row[1], row[2], d}, attention.query)]) *
                 double(k[locate({row[0], row[1], key, d}, attention.key)]);
      score *= attention.scale;
      if (!attention.mask.empty())
        score += double(mask[locate({row[0], row[1], row[2], key}, attention.mask)]);
      weights.push_back(attention.causal && key > row[2] ? 0 : std::exp(score));
      sum += weights.back();
    }
    for (int64_t e = 0; e < attention.sizes[5]; ++e) {
      double total = 0;
      for (int64_t key = 0; key < attention.sizes[3]; ++key)
        total += weights[size_t(key)] / sum *
                 double(v[locate({row[0], row[1], key, e}, attention.value)]);
      y[locate({row[0], row[1], row[2], e}, attention.out)] = total;
    }
  });
  return y;
}

std::map<std::string, Attention> getAttentions() {
  return {{"plain", {{2, 2, 8, 12, 16, 8}}},
          {"causal", {{1, 2, 9, 9, 16, 16}, {}, true}},
          {"masked", {{2, 2, 8, 8, 16, 16}, {128, 64, 8, 1}}},
          {"with a mask of keys", {{2, 2, 8, 8, 16, 16}, {8, 0, 0, 1}}},
          {"masked and causal", {{1, 2, 8, 8, 16, 16}, {0, 0, 8, 1}, true}}};
}

TEST_F(CudaDnnTest, AttendsAsTheDefinitionDoes) {
  for (auto [name, attention] : getAttentions()) {
    SCOPED_TRACE(name);
    AttentionProblem problem = attention.get();
    CudaDevice device(0);
    std::unique_ptr<LibraryPlan> plan = device.createAttention(problem);
    auto stream = device.createStream(StreamKind::Compute, "compute");
    auto q = makeHalves(getExtent(attention.with(2, 4), attention.query), 1),
         k = makeHalves(getExtent(attention.with(3, 4), attention.key), 2),
         v = makeHalves(getExtent(attention.with(3, 5), attention.value), 3);
    std::vector<_Float16> mask;
    if (!attention.mask.empty())
      mask = makeHalves(getExtent(attention.with(2, 3), attention.mask), 4);
    auto left = upload(device, *stream, q), right = upload(device, *stream, k),
         values = upload(device, *stream, v), bias = upload(device, *stream, mask);
    std::vector<double> expected = compute(attention, q, k, v, mask);
    auto out = device.allocate(expected.size() * sizeof(_Float16));
    std::vector<const void *> inputs = {left->data, right->data, values->data};
    if (!mask.empty())
      inputs.push_back(bias->data);
    device.call(*stream, *plan, inputs, out->data);
    auto got = download<_Float16>(device, *stream, out->data, expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(double(got[i]), expected[i], 2e-3) << i;
  }
}

//===----------------------------------------------------------------------===//
// The real cuDNN, for a GPU that is not here
//===----------------------------------------------------------------------===//

#ifdef GRIDLOOM_REAL_CUDNN

constexpr const char *h200 =
    R"({"deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 150000000000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560, "deviceName": "NVIDIA H200"})";

/// The installed cuDNN, for an H200; null, with the reason, if it is too old to plan for an absent
/// GPU.
std::shared_ptr<const CuDnn> openRealCuDnn(std::string &reason) {
  try {
    return std::make_shared<const CuDnn>(GRIDLOOM_REAL_CUDNN, h200);
  } catch (const Error &error) {
    reason = error.what();
    return nullptr;
  }
}

TEST(CudaRealDnnTest, PlansConvolutionsForAnH200) {
  std::string reason;
  auto library = openRealCuDnn(reason);
  if (!library)
    GTEST_SKIP() << reason;
  for (auto [name, convolution] : getConvolutions())
    for (DataType type : {DataType::F32, DataType::F16, DataType::BF16})
      for (int mode = 0; mode < 4; ++mode) {
        convolution.channelsLast = mode % 2;
        convolution.tf32 = mode / 2;
        convolution.type = type;
        EXPECT_NO_THROW(createCuDnnConvolution(library, convolution.get()))
            << name << " of " << nameOf(type) << ", mode " << mode;
      }
}

/// cuDNN compiles attention for the GPU and loads it through the driver. Here the driver is the
/// toolkit's stub, so that its error shows that everything before it succeeded.
TEST(CudaRealDnnTest, CompilesAttentionForAnH200) {
#ifdef GRIDLOOM_CUDA_STUB
  std::string reason;
  // Later loads of libcuda.so.1 get the stub.
  if (!dlopen(GRIDLOOM_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL))
    GTEST_SKIP() << dlerror();
  auto library = openRealCuDnn(reason);
  if (!library)
    GTEST_SKIP() << reason;
  Attention attention = {{2, 4, 77, 77, 64, 64}, {77, 0, 0, 1}, true};
  AttentionProblem problem = attention.get();
  std::string error =
      catchError(ErrorCode::InvalidPlan, [&] { createCuDnnAttention(library, problem); });
  EXPECT_THAT(error, HasSubstr("cuLibraryLoadData returned error  (34)"));
  // Interleaved heads, as a matrix product writes them.
  Dims together = {int64_t(77) * 4 * 64, 64, int64_t(4) * 64, 1};
  problem.query = problem.key = problem.value = problem.out = together;
  problem.mask = {};
  error = catchError(ErrorCode::InvalidPlan, [&] { createCuDnnAttention(library, problem); });
  EXPECT_THAT(error, HasSubstr("cuLibraryLoadData returned error  (34)"));
  // A head size of 12 is refused before that.
  attention.sizes = {2, 4, 77, 77, 12, 12};
  problem = attention.get();
  error = catchError(ErrorCode::InvalidPlan, [&] { createCuDnnAttention(library, problem); });
  EXPECT_THAT(error, HasSubstr("it proposes none"));
#else
  GTEST_SKIP() << "the toolkit's stub libcuda.so is not installed";
#endif
}

#else

TEST(CudaRealDnnTest, PlansConvolutionsForAnH200) { GTEST_SKIP() << "libcudnn is not installed"; }

#endif

} // namespace
