//===- FakeCudnn.cpp - cuDNN's backend interface on the fake driver -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Descriptors know their attributes' types and counts, and refuse others, as cuDNN does; anything
// that cuDNN answers with BAD_PARAM is also a finding. Heuristics propose a fast engine that needs
// workspace, and one that needs none. Graphs run on the host in the order of the handle's stream.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CuDnn.h"
#include "test/fake/FakeCudnnGraph.h"
#include "test/fake/FakeMachine.h"

#include <algorithm>
#include <cstring>

using namespace gridloom::fake;
using namespace gridloom::rt::cudnn;

namespace {

enum : int {
  BadParam = 2000,
  NullPointer = 2002,
  NotFinalized = 2004,
  BadAttributeType = 2010,
  NotSupported = 3000
};

struct Attribute {
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct Object {
  explicit Object(int type) : type(type) {}

  int type;
  bool finalized = false;
  std::map<int, Attribute> attributes;
  // For configurations, engines and plans.
  std::shared_ptr<const DnnGraph> graph = nullptr;
  bool isFast = false;

  template <typename T> std::vector<T> getAll(int name) const {
    auto found = attributes.find(name);
    std::vector<T> values(found == attributes.end() ? 0 : size_t(found->second.count));
    if (!values.empty())
      std::memcpy(static_cast<void *>(values.data()), found->second.bytes.data(),
                  values.size() * sizeof(T));
    return values;
  }
  template <typename T> T get(int name, T otherwise = T()) const {
    std::vector<T> values = getAll<T>(name);
    return values.empty() ? otherwise : values.front();
  }
  const Object *getObject(int name) const { return get<const Object *>(name); }
  size_t getWorkspaceBytes() const { return isFast ? 512 + graph->countVirtualBytes() : 0; }
};

struct DnnContext {
  void *stream = nullptr;
};

/// An attribute of a descriptor: its type, the number of elements, and whether it is required.
struct Rule {
  int name, type;
  int64_t least, most;
  bool required;
};

thread_local std::string lastError;

Machine &machine() { return Machine::get(); }

int fail(int status, const std::string &what) {
  lastError = what;
  machine().report("cuDNN was given " + what);
  return status;
}

size_t getTypeBytes(int type) {
  switch (type) {
  case TYPE_BOOLEAN:
  case TYPE_CHAR:
    return 1;
  case TYPE_HANDLE:
  case TYPE_INT64:
  case TYPE_VOID_PTR:
  case TYPE_BACKEND_DESCRIPTOR:
    return 8;
  default:
    return 4;
  }
}

constexpr int64_t many = 64;

const std::vector<Rule> *getRules(int type) {
  static const std::map<int, std::vector<Rule>> rules = {
      {BACKEND_TENSOR_DESCRIPTOR,
       {{ATTR_TENSOR_DATA_TYPE, TYPE_DATA_TYPE, 1, 1, true},
        {ATTR_TENSOR_DIMENSIONS, TYPE_INT64, 1, 8, true},
        {ATTR_TENSOR_STRIDES, TYPE_INT64, 1, 8, true},
        {ATTR_TENSOR_UNIQUE_ID, TYPE_INT64, 1, 1, true},
        {ATTR_TENSOR_BYTE_ALIGNMENT, TYPE_INT64, 1, 1, true},
        {ATTR_TENSOR_IS_VIRTUAL, TYPE_BOOLEAN, 1, 1, false},
        {ATTR_TENSOR_IS_BY_VALUE, TYPE_BOOLEAN, 1, 1, false}}},
      {BACKEND_CONVOLUTION_DESCRIPTOR,
       {{ATTR_CONVOLUTION_COMP_TYPE, TYPE_DATA_TYPE, 1, 1, true},
        {ATTR_CONVOLUTION_CONV_MODE, TYPE_CONVOLUTION_MODE, 1, 1, true},
        {ATTR_CONVOLUTION_SPATIAL_DIMS, TYPE_INT64, 1, 1, true},
        {ATTR_CONVOLUTION_DILATIONS, TYPE_INT64, 1, 3, true},
        {ATTR_CONVOLUTION_FILTER_STRIDES, TYPE_INT64, 1, 3, true},
        {ATTR_CONVOLUTION_PRE_PADDINGS, TYPE_INT64, 1, 3, true},
        {ATTR_CONVOLUTION_POST_PADDINGS, TYPE_INT64, 1, 3, true}}},
      {BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       {{ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_CONVOLUTION_FORWARD_X, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_CONVOLUTION_FORWARD_W, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_CONVOLUTION_FORWARD_Y, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, TYPE_FLOAT, 1, 1, true},
        {ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, TYPE_FLOAT, 1, 1, true}}},
      {BACKEND_POINTWISE_DESCRIPTOR,
       {{ATTR_POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, 1, true},
        {ATTR_POINTWISE_MATH_PREC, TYPE_DATA_TYPE, 1, 1, true},
        {ATTR_POINTWISE_AXIS, TYPE_INT64, 1, 1, false}}},
      {BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_POINTWISE_XDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_POINTWISE_BDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, false},
        {ATTR_OPERATION_POINTWISE_TDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, false},
        {ATTR_OPERATION_POINTWISE_YDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true}}},
      {BACKEND_MATMUL_DESCRIPTOR, {{ATTR_MATMUL_COMP_TYPE, TYPE_DATA_TYPE, 1, 1, true}}},
      {BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {{ATTR_OPERATION_MATMUL_DESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_MATMUL_ADESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_MATMUL_BDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_MATMUL_CDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true}}},
      {BACKEND_REDUCTION_DESCRIPTOR,
       {{ATTR_REDUCTION_OPERATOR, TYPE_REDUCTION_OPERATOR_TYPE, 1, 1, true},
        {ATTR_REDUCTION_COMP_TYPE, TYPE_DATA_TYPE, 1, 1, true}}},
      {BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {{ATTR_OPERATION_REDUCTION_DESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_REDUCTION_XDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_OPERATION_REDUCTION_YDESC, TYPE_BACKEND_DESCRIPTOR, 1, 1, true}}},
      {BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{ATTR_OPERATIONGRAPH_OPS, TYPE_BACKEND_DESCRIPTOR, 1, many, true},
        {ATTR_OPERATIONGRAPH_HANDLE, TYPE_HANDLE, 1, 1, true}}},
      {BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{ATTR_ENGINEHEUR_OPERATION_GRAPH, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_ENGINEHEUR_MODE, TYPE_HEUR_MODE, 1, 1, true}}},
      {BACKEND_ENGINECFG_DESCRIPTOR, {}},
      {BACKEND_ENGINE_DESCRIPTOR, {}},
      {BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{ATTR_EXECUTION_PLAN_ENGINE_CONFIG, TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
        {ATTR_EXECUTION_PLAN_HANDLE, TYPE_HANDLE, 1, 1, true}}},
      {BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{ATTR_VARIANT_PACK_UNIQUE_IDS, TYPE_INT64, 1, many, true},
        {ATTR_VARIANT_PACK_DATA_POINTERS, TYPE_VOID_PTR, 1, many, true},
        {ATTR_VARIANT_PACK_WORKSPACE, TYPE_VOID_PTR, 1, 1, true}}},
  };
  auto found = rules.find(type);
  return found == rules.end() ? nullptr : &found->second;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

