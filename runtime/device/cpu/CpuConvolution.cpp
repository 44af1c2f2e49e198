//===- CpuConvolution.cpp - convolutions on the CPU -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuConvolution.h"

#include "runtime/core/Error.h"
#include "runtime/device/cpu/CpuMatmul.h"
#include "runtime/device/cpu/OneDnn.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "support/AlignTo.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string_view>

using namespace gridloom::rt;
using dnnl::memory;
using onednn::getEngine;
using onednn::getScratch;
using onednn::getStream;
using onednn::view;

using Dims = memory::dims;
using Forward = dnnl::convolution_forward;

/// Channels that oneDNN computes together, on AVX-512.
static constexpr int64_t kLanes = 16;

namespace {

/// Rows of the result, along its first spatial dimension, and the input rows that they read.
struct Rows {
  int64_t begin, end, first, last; // of the result; of the input, clipped
  int64_t low, high;               // rows of zero padding before and after the input's
};

/// Channels of the result.
struct Channels {
  int64_t begin, end;
};

/// A layout that a primitive reads or writes in place of the plan's, and the copy between them.
struct Copied {
  memory::desc layout;
  dnnl::reorder copy;

  static size_t getRoom(const std::optional<Copied> &copied) {
    return copied ? gridloom::alignTo(copied->layout.get_size(), onednn::kAlignment) : 0;
  }
};

/// A primitive for one range of rows and channels of any image.
struct Part {
  Rows rows;
  int64_t channel;            // the first
  memory::desc input, output; // in the plan's layouts
  memory::desc bias, scratch;
  size_t weights; // index into `packed`
  Forward primitive;
  std::optional<Copied> source, target;
};

/// The weights of some channels in one of oneDNN's layouts.
struct Packed {
  int64_t channel; // the first
  memory::desc given, description;
  memory values; // none if the plan's layout is used
};

} // namespace

struct CpuConvolution::Parts {
  Dims input, inputStrides, weight, weightStrides, output, outputStrides;
  Dims strides, low, high, dilations;
  int64_t groups;
  bool hasBias = false, hasConstantWeight = false;
  memory::desc given; // the weights in the plan's layout
  std::vector<Part> parts;
  std::vector<Packed> packed;
  const void *packedFrom = nullptr; // address of the constant weights in `packed`

  explicit Parts(const ConvolutionProblem &problem);
  bool tellRows(int64_t begin, int64_t end, Rows &rows) const;
  void addPart(const Rows &rows, const Channels &channels);
  bool isForChannels(int64_t threads) const;
  const float *getGiven(const Packed &each, const void *weights) const;
  void pack(const void *weight);
  void runPart(const Part &part, int64_t image, std::span<const void *const> inputs,
               float *out) const;
};

static Dims toDims(std::span<const int64_t> list) { return {list.begin(), list.end()}; }

CpuConvolution::Parts::Parts(const ConvolutionProblem &problem)
    : input(toDims(problem.input)), inputStrides(toDims(problem.inputStrides)),
      weight(toDims(problem.weight)), weightStrides(toDims(problem.weightStrides)),
      output(toDims(problem.output)), outputStrides(toDims(problem.outputStrides)),
      strides(toDims(problem.strides)), low(toDims(problem.low)), high(toDims(problem.high)),
      dilations(toDims(problem.dilations)), groups(problem.groups), hasBias(problem.epilogue.bias),
      hasConstantWeight(problem.constantWeight) {
  // oneDNN's dilation is the number of elements between those of a window.
  for (int64_t &dilation : dilations)
    --dilation;
  Dims shape = weight, steps = weightStrides;
  if (problem.groups > 1) {
    int64_t share = weight[0] / problem.groups;
    shape[0] = share;
    shape.insert(shape.begin(), problem.groups);
    steps.insert(steps.begin(), share * weightStrides[0]);
  }
  given = memory::desc(shape, memory::data_type::f32, steps);
}

/// Whether threads had better share an image's channels than its rows: each then reads its own
/// weights alone, and few rows do not divide evenly. oneDNN writes whole pixels, which are copied
/// into place, so this is for images smaller than the weights.
bool CpuConvolution::Parts::isForChannels(int64_t threads) const {
  auto count = [](const Dims &shape) {
    return std::accumulate(shape.begin() + 1, shape.end(), int64_t(1), std::multiplies<>());
  };
  return groups == 1 && outputStrides[1] == 1 && weight[0] % (kLanes * threads) == 0 &&
         weight[0] * count(weight) > count(input) + count(output);
}

