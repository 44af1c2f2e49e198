//===- CuDnnConvolution.cpp - convolutions through cuDNN ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/core/Error.h"
#include "runtime/device/cuda/CuDnnGraph.h"

namespace gridloom::rt {

using namespace cudnn;
using Dims = CuDnnGraph::Dims;

static Dims copy(std::span<const int64_t> values) { return {values.begin(), values.end()}; }

static std::string format(std::span<const int64_t> sizes) {
  std::string text;
  for (int64_t size : sizes)
    text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text + "]";
}

static std::string describe(const ConvolutionProblem &problem) {
  std::string text = "convolution of " + std::string(nameOf(problem.type)) + " " +
                     format(problem.input) + " with " + format(problem.weight) + " to " +
                     format(problem.output) + ", strides " + format(problem.strides) +
                     ", padding " + format(problem.low) + " and " + format(problem.high) +
                     ", dilations " + format(problem.dilations) + ", " +
                     std::to_string(problem.groups) + " groups";
  const Epilogue &epilogue = problem.epilogue;
  for (auto [has, name] :
       {std::pair(epilogue.bias, " + bias"), std::pair(epilogue.residual, " + residual"),
        std::pair(epilogue.activation == Activation::Relu, " + relu")})
    text += has ? name : "";
  return text;
}

namespace {

/// A copy of a problem, with at least two spatial dimensions, which cuDNN requires.
struct Convolution {
  explicit Convolution(const ConvolutionProblem &problem, const std::string &description)
      : type(toCuDnnType(problem.type, description)), input(copy(problem.input)),
        inputStrides(copy(problem.inputStrides)), weight(copy(problem.weight)),
        weightStrides(copy(problem.weightStrides)), output(copy(problem.output)),
        outputStrides(copy(problem.outputStrides)),
        window{copy(problem.strides), copy(problem.low), copy(problem.high),
               copy(problem.dilations)},
        bias(problem.epilogue.bias), residual(problem.epilogue.residual),
        relu(problem.epilogue.activation == Activation::Relu) {
    if (input.size() != 3)
      return;
    for (auto [sizes, strides] :
         {std::pair(&input, &inputStrides), std::pair(&weight, &weightStrides),
          std::pair(&output, &outputStrides)}) {
      strides->insert(strides->begin() + 2, sizes->back() * strides->back());
      sizes->insert(sizes->begin() + 2, 1);
    }
    for (auto [list, value] : {std::pair(&window.strides, 1), std::pair(&window.dilations, 1),
                               std::pair(&window.low, 0), std::pair(&window.high, 0)})
      list->insert(list->begin(), value);
  }

  void build(CuDnnGraph &graph) const {
    CuDnnGraph::Tensor x = graph.addOperand(type, input, inputStrides);
    CuDnnGraph::Tensor w = graph.addOperand(type, weight, weightStrides);
    Dims channels(output.size(), 1), channelStrides(output.size(), 1);
    channels[1] = channelStrides[0] = output[1];
    // Engines that support both add the residual first.
    CuDnnGraph::Tensor added[2] = {CuDnnGraph::none, CuDnnGraph::none};
    if (bias)
      added[1] = graph.addOperand(type, channels, channelStrides);
    if (residual)
      added[0] = graph.addOperand(type, output, outputStrides);
    CuDnnGraph::Tensor out = graph.addOperand(type, output, outputStrides);

    int left = int(bias) + int(residual) + int(relu);
    auto next = [&] {
      return left-- > 0 ? graph.addVirtual(DATA_FLOAT, output, outputStrides) : out;
    };
    CuDnnGraph::Tensor last = next();
    graph.convolve(x, w, last, window);
    for (CuDnnGraph::Tensor operand : added) {
      if (operand == CuDnnGraph::none)
        continue;
      CuDnnGraph::Tensor sum = next();
      graph.apply(POINTWISE_ADD, last, operand, sum);
      last = sum;
    }
    if (relu)
      graph.apply(POINTWISE_RELU_FWD, last, CuDnnGraph::none, next());
  }

  Constant type;
  Dims input, inputStrides, weight, weightStrides, output, outputStrides;
  CuDnnGraph::Convolution window;
  bool bias, residual, relu;
};

} // namespace

/// The numerical notes of engines to refuse, so that results are deterministic and f32 has full
/// precision unless the problem allows TF32: engines note reduced precision, and transforms of
/// large tiles.
static std::vector<int> getRefusedNotes(const ConvolutionProblem &problem) {
  std::vector<int> notes = {NUMERICAL_NOTE_NONDETERMINISTIC,
                            NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
  if (problem.type != DataType::F32)
    return notes;
  notes.insert(notes.end(), {NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, NUMERICAL_NOTE_FFT,
                             NUMERICAL_NOTE_WINOGRAD_TILE_6x6, NUMERICAL_NOTE_WINOGRAD_TILE_13x13});
  if (!problem.tf32)
    notes.push_back(NUMERICAL_NOTE_TENSOR_CORE);
  return notes;
}

std::unique_ptr<CuDnnCall> createCuDnnConvolution(std::shared_ptr<const CuDnn> library,
                                                  const ConvolutionProblem &problem,
                                                  std::shared_ptr<AutotuneCache> tuning) {
  std::string description = describe(problem);
  std::string key = description + " by " + format(problem.inputStrides) + " " +
                    format(problem.weightStrides) + " " + format(problem.outputStrides) +
                    (problem.tf32 ? " tf32" : "");
  auto convolution = std::make_shared<const Convolution>(problem, description);
  auto build = [convolution](CuDnnGraph &graph) { convolution->build(graph); };
  return std::make_unique<CuDnnCall>(std::move(library),
                                     CuDnnProblem{std::move(description), std::move(key), build,
                                                  sizeOf(problem.type), problem.workspaceLimit,
                                                  getRefusedNotes(problem)},
                                     std::move(tuning));
}

} // namespace gridloom::rt