DnnTensor readTensor(const Object &object) {
  DnnTensor tensor;
  tensor.type = object.get<int>(ATTR_TENSOR_DATA_TYPE);
  tensor.sizes = object.getAll<int64_t>(ATTR_TENSOR_DIMENSIONS);
  tensor.strides = object.getAll<int64_t>(ATTR_TENSOR_STRIDES);
  tensor.uid = object.get<int64_t>(ATTR_TENSOR_UNIQUE_ID);
  tensor.alignment = object.get<int64_t>(ATTR_TENSOR_BYTE_ALIGNMENT);
  tensor.isVirtual = object.get<uint8_t>(ATTR_TENSOR_IS_VIRTUAL);
  tensor.byValue = object.get<uint8_t>(ATTR_TENSOR_IS_BY_VALUE);
  return tensor;
}

std::string findTensorFault(const Object &object) {
  DnnTensor tensor = readTensor(object);
  if (tensor.sizes.size() != tensor.strides.size())
    return "a tensor of " + std::to_string(tensor.sizes.size()) + " dimensions and " +
           std::to_string(tensor.strides.size()) + " strides";
  for (size_t i = 0; i < tensor.sizes.size(); ++i)
    if (tensor.sizes[i] < 1 || tensor.strides[i] < 1)
      return "a tensor with a size of " + std::to_string(tensor.sizes[i]) + " and a stride of " +
             std::to_string(tensor.strides[i]);
  if (tensor.alignment < 1 || tensor.alignment & (tensor.alignment - 1))
    return "a tensor aligned to " + std::to_string(tensor.alignment) + " bytes";
  if (tensor.isVirtual && tensor.byValue)
    return "a tensor that is virtual and given by value";
  return "";
}