/// Computes what the rows read. False if they read only padding.
bool CpuConvolution::Parts::tellRows(int64_t begin, int64_t end, Rows &rows) const {
  int64_t first = begin * strides[0] - low[0],
          last = (end - 1) * strides[0] - low[0] + (weight[2] - 1) * (dilations[0] + 1) + 1;
  rows = {begin,
          end,
          std::max<int64_t>(first, 0),
          std::min(last, input[2]),
          std::max<int64_t>(-first, 0),
          std::max<int64_t>(last - input[2], 0)};
  return rows.first < rows.last;
}

static Forward::primitive_desc describe(const memory::desc &input, const memory::desc &weights,
                                        const memory::desc &bias, const memory::desc &output,
                                        const Dims &strides, const Dims &dilations, const Dims &low,
                                        const Dims &high) {
  dnnl::primitive_attr attributes;
  // The library's own scratchpad belongs to the thread that creates the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {getEngine(), kind,    algorithm, input, weights, bias,
          output,      strides, dilations, low,   high,    attributes};
#else
  return {{kind, algorithm, input, weights, bias, output, strides, dilations, low, high},
          attributes,
          getEngine()};
#endif
}

static memory::desc inAnyLayout(const memory::desc &given) {
  return {onednn::getDims(given), memory::data_type::f32, memory::format_tag::any};
}

/// oneDNN's AVX2 kernel for windows of several elements takes up to twice as long with the channels
/// last as with channels in blocks, more than the copies to and from blocks. Windows of one element
/// and of one channel have other kernels.
static bool isForBlocks(const Forward::primitive_desc &description) {
  return std::string_view(description.impl_info_str()) == "jit:avx2";
}

/// The same dimensions in the same order, without room between elements; the last is contiguous.
static memory::desc packTightly(const Dims &shape, const Dims &steps) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return steps[a] < steps[b]; });
  Dims packed(shape.size());
  int64_t step = 1;
  for (size_t dim : order) {
    packed[dim] = step;
    step *= shape[dim];
  }
  return {shape, memory::data_type::f32, packed};
}

void CpuConvolution::Parts::addPart(const Rows &rows, const Channels &channels) {
  Dims in = input, out = output, before = low, after = high;
  in[0] = out[0] = 1;
  in[2] = rows.last - rows.first;
  out[1] = channels.end - channels.begin;
  out[2] = rows.end - rows.begin;
  before[0] = rows.low;
  after[0] = rows.high;
  auto forOneImage = [](const Dims &shape, Dims steps, const Dims &whole) {
    // The stride that an image of this height would have: oneDNN recognises layouts by it.
    if (whole[2] != shape[2])
      steps[0] = steps[0] / whole[2] * shape[2];
    return memory::desc(shape, memory::data_type::f32, steps);
  };
  Part part;
  part.rows = rows;
  part.channel = channels.begin;
  part.input = forOneImage(in, inputStrides, input);
  part.output = forOneImage(out, outputStrides, output);
  if (hasBias)
    part.bias = memory::desc({out[1]}, memory::data_type::f32, Dims{1});
  bool isWhole = out[1] == output[1];
  memory::desc own = given;
  if (!isWhole) {
    Dims shape = weight;
    shape[0] = out[1];
    own = memory::desc(shape, memory::data_type::f32, weightStrides);
  }
  memory::desc filters = inAnyLayout(own);
  auto description = describe(part.input, filters, part.bias,
                              isWhole ? part.output : packTightly(out, outputStrides), strides,
                              dilations, before, after);
  bool isCopied = false;
  if (isForBlocks(description)) {
    auto free = describe(inAnyLayout(part.input), filters, part.bias, inAnyLayout(part.output),
                         strides, dilations, before, after);
    // Groups whose channels fill no blocks would get a slower kernel.
    if (isForBlocks(free)) {
      isCopied = true;
      description = free;
    }
  }
  auto copy = [&](const memory::desc &from, const memory::desc &to) {
    return dnnl::reorder({getEngine(), from, getEngine(), to});
  };
  if (memory::desc source = description.src_desc(); isCopied)
    part.source = {source, copy(part.input, source)};
  if (memory::desc target = description.dst_desc(); isCopied || !isWhole)
    part.target = {target, copy(target, part.output)};
  part.scratch = description.scratchpad_desc();
  part.primitive = Forward(description);
  memory::desc weights = description.weights_desc();
  auto known = std::find_if(packed.begin(), packed.end(), [&](const Packed &each) {
    return each.channel == part.channel && each.description == weights;
  });
  part.weights = size_t(known - packed.begin());
  if (known == packed.end())
    packed.push_back(
        {part.channel, own, weights, weights == own ? memory() : memory(weights, getEngine())});
  parts.push_back(std::move(part));
}

