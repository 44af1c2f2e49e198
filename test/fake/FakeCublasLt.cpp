//===- FakeCublasLt.cpp - cuBLASLt on the fake driver's streams -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Multiplies f32 and f64 on the host, in the order of the stream. Descriptors are read when a call
// is made, as cuBLASLt does. Chosen algorithms want workspace and alignment, and check both.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeMachine.h"

#include <algorithm>
#include <cstring>

using namespace gridloom::fake;

namespace {

enum : int { Success = 0, InvalidValue = 7, NotSupported = 15 };
constexpr uint64_t algorithmMark = 0x6772696d6c6f6f6d;

struct Desc {
  int computeType, scaleType;
  int32_t transA = 0, transB = 0;
  uint32_t epilogue = 1;
  const void *bias = nullptr;
};

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t batchStride = 0;

  size_t elementBytes() const { return type == 1 ? 8 : 4; }
  Access access(const void *data, bool write) const {
    auto span = (rows - 1) + (columns - 1) * static_cast<uint64_t>(leading) +
                static_cast<uint64_t>(batch - 1) * static_cast<uint64_t>(batchStride) + 1;
    return {data, span * elementBytes(), write};
  }
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

struct Algorithm {
  uint64_t mark, workspace, alignment[4], rest[2];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspaceBytes;
  int status;
  float waves;
  int reserved[4];
};

Machine &machine() { return Machine::get(); }

template <typename Value> int set(Value &value, const void *from, size_t bytes) {
  if (bytes != sizeof(Value))
    return InvalidValue;
  std::memcpy(&value, from, bytes);
  return Success;
}

template <typename Object> int create(Object **made, Object value, const char *what) {
  *made = new Object(std::move(value));
  machine().track(*made, what);
  return Success;
}

template <typename Object> int destroy(Object *object, const char *call) {
  if (!machine().untrack(object, call))
    return InvalidValue;
  delete object;
  return Success;
}

/// One call, with all it needs copied.
struct Product {
  Desc desc;
  Layout a, b, d;
  const void *pointerA, *pointerB;
  void *pointerD;
  double alpha;

  template <typename T> void run() const {
    auto k = desc.transA ? a.rows : a.columns;
    for (int64_t i = 0; i < d.batch; ++i) {
      const T *left = static_cast<const T *>(pointerA) + i * a.batchStride;
      const T *right = static_cast<const T *>(pointerB) + i * b.batchStride;
      T *out = static_cast<T *>(pointerD) + i * d.batchStride;
      for (uint64_t column = 0; column < d.columns; ++column)
        for (uint64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (uint64_t x = 0; x < k; ++x)
            sum += double(at(left, a, desc.transA, row, x)) *
                   double(at(right, b, desc.transB, x, column));
          sum *= alpha;
          if (desc.epilogue & 4)
            sum += double(static_cast<const T *>(desc.bias)[row]);
          out[row + column * static_cast<uint64_t>(d.leading)] = static_cast<T>(sum);
        }
    }
  }

  template <typename T>
  static T at(const T *data, const Layout &layout, int32_t transposed, uint64_t row,
              uint64_t column) {
    if (transposed)
      std::swap(row, column);
    return data[row + column * static_cast<uint64_t>(layout.leading)];
  }

  const char *findFault() const {
    auto rows = [](const Layout &layout, int32_t transposed) {
      return transposed ? layout.columns : layout.rows;
    };
    auto columns = [](const Layout &layout, int32_t transposed) {
      return transposed ? layout.rows : layout.columns;
    };
    if (rows(a, desc.transA) != d.rows || columns(b, desc.transB) != d.columns ||
        columns(a, desc.transA) != rows(b, desc.transB))
      return "shapes that do not fit";
    if (a.batch != d.batch || b.batch != d.batch)
      return "batches that differ";
    for (const Layout *layout : {&a, &b, &d})
      if (layout->leading < static_cast<int64_t>(layout->rows))
        return "a leading dimension smaller than the rows";
    if (a.type != d.type || b.type != d.type || (d.type != 0 && d.type != 1))
      return "types other than f32 or f64";
    if ((desc.epilogue & 4) && !desc.bias)
      return "a bias epilogue and no bias";
    return nullptr;
  }
};

} // namespace

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

EXPORT int cublasLtCreate(int **handle) { return create(handle, 0, "cublasLt handle"); }
EXPORT int cublasLtDestroy(int *handle) { return destroy(handle, "cublasLtDestroy"); }

EXPORT const char *cublasLtGetStatusName(int status) {
  return status == Success        ? "CUBLAS_STATUS_SUCCESS"
         : status == InvalidValue ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == NotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                  : "CUBLAS_STATUS_UNKNOWN";
}

EXPORT int cublasLtMatmulDescCreate(Desc **desc, int computeType, int scaleType) {
  return create(desc, Desc{computeType, scaleType}, "cublasLt matmul descriptor");
}
EXPORT int cublasLtMatmulDescDestroy(Desc *desc) {
  return destroy(desc, "cublasLtMatmulDescDestroy");
}
EXPORT int cublasLtMatmulDescSetAttribute(Desc *desc, int attribute, const void *value,
                                          size_t bytes) {
  switch (attribute) {
  case 3:
    return set(desc->transA, value, bytes);
  case 4:
    return set(desc->transB, value, bytes);
  case 7:
    return set(desc->epilogue, value, bytes);
  case 8:
    return set(desc->bias, value, bytes);
  default:
    return InvalidValue;
  }
}