DnnOperation readOperation(const Object &object, std::map<int64_t, DnnTensor> &tensors) {
  DnnOperation op;
  op.kind = object.type;
  auto add = [&](int name) -> int64_t {
    const Object *tensor = object.getObject(name);
    if (!tensor)
      return 0;
    DnnTensor read = readTensor(*tensor);
    tensors[read.uid] = read;
    return read.uid;
  };
  auto addInputs = [&](std::initializer_list<int> names) {
    for (int name : names)
      if (int64_t uid = add(name))
        op.inputs.push_back(uid);
  };
  switch (object.type) {
  case BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: {
    const Object &window = *object.getObject(ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    op.strides = window.getAll<int64_t>(ATTR_CONVOLUTION_FILTER_STRIDES);
    op.dilations = window.getAll<int64_t>(ATTR_CONVOLUTION_DILATIONS);
    op.low = window.getAll<int64_t>(ATTR_CONVOLUTION_PRE_PADDINGS);
    op.high = window.getAll<int64_t>(ATTR_CONVOLUTION_POST_PADDINGS);
    addInputs({ATTR_OPERATION_CONVOLUTION_FORWARD_X, ATTR_OPERATION_CONVOLUTION_FORWARD_W});
    op.output = add(ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    break;
  }
  case BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    addInputs({ATTR_OPERATION_MATMUL_ADESC, ATTR_OPERATION_MATMUL_BDESC});
    op.output = add(ATTR_OPERATION_MATMUL_CDESC);
    break;
  case BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    op.mode = object.getObject(ATTR_OPERATION_REDUCTION_DESC)->get<int>(ATTR_REDUCTION_OPERATOR);
    addInputs({ATTR_OPERATION_REDUCTION_XDESC});
    op.output = add(ATTR_OPERATION_REDUCTION_YDESC);
    break;
  default: {
    const Object &pointwise = *object.getObject(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    op.mode = pointwise.get<int>(ATTR_POINTWISE_MODE);
    op.axis = pointwise.get<int64_t>(ATTR_POINTWISE_AXIS, -1);
    addInputs({ATTR_OPERATION_POINTWISE_XDESC, ATTR_OPERATION_POINTWISE_BDESC,
               ATTR_OPERATION_POINTWISE_TDESC});
    op.output = add(ATTR_OPERATION_POINTWISE_YDESC);
  }
  }
  return op;
}

int finalizeGraph(Object &object) {
  auto graph = std::make_shared<DnnGraph>();
  for (const Object *operation : object.getAll<const Object *>(ATTR_OPERATIONGRAPH_OPS))
    graph->operations.push_back(readOperation(*operation, graph->tensors));
  if (std::string fault = graph->findFault(); !fault.empty())
    return fail(BadParam, fault);
  object.graph = graph;
  return STATUS_SUCCESS;
}

std::vector<int> getNotes(const Object &engine) {
  if (engine.isFast && engine.graph->hasF32Factors())
    return {NUMERICAL_NOTE_TENSOR_CORE};
  return {};
}

/// The number of proposed engines: a fast one, except in fallback mode, and a slow one.
int64_t countProposals(const Object &heuristics) {
  if (!heuristics.getObject(ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph->findObstacle().empty())
    return 0;
  return heuristics.get<int>(ATTR_ENGINEHEUR_MODE) == HEUR_MODE_FALLBACK ? 1 : 2;
}

/// Checks the bindings of a variant pack; returns the error as text, or an empty string.
std::string findBindingFault(const Object &plan, const std::vector<int64_t> &uids,
                             const std::vector<void *> &pointers, const void *workspace) {
  if (uids.size() != pointers.size())
    return std::to_string(uids.size()) + " unique ids and " + std::to_string(pointers.size()) +
           " pointers";
  size_t bound = 0;
  for (const auto &[uid, tensor] : plan.graph->tensors) {
    if (tensor.isVirtual)
      continue;
    ++bound;
    auto found = std::find(uids.begin(), uids.end(), uid);
    if (found == uids.end())
      return "no pointer for tensor " + std::to_string(uid);
    void *pointer = pointers[size_t(found - uids.begin())];
    if (!pointer || reinterpret_cast<uintptr_t>(pointer) % uint64_t(tensor.alignment))
      return "a pointer that is null, or less aligned than its tensor says";
  }
  if (bound != uids.size())
    return "pointers for tensors that the graph has not";
  if (plan.getWorkspaceBytes() && !workspace)
    return "no workspace, and its plan needs some";
  return "";
}

} // namespace

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

EXPORT size_t cudnnGetVersion() {
#ifdef GRIDLOOM_FAKE_CUDNN_OLD
  return 8905;
#else
  return 91900;
#endif
}

EXPORT const char *cudnnGetErrorString(int status) {
  switch (status) {
  case STATUS_SUCCESS:
    return "CUDNN_STATUS_SUCCESS";
  case BadParam:
    return "CUDNN_STATUS_BAD_PARAM";
  case NullPointer:
    return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
  case NotFinalized:
    return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
  case BadAttributeType:
    return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
  case NotSupported:
    return "CUDNN_STATUS_NOT_SUPPORTED";
  default:
    return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

EXPORT void cudnnGetLastErrorString(char *message, size_t size) {
  std::strncpy(message, lastError.c_str(), size);
  lastError.clear();
}

EXPORT int cudnnCreate(DnnContext **handle) {
  if (int result = machine().enter("cudnnCreate"))
    return result;
  *handle = new DnnContext;
  machine().track(*handle, "cuDNN handle");
  return STATUS_SUCCESS;
}

EXPORT int cudnnDestroy(DnnContext *handle) {
  if (!machine().untrack(handle, "cudnnDestroy"))
    return BadParam;
  delete handle;
  return STATUS_SUCCESS;
}

EXPORT int cudnnSetStream(DnnContext *handle, void *stream) {
  if (!machine().isTracked(handle, "cudnnSetStream") ||
      !machine().checkStream(stream, "cudnnSetStream"))
    return BadParam;
  handle->stream = stream;
  return STATUS_SUCCESS;
}

EXPORT int cudnnBackendCreateDescriptor(int type, Object **descriptor) {
  if (!getRules(type))
    return fail(NotSupported, "descriptor type " + std::to_string(type));
  *descriptor = new Object(type);
  machine().track(*descriptor, "cuDNN descriptor of type " + std::to_string(type));
  return STATUS_SUCCESS;
}

EXPORT int cudnnBackendDestroyDescriptor(Object *descriptor) {
  if (!machine().untrack(descriptor, "cudnnBackendDestroyDescriptor"))
    return BadParam;
  delete descriptor;
  return STATUS_SUCCESS;
}

EXPORT int cudnnBackendSetAttribute(Object *descriptor, int name, int type, int64_t count,
                                    const void *values) {
  if (!machine().isTracked(descriptor, "cudnnBackendSetAttribute"))
    return BadParam;
  if (descriptor->finalized)
    return fail(BadParam, "an attribute for a descriptor that is final");
  if (!values)
    return fail(NullPointer, "no values for attribute " + std::to_string(name));
  const std::vector<Rule> &rules = *getRules(descriptor->type);
  auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const Rule &each) { return each.name == name; });
  if (rule == rules.end())
    return fail(NotSupported, "attribute " + std::to_string(name) + " for descriptor type " +
                                  std::to_string(descriptor->type));
  if (rule->type != type)
    return fail(BadAttributeType, "attribute " + std::to_string(name) + " as type " +
                                      std::to_string(type) + ", it is " +
                                      std::to_string(rule->type));
  if (count < rule->least || count > rule->most)
    return fail(BadParam, std::to_string(count) + " values for attribute " + std::to_string(name));
  Attribute &attribute = descriptor->attributes[name];
  attribute.count = count;
  const auto *bytes = static_cast<const std::byte *>(values);
  attribute.bytes.assign(bytes, bytes + size_t(count) * getTypeBytes(type));
  if (type == TYPE_BACKEND_DESCRIPTOR)
    for (const Object *each : descriptor->getAll<const Object *>(name))
      if (!machine().isTracked(each, "cudnnBackendSetAttribute") || !each->finalized)
        return fail(NotFinalized,
                    "a descriptor that is not final for attribute " + std::to_string(name));
  return STATUS_SUCCESS;
}

EXPORT int cudnnBackendFinalize(Object *descriptor) {
  if (!machine().isTracked(descriptor, "cudnnBackendFinalize"))
    return BadParam;
  if (int result = machine().enter("cudnnBackendFinalize", -1, std::to_string(descriptor->type)))
    return result;
  for (const Rule &rule : *getRules(descriptor->type))
    if (rule.required && !descriptor->attributes.count(rule.name))
      return fail(BadParam, "a descriptor of type " + std::to_string(descriptor->type) +
                                " without attribute " + std::to_string(rule.name));
  if (descriptor->type == BACKEND_TENSOR_DESCRIPTOR)
    if (std::string fault = findTensorFault(*descriptor); !fault.empty())
      return fail(BadParam, fault);
  if (descriptor->type == BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    if (int status = finalizeGraph(*descriptor))
      return status;
  if (descriptor->type == BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const Object &config = *descriptor->getObject(ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    descriptor->graph = config.graph;
    descriptor->isFast = config.isFast;
  }
  descriptor->finalized = true;
  return STATUS_SUCCESS;
}

EXPORT int cudnnBackendGetAttribute(Object *descriptor, int name, int type, int64_t asked,
                                    int64_t *count, void *values) {
  if (!machine().isTracked(descriptor, "cudnnBackendGetAttribute"))
    return BadParam;
  if (!descriptor->finalized)
    return fail(NotFinalized, "a question to a descriptor that is not final");
  auto fill = [&](int index, const std::shared_ptr<const DnnGraph> &graph, bool isFast) {
    Object *into = static_cast<Object **>(values)[index];
    into->graph = graph;
    into->isFast = isFast;
    into->finalized = true;
  };
  if (name == ATTR_ENGINEHEUR_RESULTS && type == TYPE_BACKEND_DESCRIPTOR) {
    int64_t all = countProposals(*descriptor);
    *count = asked ? std::min(all, asked) : all;
    for (int64_t i = 0; i < std::min(all, asked); ++i)
      fill(int(i), descriptor->getObject(ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph,
           /*isFast=*/all == 2 && i == 0);
    return STATUS_SUCCESS;
  }
  if (name == ATTR_ENGINECFG_ENGINE && type == TYPE_BACKEND_DESCRIPTOR && asked == 1) {
    *count = 1;
    fill(0, descriptor->graph, descriptor->isFast);
    return STATUS_SUCCESS;
  }
  if (name == ATTR_ENGINE_NUMERICAL_NOTE && type == TYPE_NUMERICAL_NOTE) {
    std::vector<int> notes = getNotes(*descriptor);
    *count = std::min<int64_t>(asked, int64_t(notes.size()));
    std::copy_n(notes.begin(), *count, static_cast<int *>(values));
    return STATUS_SUCCESS;
  }
  if (name == ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == TYPE_INT64 && asked == 1) {
    *count = 1;
    *static_cast<int64_t *>(values) = int64_t(descriptor->getWorkspaceBytes());
    return STATUS_SUCCESS;
  }
  return fail(NotSupported, "a question for attribute " + std::to_string(name));
}

EXPORT int cudnnBackendExecute(DnnContext *handle, Object *plan, Object *pack) {
  for (const void *each :
       {static_cast<void *>(handle), static_cast<void *>(plan), static_cast<void *>(pack)})
    if (!machine().isTracked(each, "cudnnBackendExecute"))
      return BadParam;
  Stream *stream = machine().checkStream(handle->stream, "cudnnBackendExecute");
  if (!stream)
    return BadParam;
  if (!plan->finalized || !pack->finalized)
    return fail(NotFinalized, "a plan or a variant pack that is not final");
  if (int result = machine().enter("cudnnBackendExecute", stream->number,
                                   std::to_string(plan->graph->operations.size()) + " operations"))
    return result;
  auto uids = pack->getAll<int64_t>(ATTR_VARIANT_PACK_UNIQUE_IDS);
  auto pointers = pack->getAll<void *>(ATTR_VARIANT_PACK_DATA_POINTERS);
  auto *workspace = pack->get<void *>(ATTR_VARIANT_PACK_WORKSPACE);
  if (std::string fault = findBindingFault(*plan, uids, pointers, workspace); !fault.empty())
    return fail(BadParam, fault);

  std::map<int64_t, void *> memory;
  std::map<int64_t, double> numbers;
  std::vector<Access> accesses;
  for (size_t i = 0; i < uids.size(); ++i) {
    const DnnTensor &tensor = plan->graph->tensors.at(uids[i]);
    if (tensor.byValue) {
      numbers[uids[i]] = double(*static_cast<float *>(pointers[i]));
      continue;
    }
    memory[uids[i]] = pointers[i];
    bool writes = false;
    for (const DnnOperation &op : plan->graph->operations)
      writes |= op.output == uids[i];
    accesses.push_back({pointers[i], tensor.extent(), writes});
  }
  if (size_t bytes = plan->getWorkspaceBytes())
    accesses.push_back({workspace, bytes, true});
  machine().submit(
      *stream, {"cudnnBackendExecute", std::move(accesses), [graph = plan->graph, memory, numbers] {
                  graph->run(memory, numbers);
                  return Step::Done;
                }});
  return STATUS_SUCCESS;
}

} // extern "C"
