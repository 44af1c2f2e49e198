//===- CpuConvolutionTest.cpp - convolutions on the CPU -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The library's convolutions on small whole numbers, whose sums are exact in every order, compared
// with the loop that defines them.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/device/Device.h"

#include <functional>
#include <gmock/gmock.h>
#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;
using testing::HasSubstr;

namespace {

using Sizes = std::vector<int64_t>;

struct Problem {
  int64_t batch, channels, outputs;
  Sizes size, window, strides, low, high, dilations;
  int64_t groups = 1;
  bool bias = false;
};

/// Row-major strides of [first, second, spatial...]; with `channelsLast` the second is innermost.
Sizes makeStrides(const Sizes &shape, bool channelsLast) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t(0));
  if (channelsLast)
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  Sizes strides(shape.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0; step *= shape[order[i]])
    strides[order[i]] = step;
  return strides;
}

size_t countElements(const Sizes &shape) {
  return size_t(std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>()));
}

/// Calls `visit` with every index into `shape`.
void forEach(const Sizes &shape, const std::function<void(const Sizes &)> &visit) {
  Sizes index(shape.size(), 0);
  for (size_t n = 0; n < countElements(shape); ++n) {
    visit(index);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i])
        break;
      index[i] = 0;
    }
  }
}

size_t at(const Sizes &index, const Sizes &strides) {
  return size_t(std::inner_product(index.begin(), index.end(), strides.begin(), int64_t(0)));
}

std::vector<float> makeNumbers(size_t count, int factor) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i)
    numbers[i] = float(int(i * size_t(factor) % 13) - 6);
  return numbers;
}

/// A problem with its operands, run on a device with a number of threads.
struct Trial {
  explicit Trial(const Problem &p, bool channelsLast = true)
      : p(p), input{p.batch, p.channels}, weight{p.outputs, p.channels / p.groups},
        output{p.batch, p.outputs} {
    for (size_t i = 0; i < p.size.size(); ++i) {
      input.push_back(p.size[i]);
      weight.push_back(p.window[i]);
      output.push_back((p.size[i] + p.low[i] + p.high[i] - (p.window[i] - 1) * p.dilations[i] - 1) /
                           p.strides[i] +
                       1);
    }
    inputStrides = makeStrides(input, channelsLast);
    weightStrides = makeStrides(weight, false);
    outputStrides = makeStrides(output, channelsLast);
    x = makeNumbers(countElements(input), 7);
    w = makeNumbers(countElements(weight), 5);
    b = makeNumbers(size_t(p.outputs), 3);
    y.assign(countElements(output), -77);
  }

  ConvolutionProblem describe() const {
    ConvolutionProblem problem;
    problem.input = input;
    problem.inputStrides = inputStrides;
    problem.weight = weight;
    problem.weightStrides = weightStrides;
    problem.output = output;
    problem.outputStrides = outputStrides;
    problem.strides = p.strides;
    problem.low = p.low;
    problem.high = p.high;
    problem.dilations = p.dilations;
    problem.groups = p.groups;
    problem.epilogue.bias = p.bias;
    return problem;
  }

  void call(Device &device, Stream &stream, LibraryPlan &plan) {
    std::vector<const void *> inputs{x.data(), w.data()};
    if (p.bias)
      inputs.push_back(b.data());
    device.call(stream, plan, inputs, y.data());
    stream.synchronize();
  }

  float expect(const Sizes &place) const {
    float sum = p.bias ? b[size_t(place[1])] : 0;
    int64_t share = p.outputs / p.groups, group = place[1] / share;
    Sizes taps(weight.begin() + 1, weight.end());
    forEach(taps, [&](const Sizes &tap) {
      Sizes from{place[0], group * taps[0] + tap[0]}, factor{place[1], tap[0]};
      for (size_t i = 0; i < p.size.size(); ++i) {
        from.push_back(place[i + 2] * p.strides[i] - p.low[i] + tap[i + 1] * p.dilations[i]);
        factor.push_back(tap[i + 1]);
        if (from.back() < 0 || from.back() >= p.size[i])
          return;
      }
      sum += x[at(from, inputStrides)] * w[at(factor, weightStrides)];
    });
    return sum;
  }

  void check() const {
    forEach(output, [&](const Sizes &place) {
      ASSERT_EQ(y[at(place, outputStrides)], expect(place)) << testing::PrintToString(place);
    });
  }

  Problem p;
  Sizes input, weight, output, inputStrides, weightStrides, outputStrides;
  std::vector<float> x, w, b, y;
};

