//===- CuDnn.h - the cuDNN library ------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDNN_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDNN_H

#include "runtime/device/cuda/CudaStream.h"

#include <map>
#include <span>

/// X(name without CUDNN_, value)
#define GRIDLOOM_CUDNN_CONSTANTS(X)                                                                \
  X(STATUS_SUCCESS, 0)                                                                             \
  X(STATUS_NOT_SUPPORTED, 3000)                                                                    \
  X(DATA_FLOAT, 0)                                                                                 \
  X(DATA_HALF, 2)                                                                                  \
  X(DATA_BFLOAT16, 9)                                                                              \
  X(DATA_BOOLEAN, 11)                                                                              \
  X(CROSS_CORRELATION, 1)                                                                          \
  X(POINTWISE_ADD, 0)                                                                              \
  X(POINTWISE_MUL, 1)                                                                              \
  X(POINTWISE_DIV, 6)                                                                              \
  X(POINTWISE_SUB, 9)                                                                              \
  X(POINTWISE_EXP, 13)                                                                             \
  X(POINTWISE_LOG, 15)                                                                             \
  X(POINTWISE_RELU_FWD, 100)                                                                       \
  X(POINTWISE_CMP_GE, 303)                                                                         \
  X(POINTWISE_GEN_INDEX, 501)                                                                      \
  X(POINTWISE_BINARY_SELECT, 601)                                                                  \
  X(REDUCE_TENSOR_ADD, 0)                                                                          \
  X(REDUCE_TENSOR_MAX, 3)                                                                          \
  X(HEUR_MODE_FALLBACK, 2)                                                                         \
  X(HEUR_MODE_A, 3)                                                                                \
  X(NUMERICAL_NOTE_TENSOR_CORE, 0)                                                                 \
  X(NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                                         \
  X(NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                                                 \
  X(NUMERICAL_NOTE_FFT, 3)                                                                         \
  X(NUMERICAL_NOTE_NONDETERMINISTIC, 4)                                                            \
  X(NUMERICAL_NOTE_WINOGRAD_TILE_6x6, 7)                                                           \
  X(NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8)                                                         \
  X(TYPE_HANDLE, 0)                                                                                \
  X(TYPE_DATA_TYPE, 1)                                                                             \
  X(TYPE_BOOLEAN, 2)                                                                               \
  X(TYPE_INT64, 3)                                                                                 \
  X(TYPE_FLOAT, 4)                                                                                 \
  X(TYPE_VOID_PTR, 6)                                                                              \
  X(TYPE_CONVOLUTION_MODE, 7)                                                                      \
  X(TYPE_HEUR_MODE, 8)                                                                             \
  X(TYPE_NUMERICAL_NOTE, 11)                                                                       \
  X(TYPE_POINTWISE_MODE, 14)                                                                       \
  X(TYPE_BACKEND_DESCRIPTOR, 15)                                                                   \
  X(TYPE_REDUCTION_OPERATOR_TYPE, 18)                                                              \
  X(TYPE_CHAR, 24)                                                                                 \
  X(BACKEND_POINTWISE_DESCRIPTOR, 0)                                                               \
  X(BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                                             \
  X(BACKEND_ENGINE_DESCRIPTOR, 2)                                                                  \
  X(BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                               \
  X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                              \
  X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                          \
  X(BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                          \
  X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                    \
  X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                         \
  X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                           \
  X(BACKEND_TENSOR_DESCRIPTOR, 17)                                                                 \
  X(BACKEND_MATMUL_DESCRIPTOR, 18)                                                                 \
  X(BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                                       \
  X(BACKEND_REDUCTION_DESCRIPTOR, 21)                                                              \
  X(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                                    \
  X(BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                             \
  X(ATTR_POINTWISE_MODE, 0)                                                                        \
  X(ATTR_POINTWISE_MATH_PREC, 1)                                                                   \
  X(ATTR_POINTWISE_AXIS, 9)                                                                        \
  X(ATTR_CONVOLUTION_COMP_TYPE, 100)                                                               \
  X(ATTR_CONVOLUTION_CONV_MODE, 101)                                                               \
  X(ATTR_CONVOLUTION_DILATIONS, 102)                                                               \
  X(ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                                          \
  X(ATTR_CONVOLUTION_POST_PADDINGS, 104)                                                           \
  X(ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                                            \
  X(ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                                            \
  X(ATTR_ENGINEHEUR_MODE, 200)                                                                     \
  X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                          \
  X(ATTR_ENGINEHEUR_RESULTS, 202)                                                                  \
  X(ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                               \
  X(ATTR_ENGINECFG_ENGINE, 300)                                                                    \
  X(ATTR_EXECUTION_PLAN_HANDLE, 400)                                                               \
  X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                        \
  X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                       \
  X(ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                           \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                                 \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                                  \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                             \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                                     \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                                     \
  X(ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                                     \
  X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                   \
  X(ATTR_OPERATION_POINTWISE_XDESC, 751)                                                           \
  X(ATTR_OPERATION_POINTWISE_BDESC, 752)                                                           \
  X(ATTR_OPERATION_POINTWISE_YDESC, 753)                                                           \
  X(ATTR_OPERATION_POINTWISE_TDESC, 758)                                                           \
  X(ATTR_OPERATIONGRAPH_HANDLE, 800)                                                               \
  X(ATTR_OPERATIONGRAPH_OPS, 801)                                                                  \
  X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                               \
  X(ATTR_TENSOR_DATA_TYPE, 901)                                                                    \
  X(ATTR_TENSOR_DIMENSIONS, 902)                                                                   \
  X(ATTR_TENSOR_STRIDES, 903)                                                                      \
  X(ATTR_TENSOR_UNIQUE_ID, 906)                                                                    \
  X(ATTR_TENSOR_IS_VIRTUAL, 907)                                                                   \
  X(ATTR_TENSOR_IS_BY_VALUE, 908)                                                                  \
  X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                            \
  X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                         \
  X(ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                             \
  X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                                              \
  X(ATTR_MATMUL_COMP_TYPE, 1500)                                                                   \
  X(ATTR_OPERATION_MATMUL_ADESC, 1520)                                                             \
  X(ATTR_OPERATION_MATMUL_BDESC, 1521)                                                             \
  X(ATTR_OPERATION_MATMUL_CDESC, 1522)                                                             \
  X(ATTR_OPERATION_MATMUL_DESC, 1523)                                                              \
  X(ATTR_REDUCTION_OPERATOR, 1600)                                                                 \
  X(ATTR_REDUCTION_COMP_TYPE, 1601)                                                                \
  X(ATTR_OPERATION_REDUCTION_XDESC, 1610)                                                          \
  X(ATTR_OPERATION_REDUCTION_YDESC, 1611)                                                          \
  X(ATTR_OPERATION_REDUCTION_DESC, 1612)                                                           \
  X(ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)

/// X(member, symbol in the library, result, parameters)
#define GRIDLOOM_CUDNN_ENTRY_POINTS(X)                                                             \
  X(getVersion, "cudnnGetVersion", size_t, ())                                                     \
  X(getErrorString, "cudnnGetErrorString", const char *, (Status status))                          \
  X(getLastErrorString, "cudnnGetLastErrorString", void, (char *message, size_t size))             \
  X(create, "cudnnCreate", Status, (Handle * handle))                                              \
  X(destroy, "cudnnDestroy", Status, (Handle handle))                                              \
  X(setStream, "cudnnSetStream", Status, (Handle handle, cuda::StreamHandle stream))               \
  X(createDescriptor, "cudnnBackendCreateDescriptor", Status, (int type, Descriptor *descriptor))  \
  X(destroyDescriptor, "cudnnBackendDestroyDescriptor", Status, (Descriptor descriptor))           \
  X(finalize, "cudnnBackendFinalize", Status, (Descriptor descriptor))                             \
  X(setAttribute, "cudnnBackendSetAttribute", Status,                                              \
    (Descriptor descriptor, int name, int type, int64_t count, const void *values))                \
  X(getAttribute, "cudnnBackendGetAttribute", Status,                                              \
    (Descriptor descriptor, int name, int type, int64_t asked, int64_t *count, void *values))      \
  X(execute, "cudnnBackendExecute", Status,                                                        \
    (Handle handle, Descriptor executionPlan, Descriptor variantPack))

namespace gridloom::rt {

namespace cudnn {

using Status = int;
using Handle = struct DnnContextTag *;
using Descriptor = void *;

enum Constant : int {
#define GRIDLOOM_CUDNN_CONSTANT(name, value) name = (value),
  GRIDLOOM_CUDNN_CONSTANTS(GRIDLOOM_CUDNN_CONSTANT)
#undef GRIDLOOM_CUDNN_CONSTANT
};

/// The library's entry points.
struct EntryPoints {
// NOLINTBEGIN(bugprone-macro-parentheses)
#define GRIDLOOM_CUDNN_MEMBER(member, symbol, result, parameters)                                  \
  result(*member) parameters = nullptr;
  GRIDLOOM_CUDNN_ENTRY_POINTS(GRIDLOOM_CUDNN_MEMBER)
#undef GRIDLOOM_CUDNN_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)
};

} // namespace cudnn

class CuDnnDescriptor;
struct CuDnnEngine;

/// cuDNN 9 or newer, loaded, for one GPU: a local one, with a handle, or one that is only described
/// by its properties, for which graphs can be planned but not run.
class CuDnn : public cudnn::EntryPoints {
public:
  /// Opens `path`; empty means environment variable GRIDLOOM_CUDNN, else libcudnn.so.9. Throws
  /// Unavailable if there is none or it is too old.
  CuDnn(std::shared_ptr<const CudaContext> context, const std::string &path);
  /// For the GPU described by `properties`, JSON that cuDNN has written.
  CuDnn(const std::string &path, const std::string &properties);
  ~CuDnn();
  CuDnn(const CuDnn &) = delete;
  CuDnn &operator=(const CuDnn &) = delete;

  /// Throws unless `status` is success: "<call> failed with <name> (<reason>) <doing>".
  void check(cudnn::Status status, const char *call, const std::string &doing) const;
  /// "CUDNN_STATUS_NOT_SUPPORTED (cuDNN's explanation)", for the last call on this thread.
  std::string describe(cudnn::Status status) const;

  cudnn::Handle getHandle() const { return handle; }
  /// Null if there is a handle.
  const CuDnnDescriptor *getProperties() const { return properties.get(); }
  /// Null if the GPU is only described.
  const CudaContext *getContext() const { return context.get(); }
  const std::shared_ptr<const CudaContext> &shareContext() const { return context; }
  std::string getDeviceName() const;

  /// The engine of an equal call on this device that is still there, or null: planning one takes
  /// long, and layers are alike. One thread at a time.
  std::shared_ptr<const CuDnnEngine> findEngine(const std::string &call) const;
  /// Lets later equal calls find the engine while a call holds it.
  void keepEngine(const std::string &call, std::weak_ptr<const CuDnnEngine> engine) const {
    engines[call] = std::move(engine);
  }

private:
  void load();

  std::shared_ptr<const CudaContext> context;
  DynamicLibrary library;
  cudnn::Handle handle = nullptr;
  std::unique_ptr<CuDnnDescriptor> properties;
  mutable std::map<std::string, std::weak_ptr<const CuDnnEngine>> engines;
};

/// A backend descriptor; `library` must outlive it.
class CuDnnDescriptor {
public:
  /// `doing` is the end of error messages: "describing convolution of ...".
  CuDnnDescriptor(const CuDnn &library, cudnn::Constant type, std::string doing);
  ~CuDnnDescriptor();
  CuDnnDescriptor(CuDnnDescriptor &&other) noexcept;
  CuDnnDescriptor(const CuDnnDescriptor &) = delete;
  CuDnnDescriptor &operator=(const CuDnnDescriptor &) = delete;

  void set(cudnn::Constant name, std::span<const int64_t> values);
  void set(cudnn::Constant name, int64_t value) { set(name, std::span(&value, 1)); }
  void set(cudnn::Constant name, bool value) { setOne(name, cudnn::TYPE_BOOLEAN, value); }
  void set(cudnn::Constant name, float value) { setOne(name, cudnn::TYPE_FLOAT, value); }
  void set(cudnn::Constant name, cudnn::Handle value) { setOne(name, cudnn::TYPE_HANDLE, value); }
  void set(cudnn::Constant name, const CuDnnDescriptor &value) {
    setOne(name, cudnn::TYPE_BACKEND_DESCRIPTOR, value.handle);
  }
  void set(cudnn::Constant name, std::span<const cudnn::Descriptor> values) {
    setAll(name, cudnn::TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(values.size()),
           static_cast<const void *>(values.data()));
  }
  void setPointers(cudnn::Constant name, std::span<void *const> values) {
    setAll(name, cudnn::TYPE_VOID_PTR, static_cast<int64_t>(values.size()),
           static_cast<const void *>(values.data()));
  }
  void setText(cudnn::Constant name, const std::string &value) {
    setAll(name, cudnn::TYPE_CHAR, static_cast<int64_t>(value.size() + 1), value.c_str());
  }
  /// An enumerator of attribute type `type`.
  void setEnum(cudnn::Constant name, cudnn::Constant type, cudnn::Constant value) {
    setOne(name, type, static_cast<int>(value));
  }

  void finalize();
  /// As finalize; if cuDNN refuses, returns false and sets `reason` to its message.
  bool tryFinalize(std::string &reason);

  int64_t getNumber(cudnn::Constant name) const;
  /// The attribute's enumerators, at most `limit`.
  std::vector<int> getEnums(cudnn::Constant name, cudnn::Constant type, size_t limit) const;
  /// Fills `into`, descriptors of the attribute's type, and returns how many the attribute has.
  size_t getDescriptors(cudnn::Constant name, std::span<CuDnnDescriptor> into) const;

  cudnn::Descriptor getHandle() const { return handle; }

private:
  template <typename Value> void setOne(cudnn::Constant name, cudnn::Constant type, Value value) {
    setAll(name, type, 1, static_cast<const void *>(&value));
  }
  void setAll(cudnn::Constant name, cudnn::Constant type, int64_t count, const void *values);

  const CuDnn *library;
  cudnn::Descriptor handle = nullptr;
  std::string doing;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDNN_H
