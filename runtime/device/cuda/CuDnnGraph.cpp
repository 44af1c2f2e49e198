//===- CuDnnGraph.cpp - graphs of cuDNN operations ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CuDnnGraph.h"

#include "runtime/core/Error.h"
#include "runtime/device/cuda/CudaMeasure.h"
#include "support/CallText.h"

#include <algorithm>

namespace gridloom::rt {

using namespace cudnn;

static CuDnnGraph::Dims getRowMajorStrides(const CuDnnGraph::Dims &sizes) {
  CuDnnGraph::Dims strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

CuDnnGraph::CuDnnGraph(const CuDnn &library, std::string description, int64_t alignment)
    : library(library), doing("describing " + std::move(description)), alignment(alignment) {}

CuDnnDescriptor CuDnnGraph::make(Constant type) const {
  return CuDnnDescriptor(library, type, doing);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

CuDnnGraph::Tensor CuDnnGraph::add(Constant type, const Dims &sizes, const Dims &strides,
                                   bool isVirtual, bool byValue) {
  auto number = static_cast<Tensor>(tensors.size());
  CuDnnDescriptor &tensor = tensors.emplace_back(make(BACKEND_TENSOR_DESCRIPTOR));
  tensor.setEnum(ATTR_TENSOR_DATA_TYPE, TYPE_DATA_TYPE, type);
  tensor.set(ATTR_TENSOR_DIMENSIONS, sizes);
  tensor.set(ATTR_TENSOR_STRIDES, strides);
  tensor.set(ATTR_TENSOR_UNIQUE_ID, number + 1);
  tensor.set(ATTR_TENSOR_BYTE_ALIGNMENT, isVirtual || byValue ? int64_t(4) : alignment);
  tensor.set(ATTR_TENSOR_IS_VIRTUAL, isVirtual);
  if (byValue)
    tensor.set(ATTR_TENSOR_IS_BY_VALUE, true);
  tensor.finalize();
  if (!isVirtual)
    bound.insert(byValue ? bound.end() : bound.end() - static_cast<std::ptrdiff_t>(numbers.size()),
                 number + 1);
  return number;
}

CuDnnGraph::Tensor CuDnnGraph::addOperand(Constant type, const Dims &sizes, const Dims &strides) {
  size_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    last += static_cast<size_t>((sizes[i] - 1) * strides[i]);
  operandBytes.push_back((last + 1) * (type == DATA_FLOAT ? 4 : 2));
  return add(type, sizes, strides, /*isVirtual=*/false, /*byValue=*/false);
}

CuDnnGraph::Tensor CuDnnGraph::addVirtual(Constant type, const Dims &sizes) {
  return addVirtual(type, sizes, getRowMajorStrides(sizes));
}

CuDnnGraph::Tensor CuDnnGraph::addVirtual(Constant type, const Dims &sizes, const Dims &strides) {
  return add(type, sizes, strides, /*isVirtual=*/true, /*byValue=*/false);
}

CuDnnGraph::Tensor CuDnnGraph::addNumber(float value, size_t rank) {
  Dims ones(rank, 1);
  Tensor tensor = add(DATA_FLOAT, ones, ones, /*isVirtual=*/false, /*byValue=*/true);
  numbers.push_back(value);
  return tensor;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

CuDnnDescriptor &
CuDnnGraph::addOperation(Constant type, Constant parameterName, CuDnnDescriptor parameter,
                         std::initializer_list<std::pair<Constant, Tensor>> operands) {
  parameter.finalize();
  parameters.push_back(std::move(parameter));
  CuDnnDescriptor &operation = operations.emplace_back(make(type));
  operation.set(parameterName, parameters.back());
  for (auto [name, tensor] : operands)
    if (tensor != none)
      operation.set(name, tensors[size_t(tensor)]);
  return operation;
}

void CuDnnGraph::convolve(Tensor input, Tensor weight, Tensor output,
                          const Convolution &convolution) {
  CuDnnDescriptor parameter = make(BACKEND_CONVOLUTION_DESCRIPTOR);
  parameter.setEnum(ATTR_CONVOLUTION_COMP_TYPE, TYPE_DATA_TYPE, DATA_FLOAT);
  parameter.setEnum(ATTR_CONVOLUTION_CONV_MODE, TYPE_CONVOLUTION_MODE, CROSS_CORRELATION);
  parameter.set(ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(convolution.strides.size()));
  parameter.set(ATTR_CONVOLUTION_DILATIONS, convolution.dilations);
  parameter.set(ATTR_CONVOLUTION_FILTER_STRIDES, convolution.strides);
  parameter.set(ATTR_CONVOLUTION_PRE_PADDINGS, convolution.low);
  parameter.set(ATTR_CONVOLUTION_POST_PADDINGS, convolution.high);
  CuDnnDescriptor &operation =
      addOperation(BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, std::move(parameter),
                   {{ATTR_OPERATION_CONVOLUTION_FORWARD_X, input},
                    {ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight},
                    {ATTR_OPERATION_CONVOLUTION_FORWARD_Y, output}});
  operation.set(ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f);
  operation.set(ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f);
  operation.finalize();
}

CuDnnDescriptor CuDnnGraph::makePointwise(Constant mode) const {
  CuDnnDescriptor parameter = make(BACKEND_POINTWISE_DESCRIPTOR);
  parameter.setEnum(ATTR_POINTWISE_MODE, TYPE_POINTWISE_MODE, mode);
  parameter.setEnum(ATTR_POINTWISE_MATH_PREC, TYPE_DATA_TYPE, DATA_FLOAT);
  return parameter;
}

void CuDnnGraph::apply(Constant mode, Tensor x, Tensor b, Tensor output, Tensor select) {
  addOperation(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
               makePointwise(mode),
               {{ATTR_OPERATION_POINTWISE_XDESC, x},
                {ATTR_OPERATION_POINTWISE_BDESC, b},
                {ATTR_OPERATION_POINTWISE_TDESC, select},
                {ATTR_OPERATION_POINTWISE_YDESC, output}})
      .finalize();
}

void CuDnnGraph::generateIndex(int64_t axis, Tensor x, Tensor output) {
  CuDnnDescriptor parameter = makePointwise(POINTWISE_GEN_INDEX);
  parameter.set(ATTR_POINTWISE_AXIS, axis);
  addOperation(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
               std::move(parameter),
               {{ATTR_OPERATION_POINTWISE_XDESC, x}, {ATTR_OPERATION_POINTWISE_YDESC, output}})
      .finalize();
}

void CuDnnGraph::multiply(Tensor a, Tensor b, Tensor output) {
  CuDnnDescriptor parameter = make(BACKEND_MATMUL_DESCRIPTOR);
  parameter.setEnum(ATTR_MATMUL_COMP_TYPE, TYPE_DATA_TYPE, DATA_FLOAT);
  addOperation(BACKEND_OPERATION_MATMUL_DESCRIPTOR, ATTR_OPERATION_MATMUL_DESC,
               std::move(parameter),
               {{ATTR_OPERATION_MATMUL_ADESC, a},
                {ATTR_OPERATION_MATMUL_BDESC, b},
                {ATTR_OPERATION_MATMUL_CDESC, output}})
      .finalize();
}

void CuDnnGraph::reduce(Constant kind, Tensor x, Tensor output) {
  CuDnnDescriptor parameter = make(BACKEND_REDUCTION_DESCRIPTOR);
  parameter.setEnum(ATTR_REDUCTION_OPERATOR, TYPE_REDUCTION_OPERATOR_TYPE, kind);
  parameter.setEnum(ATTR_REDUCTION_COMP_TYPE, TYPE_DATA_TYPE, DATA_FLOAT);
  addOperation(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, ATTR_OPERATION_REDUCTION_DESC,
               std::move(parameter),
               {{ATTR_OPERATION_REDUCTION_XDESC, x}, {ATTR_OPERATION_REDUCTION_YDESC, output}})
      .finalize();
}

//===----------------------------------------------------------------------===//
// Engines
//===----------------------------------------------------------------------===//

std::shared_ptr<CuDnnDescriptor> CuDnnGraph::makeGraph() const {
  auto graph = std::make_shared<CuDnnDescriptor>(make(BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  std::vector<Descriptor> handles;
  handles.reserve(operations.size());
  for (const CuDnnDescriptor &operation : operations)
    handles.push_back(operation.getHandle());
  graph->set(ATTR_OPERATIONGRAPH_OPS, handles);
  if (library.getHandle())
    graph->set(ATTR_OPERATIONGRAPH_HANDLE, library.getHandle());
  graph->finalize();
  return graph;
}

std::optional<CuDnnEngine> CuDnnGraph::tryEngine(CuDnnDescriptor &config, uint64_t workspaceLimit,
                                                 std::span<const int> refused,
                                                 std::string &reason) const {
  constexpr size_t maxNotes = 32;
  std::vector<CuDnnDescriptor> engine;
  engine.push_back(make(BACKEND_ENGINE_DESCRIPTOR));
  config.getDescriptors(ATTR_ENGINECFG_ENGINE, engine);
  for (int note : engine[0].getEnums(ATTR_ENGINE_NUMERICAL_NOTE, TYPE_NUMERICAL_NOTE, maxNotes))
    if (std::find(refused.begin(), refused.end(), note) != refused.end()) {
      reason = "an engine was passed over for its precision";
      return std::nullopt;
    }
  CuDnnDescriptor plan = make(BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (library.getHandle())
    plan.set(ATTR_EXECUTION_PLAN_HANDLE, library.getHandle());
  else
    plan.set(ATTR_EXECUTION_PLAN_DEVICEPROP, *library.getProperties());
  if (!plan.tryFinalize(reason))
    return std::nullopt;
  int64_t bytes = plan.getNumber(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (bytes < 0 || static_cast<uint64_t>(bytes) > workspaceLimit) {
    reason = "an engine wants " + std::to_string(bytes) + " bytes of workspace";
    return std::nullopt;
  }
  return CuDnnEngine{nullptr, std::move(config), std::move(plan), static_cast<size_t>(bytes)};
}

std::vector<CuDnnEngine> CuDnnGraph::plan(uint64_t workspaceLimit, std::span<const int> refused,
                                          size_t most, std::string &reason, size_t first) {
  std::vector<CuDnnEngine> engines;
  std::shared_ptr<CuDnnDescriptor> graph = makeGraph();
  size_t place = 0;
  for (Constant mode : {HEUR_MODE_A, HEUR_MODE_FALLBACK}) {
    if (!engines.empty())
      break;
    CuDnnDescriptor heuristics = make(BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph);
    heuristics.setEnum(ATTR_ENGINEHEUR_MODE, TYPE_HEUR_MODE, mode);
    if (!library.getHandle())
      heuristics.set(ATTR_ENGINEHEUR_DEVICEPROP, *library.getProperties());
    if (!heuristics.tryFinalize(reason))
      continue;
    size_t count = heuristics.getDescriptors(ATTR_ENGINEHEUR_RESULTS, {});
    std::vector<CuDnnDescriptor> configs;
    configs.reserve(count);
    for (size_t i = 0; i < count; ++i)
      configs.push_back(make(BACKEND_ENGINECFG_DESCRIPTOR));
    count = std::min(count, heuristics.getDescriptors(ATTR_ENGINEHEUR_RESULTS, configs));
    for (size_t i = 0; i < count && engines.size() < most; ++i, ++place) {
      if (place < first)
        continue;
      if (auto engine = tryEngine(configs[i], workspaceLimit, refused, reason)) {
        engine->graph = graph;
        engine->place = place;
        engines.push_back(std::move(*engine));
      }
    }
  }
  return engines;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

CuDnnCall::CuDnnCall(std::shared_ptr<const CuDnn> library, CuDnnProblem problem,
                     std::shared_ptr<AutotuneCache> tuning)
    : library(std::move(library)), problem(std::move(problem)), tuning(std::move(tuning)) {
  plan(largestAlignment);
}

CuDnnCall::Planned &CuDnnCall::plan(int64_t alignment) {
  auto found = planned.find(alignment);
  if (found != planned.end())
    return found->second;
  if (library->getContext())
    library->getContext()->use();
  auto graph = std::make_unique<CuDnnGraph>(*library, problem.description, alignment);
  problem.build(*graph);
  std::vector<float> numbers = graph->getNumbers();
  std::string key = describeCall(alignment);
  std::shared_ptr<const CuDnnEngine> engine = library->findEngine(key);
  if (!engine) {
    engine = std::make_shared<const CuDnnEngine>(choose(*graph, key));
    library->keepEngine(key, engine);
  }
  return planned
      .emplace(alignment, Planned{std::move(graph), std::move(engine), std::move(numbers)})
      .first->second;
}

/// What an engine's choice depends on. The numbers of a graph are operands of its engine.
std::string CuDnnCall::describeCall(int64_t alignment) const {
  return "cudnn " + std::to_string(library->getVersion()) + " " + problem.key + " alignment " +
         std::to_string(alignment) + " workspace " + std::to_string(problem.workspaceLimit);
}

/// Chooses an engine. Measured choices are places in cuDNN's ranking, which depends on its version
/// and the GPU.
CuDnnEngine CuDnnCall::choose(CuDnnGraph &graph, const std::string &key) {
  constexpr size_t most = 8;
  std::string reason = "it proposes none";
  std::vector<CuDnnEngine> engines;
  if (std::optional<AutotuneCache::Choice> known = tuning ? tuning->find(key) : std::nullopt) {
    std::optional<int64_t> place = parseInteger(known->algorithm);
    if (place && *place >= 0)
      engines = graph.plan(problem.workspaceLimit, problem.refused, 1, reason,
                           static_cast<size_t>(*place));
    if (!engines.empty() && static_cast<int64_t>(engines.front().place) == *place)
      return std::move(engines.front());
    tuning->reject(key);
  }
  bool measures = tuning && library->getContext() && tuning->shouldMeasure(key);
  engines = graph.plan(problem.workspaceLimit, problem.refused, measures ? most : 1, reason);
  if (engines.empty())
    throw Error(ErrorCode::InvalidPlan, "cuDNN " + std::to_string(library->getVersion()) +
                                            " has no engine for " + problem.description +
                                            " within " + std::to_string(problem.workspaceLimit) +
                                            " bytes of workspace on " + library->getDeviceName() +
                                            " (" + reason + "); compile the model with --no-cudnn");
  if (measures) {
    try {
      measure(graph, engines, key);
    } catch (const Error &error) {
      if (error.getCode() != ErrorCode::OutOfMemory) // the plan fills the GPU: do without
        throw;
    }
  }
  return std::move(engines.front());
}

/// Times each engine several times and records the one with the smallest best time. Removes engines
/// that refuse to run; throws the last one's error if all do.
void CuDnnCall::measure(const CuDnnGraph &graph, std::vector<CuDnnEngine> &engines,
                        const std::string &key) {
  const std::shared_ptr<const CudaContext> &context = library->shareContext();
  CudaStream stream(context, StreamKind::Compute, "autotune");
  std::deque<ScratchMemory> memory;
  std::vector<const void *> operands;
  for (size_t bytes : graph.getOperandBytes()) {
    memory.emplace_back(stream, context, bytes);
    operands.push_back(memory.back().get());
  }
  std::vector<float> numbers = graph.getNumbers();
  AutotuneCache::Choice best;
  std::vector<CuDnnEngine> working;
  for (CuDnnEngine &engine : engines) {
    auto run = [&] { submit(stream, graph, engine, numbers, operands); };
    try {
      run();
    } catch (const Error &error) {
      bool isLast = &engine == &engines.back() && working.empty();
      if (isLast || error.getCode() == ErrorCode::OutOfMemory)
        throw;
      continue;
    }
    double least = measureMicroseconds(stream, context, problem.description, run);
    if (best.algorithm.empty())
      best.guessMicroseconds = least;
    if (best.algorithm.empty() || least < best.microseconds) {
      best.microseconds = least;
      best.algorithm = std::to_string(engine.place);
    }
    working.push_back(std::move(engine));
  }
  engines = std::move(working);
  tuning->add(key, std::move(best));
}

void CuDnnCall::run(CudaStream &stream, std::span<const void *const> operands) {
  library->getContext()->use();
  uintptr_t bits = 0;
  for (const void *operand : operands)
    bits |= reinterpret_cast<uintptr_t>(operand);
  Planned &chosen = plan(bits % largestAlignment == 0 ? largestAlignment
                                                      : static_cast<int64_t>(problem.elementBytes));
  submit(stream, *chosen.graph, *chosen.engine, chosen.numbers, operands);
}

void CuDnnCall::submit(CudaStream &stream, const CuDnnGraph &graph, const CuDnnEngine &engine,
                       std::vector<float> &numbers, std::span<const void *const> operands) {
  std::vector<void *> pointers;
  for (const void *operand : operands)
    pointers.push_back(const_cast<void *>(operand));
  for (float &number : numbers)
    pointers.push_back(&number);
  void *workspace = engine.workspaceBytes ? stream.getWorkspace(engine.workspaceBytes) : nullptr;

  std::string doing = "running " + problem.description + " on stream " + stream.getName();
  CuDnnDescriptor pack(*library, BACKEND_VARIANT_PACK_DESCRIPTOR, doing);
  pack.set(ATTR_VARIANT_PACK_UNIQUE_IDS, graph.getBound());
  pack.setPointers(ATTR_VARIANT_PACK_DATA_POINTERS, pointers);
  pack.setPointers(ATTR_VARIANT_PACK_WORKSPACE, std::span(&workspace, 1));
  pack.finalize();
  library->check(
      library->setStream(library->getHandle(), static_cast<cuda::StreamHandle>(stream.getNative())),
      "cudnnSetStream", doing);
  library->check(library->execute(library->getHandle(), engine.plan.getHandle(), pack.getHandle()),
                 "cudnnBackendExecute", doing);
}

Constant toCuDnnType(DataType type, const std::string &description) {
  switch (type) {
  case DataType::F32:
    return DATA_FLOAT;
  case DataType::F16:
    return DATA_HALF;
  case DataType::BF16:
    return DATA_BFLOAT16;
  default:
    throw Error(ErrorCode::InvalidPlan, description + " of " + std::string(nameOf(type)) +
                                            ": cuDNN computes f32, f16 and bf16 here");
  }
}

} // namespace gridloom::rt