const Problem problems[] = {
    {1, 16, 32, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 5, {13, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {3, 7, 17, {9, 10}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1, true},
    {1, 64, 48, {7, 7}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
    {1, 3, 16, {15, 13}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}},
    // Unequal padding, and negative padding at the end.
    {2, 4, 6, {10, 9}, {2, 3}, {3, 2}, {0, 2}, {1, 0}, {1, 1}},
    {1, 8, 8, {12, 12}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}, 1, true},
    // Output rows that read only padding.
    {1, 4, 4, {3, 5}, {2, 2}, {1, 1}, {4, 0}, {4, 0}, {1, 1}, 1, true},
    {2, 12, 18, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 3, true},
    // Groups whose channels fill no blocks of eight.
    {1, 24, 20, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2},
    {2, 20, 36, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    // One filter per channel.
    {1, 24, 24, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 24},
    {1, 5, 10, {6, 7}, {3, 3}, {2, 1}, {1, 1}, {0, 1}, {1, 1}, 5},
    {2, 4, 8, {17}, {5}, {2}, {2}, {1}, {1}, 1, true},
    {1, 3, 4, {5, 6, 7}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}},
    {1, 1, 1, {4, 4}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    // More weights than pixels: two or three threads share the channels.
    {1, 32, 96, {7, 6}, {3, 3}, {2, 1}, {1, 1}, {1, 0}, {1, 1}, 1, true},
    {5, 48, 192, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {1, 16, 96, {5}, {3}, {1}, {1}, {1}, {1}, 1, true},
};

class CpuConvolutionTest : public testing::TestWithParam<Problem> {};

TEST_P(CpuConvolutionTest, EqualsTheLoop) {
  for (unsigned threads : {1u, 2u, 3u})
    for (bool channelsLast : {true, false}) {
      SCOPED_TRACE(std::to_string(threads) + " threads" + (channelsLast ? ", last" : ""));
      auto device = createCpuDevice(threads);
      auto stream = device->createStream(StreamKind::Compute, "compute");
      Trial run(GetParam(), channelsLast);
      auto plan = device->createConvolution(run.describe());
      run.call(*device, *stream, *plan);
      run.check();
    }
}
INSTANTIATE_TEST_SUITE_P(Problems, CpuConvolutionTest, testing::ValuesIn(problems));

/// Weights that are states change between calls; constant ones are read again at a new
/// address.
TEST(CpuConvolutionTest, ReadsWeightsThatChange) {
  auto device = createCpuDevice(2);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  for (bool isConstant : {false, true}) {
    Trial run(problems[0]);
    ConvolutionProblem problem = run.describe();
    problem.constantWeight = isConstant;
    auto plan = device->createConvolution(problem);
    run.call(*device, *stream, *plan);
    run.check();
    std::vector<float> moved = makeNumbers(run.w.size(), 11);
    if (isConstant)
      run.w.swap(moved);
    else
      run.w.assign(moved.begin(), moved.end());
    run.call(*device, *stream, *plan);
    run.check();
    run.call(*device, *stream, *plan);
    run.check();
  }
}

/// New weights may have the address of earlier ones.
TEST(CpuConvolutionTest, ForgetsWeights) {
  auto device = createCpuDevice(1);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  Trial run(problems[0]);
  ConvolutionProblem problem = run.describe();
  problem.constantWeight = true;
  auto plan = device->createConvolution(problem);
  run.call(*device, *stream, *plan);
  std::vector<float> others = makeNumbers(run.w.size(), 11);
  std::ranges::copy(others, run.w.begin());
  plan->forgetWeights();
  run.call(*device, *stream, *plan);
  run.check();
}

TEST(CpuConvolutionTest, RefusesWhatItHasNot) {
  auto device = createCpuDevice(1);
  Trial run(problems[0]);
  auto refuse = [&](const ConvolutionProblem &problem) -> std::string {
    try {
      device->createConvolution(problem);
    } catch (const Error &error) {
      EXPECT_EQ(error.getCode(), ErrorCode::Unavailable);
      return error.what();
    }
    return "";
  };
  ConvolutionProblem narrow = run.describe(), relu = narrow, residual = narrow;
  narrow.type = DataType::BF16;
  relu.epilogue.activation = Activation::Relu;
  residual.epilogue.residual = true;
  EXPECT_EQ(refuse(narrow), "convolution: bf16 is not available on the cpu");
  EXPECT_THAT(refuse(relu), HasSubstr("activations and residuals are not available on the cpu"));
  EXPECT_THAT(refuse(residual),
              HasSubstr("activations and residuals are not available on the cpu"));
}

} // namespace