/// The weights from the part's first channel on, in the plan's layout.
const float *CpuConvolution::Parts::getGiven(const Packed &each, const void *weights) const {
  return static_cast<const float *>(weights) + each.channel * weightStrides[0];
}

void CpuConvolution::Parts::pack(const void *weight) {
  if (hasConstantWeight && packedFrom == weight)
    return;
  for (Packed &each : packed) {
    if (!each.values)
      continue; // uses the plan's layout
    memory from = view(each.given, getGiven(each, weight));
    dnnl::reorder(from, each.values).execute(getStream(), from, each.values);
    getStream().wait();
  }
  packedFrom = weight;
}

void CpuConvolution::Parts::runPart(const Part &part, int64_t image,
                                    std::span<const void *const> inputs, float *out) const {
  const auto *in = static_cast<const float *>(inputs[0]);
  const Packed &weights = packed[part.weights];
  memory from = view(part.input, in + image * inputStrides[0] + part.rows.first * inputStrides[2]);
  memory to = view(part.output, out + image * outputStrides[0] + part.channel * outputStrides[1] +
                                    part.rows.begin * outputStrides[2]);
  memory source = from, target = to;
  size_t roomIn = Copied::getRoom(part.source), roomOut = Copied::getRoom(part.target);
  auto *scratch = static_cast<std::byte *>(getScratch(roomIn + roomOut + part.scratch.get_size()));
  if (part.source) {
    source = view(part.source->layout, scratch);
    part.source->copy.execute(getStream(), from, source);
  }
  if (part.target)
    target = view(part.target->layout, scratch + roomIn);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, source},
      {DNNL_ARG_WEIGHTS,
       weights.values ? weights.values : view(weights.given, getGiven(weights, inputs[1]))},
      {DNNL_ARG_DST, target},
      {DNNL_ARG_SCRATCHPAD, view(part.scratch, scratch + roomIn + roomOut)}};
  if (hasBias)
    arguments.emplace(DNNL_ARG_BIAS,
                      view(part.bias, static_cast<const float *>(inputs[2]) + part.channel));
  part.primitive.execute(getStream(), arguments);
  if (part.target)
    part.target->copy.execute(getStream(), target, to);
  getStream().wait();
}

CpuConvolution::CpuConvolution(const ConvolutionProblem &problem, int64_t threads) {
  if (problem.type != DataType::F32)
    throw Error(ErrorCode::Unavailable, "convolution: " + std::string(nameOf(problem.type)) +
                                            " is not available on the cpu");
  if (problem.epilogue.activation != Activation::None || problem.epilogue.residual)
    throw Error(ErrorCode::Unavailable,
                "convolution: activations and residuals are not available on the cpu");
  // A primitive is created for the number of oneDNN threads that run it: one, of the pool.
  OneLibraryThread one;
  onednn::guard("convolution", ErrorCode::Unavailable, [&] {
    parts = std::make_unique<Parts>(problem);
    int64_t height = problem.output[2], channels = problem.output[1];
    const Rows all = {0, height, 0, problem.input[2], problem.low[0], problem.high[0]};
    bool isCut = problem.output[0] % threads != 0;
    if (isCut && parts->isForChannels(threads)) {
      for (int64_t step = channels / threads, begin = 0; begin < channels; begin += step)
        parts->addPart(all, {begin, begin + step});
      return;
    }
    int64_t wanted = isCut ? std::min(threads, height) : 1;
    int64_t step = (height + wanted - 1) / wanted;
    std::vector<Rows> rows;
    for (int64_t begin = 0; begin < height; begin += step)
      if (!parts->tellRows(begin, std::min(begin + step, height), rows.emplace_back())) {
        rows.clear();
        break;
      }
    if (rows.size() <= 1)
      rows = {all};
    for (const Rows &each : rows)
      parts->addPart(each, {0, channels});
  });
}

CpuConvolution::~CpuConvolution() = default;

void CpuConvolution::forgetWeights() { parts->packedFrom = nullptr; }

void CpuConvolution::run(ThreadPool &pool, std::span<const void *const> inputs, void *out) {
  onednn::guard("convolution", ErrorCode::Internal, [&] {
    parts->pack(inputs[1]);
    auto perImage = int64_t(parts->parts.size());
    pool.parallelFor(parts->output[0] * perImage, [&](int64_t task) {
      parts->runPart(parts->parts[size_t(task % perImage)], task / perImage, inputs,
                     static_cast<float *>(out));
    });
  });
}