EXPORT int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns,
                                      int64_t leading) {
  return create(layout, Layout{type, rows, columns, leading}, "cublasLt layout");
}
EXPORT int cublasLtMatrixLayoutDestroy(Layout *layout) {
  return destroy(layout, "cublasLtMatrixLayoutDestroy");
}
EXPORT int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value,
                                            size_t bytes) {
  switch (attribute) {
  case 5:
    return set(layout->batch, value, bytes);
  case 6:
    return set(layout->batchStride, value, bytes);
  default:
    return InvalidValue;
  }
}

EXPORT int cublasLtMatmulPreferenceCreate(Preference **preference) {
  return create(preference, Preference{}, "cublasLt preference");
}
EXPORT int cublasLtMatmulPreferenceDestroy(Preference *preference) {
  return destroy(preference, "cublasLtMatmulPreferenceDestroy");
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute,
                                                const void *value, size_t bytes) {
  if (attribute == 1)
    return set(preference->workspace, value, bytes);
  if (attribute >= 5 && attribute <= 8)
    return set(preference->alignment[attribute - 5], value, bytes);
  return InvalidValue;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(int *, Desc *desc, Layout *a, Layout *b, Layout *,
                                          Layout *d, Preference *preference, int asked,
                                          HeuristicResult *results, int *found) {
  if (int result = machine().enter("cublasLtMatmulAlgoGetHeuristic"))
    return result;
  *found = 0;
  Product product{*desc, *a, *b, *d, nullptr, nullptr, nullptr, 1};
  if (const char *fault = product.findFault()) {
    machine().report(std::string("cublasLtMatmulAlgoGetHeuristic with ") + fault);
    return NotSupported;
  }
  // The fast algorithm wants a workspace that grows with the output.
  uint64_t wanted = 256 + d->rows * d->columns * d->elementBytes();
  uint64_t workspace = wanted <= preference->workspace ? wanted : 0;
  HeuristicResult result = {};
  result.algorithm.mark = algorithmMark;
  result.algorithm.workspace = result.workspaceBytes = workspace;
  std::copy_n(preference->alignment, 4, result.algorithm.alignment);
  if (asked > 0)
    results[(*found)++] = result;
  return Success;
}

EXPORT int cublasLtMatmul(int *handle, Desc *desc, const void *alpha, const void *a,
                          Layout *layoutA, const void *b, Layout *layoutB, const void *beta,
                          const void *c, Layout *, void *d, Layout *layoutD,
                          const Algorithm *algorithm, void *workspace, size_t workspaceBytes,
                          void *streamHandle) {
  Stream *stream = machine().checkStream(streamHandle, "cublasLtMatmul");
  if (!stream || !machine().isTracked(handle, "cublasLtMatmul"))
    return InvalidValue;
  double factor = desc->scaleType == 1 ? *static_cast<const double *>(alpha)
                                       : double(*static_cast<const float *>(alpha));
  double keep = desc->scaleType == 1 ? *static_cast<const double *>(beta)
                                     : double(*static_cast<const float *>(beta));
  Product product{*desc, *layoutA, *layoutB, *layoutD, a, b, d, factor};
  if (int result =
          machine().enter("cublasLtMatmul", stream->number,
                          std::to_string(layoutD->rows) + "x" + std::to_string(layoutD->columns) +
                              "x" + std::to_string(layoutD->batch)))
    return result;

  const char *fault = product.findFault();
  const void *pointers[] = {a, b, c, d};
  for (int i = 0; i < 4 && !fault; ++i)
    if (reinterpret_cast<uintptr_t>(pointers[i]) % algorithm->alignment[i])
      fault = "a pointer less aligned than its algorithm was told";
  if (!fault && algorithm->mark != algorithmMark)
    fault = "an algorithm that no heuristic returned";
  if (!fault && (workspaceBytes < algorithm->workspace || (algorithm->workspace && !workspace)))
    fault = "less workspace than its algorithm needs";
  if (!fault && keep != 0)
    fault = "a beta, which the fake does not know";
  if (fault) {
    machine().report(std::string("cublasLtMatmul with ") + fault);
    return InvalidValue;
  }

  std::vector<Access> accesses = {layoutA->access(a, false), layoutB->access(b, false),
                                  layoutD->access(d, true)};
  if (desc->epilogue & 4)
    accesses.push_back({desc->bias, layoutD->rows * layoutD->elementBytes(), false});
  if (algorithm->workspace)
    accesses.push_back({workspace, algorithm->workspace, true});
  machine().submit(*stream, {"cublasLtMatmul", std::move(accesses), [product] {
                               if (product.d.type == 1)
                                 product.run<double>();
                               else
                                 product.run<float>();
                               return Step::Done;
                             }});
  return Success;
}

} // extern "C"
