//===- FakeCublasLt.cpp - cuBLASLt on the fake driver's streams -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Multiplies on the host, in stream order, and adds C if beta = 1. With the TF32 compute type,
// operands keep only 10 bits of mantissa. Descriptors are read when a call is made, as in cuBLASLt.
// Every product has several algorithms, which need workspace and alignment, and check both; the
// environment variable GRIDLOOM_FAKE_CUBLASLT_TIMES gives their durations in microseconds:
// "300,50,200", and GRIDLOOM_FAKE_CUBLASLT_ALIGNMENT the least alignment that any takes.
//
//===----------------------------------------------------------------------===//

#include "support/NarrowFloat.h"
#include "test/fake/FakeClock.h"
#include "test/fake/FakeMachine.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

using namespace gridloom::fake;

namespace {

enum : int { Success = 0, InvalidValue = 7, NotSupported = 15 };
enum : int { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
constexpr int computeTf32 = 77;
constexpr uint64_t algorithmMark = 0x6772696d6c6f6f6d;
constexpr uint64_t numAlgorithms = 3;

/// Reads an element as a double, and writes one, rounded to nearest.
double loadElement(int type, const void *data, uint64_t index) {
  switch (type) {
  case F64:
    return static_cast<const double *>(data)[index];
  case F16:
    return gridloom::Half::load(static_cast<const uint16_t *>(data)[index]);
  case BF16:
    return gridloom::BFloat::load(static_cast<const uint16_t *>(data)[index]);
  default:
    return static_cast<const float *>(data)[index];
  }
}

void storeElement(int type, void *data, uint64_t index, double value) {
  auto single = static_cast<float>(value);
  switch (type) {
  case F64:
    static_cast<double *>(data)[index] = value;
    break;
  case F16:
    static_cast<uint16_t *>(data)[index] = gridloom::Half::store(single);
    break;
  case BF16:
    static_cast<uint16_t *>(data)[index] = gridloom::BFloat::store(single);
    break;
  default:
    static_cast<float *>(data)[index] = single;
  }
}

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

  size_t elementBytes() const { return type == F64 ? 8 : type == F32 ? 4 : 2; }
  Access access(const void *data, bool write) const {
    auto span = (rows - 1) + (columns - 1) * static_cast<uint64_t>(leading) +
                static_cast<uint64_t>(batch - 1) * static_cast<uint64_t>(batchStride) + 1;
    return {data, span * elementBytes(), write};
  }
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7; // allowed schemes
  uint32_t alignment[4] = {256, 256, 256, 256};
};

struct Algorithm {
  uint64_t mark, workspace, alignment[4], number, reduction;
};
constexpr uint32_t reducesInOutputType = 1 | 4;
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
  std::memcpy(static_cast<void *>(&value), from, bytes);
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

/// One call, with copies of all it needs.
struct Product {
  Desc desc;
  Layout a, b, c, d;
  const void *pointerA = nullptr, *pointerB = nullptr, *pointerC = nullptr;
  void *pointerD = nullptr;
  double alpha = 1, beta = 0;
  bool splits = false; // adds two partial sums of the output's type

  double round(double value) const {
    double stored = 0; // room for any element
    storeElement(d.type, &stored, 0, value);
    return loadElement(d.type, &stored, 0);
  }

  void run() const {
    auto k = desc.transA ? a.rows : a.columns;
    for (int64_t i = 0; i < d.batch; ++i)
      for (uint64_t column = 0; column < d.columns; ++column)
        for (uint64_t row = 0; row < d.rows; ++row) {
          double sum = 0, before = 0; // of the first half, if `splits`
          for (uint64_t x = 0; x < k; ++x) {
            if (splits && x == k / 2)
              before = std::exchange(sum, 0);
            sum += at(pointerA, a, desc.transA, i, row, x) *
                   at(pointerB, b, desc.transB, i, x, column);
          }
          sum = splits ? round(round(before * alpha) + round(sum * alpha)) : sum * alpha;
          if (beta != 0)
            sum += beta * loadElement(c.type, pointerC,
                                      static_cast<uint64_t>(i * c.batchStride) + row +
                                          column * static_cast<uint64_t>(c.leading));
          if (desc.epilogue & 4)
            sum += loadElement(d.type, desc.bias, row);
          if (desc.epilogue & 2)
            sum = sum > 0 ? sum : 0.0; // also for NaN
          if (desc.epilogue & 32)
            sum =
                sum / 2 * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
          storeElement(d.type, pointerD,
                       static_cast<uint64_t>(i * d.batchStride) + row +
                           column * static_cast<uint64_t>(d.leading),
                       sum);
        }
  }

  double at(const void *data, const Layout &layout, int32_t transposed, int64_t batch, uint64_t row,
            uint64_t column) const {
    if (transposed)
      std::swap(row, column);
    double value = loadElement(layout.type, data,
                               static_cast<uint64_t>(batch * layout.batchStride) + row +
                                   column * static_cast<uint64_t>(layout.leading));
    if (desc.computeType != computeTf32)
      return value;
    uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    return std::bit_cast<float>(bits & ~0x1fffu);
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
    if (c.rows != d.rows || c.columns != d.columns || c.type != d.type)
      return "a C of another shape or type than D";
    if (beta != 0 && pointerC == pointerD &&
        (c.leading != d.leading || c.batchStride != d.batchStride))
      return "a C in D's place that lies otherwise";
    if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch)
      return "batches that differ";
    for (const Layout *layout : {&a, &b, &c, &d})
      if (layout->leading < static_cast<int64_t>(layout->rows))
        return "a leading dimension smaller than the rows";
    bool isNarrow = a.type == F16 || a.type == BF16;
    if (a.type != b.type || (!isNarrow && a.type != F32 && a.type != F64) ||
        (d.type != a.type && !(isNarrow && d.type == F32)))
      return "types that it does not combine";
    if (desc.computeType != (a.type == F64 ? 70 : 68) &&
        !(a.type == F32 && desc.computeType == computeTf32))
      return "sums of another type than its operands";
    if ((desc.epilogue & 4) && !desc.bias)
      return "a bias epilogue and no bias";
    return nullptr;
  }
};

/// The duration of algorithm `number` by GRIDLOOM_FAKE_CUBLASLT_TIMES; 0 if it has none.
std::chrono::microseconds getDuration(uint64_t number) {
  const char *times = std::getenv("GRIDLOOM_FAKE_CUBLASLT_TIMES");
  for (; times && number > 0; --number) {
    times = std::strchr(times, ',');
    times = times ? times + 1 : nullptr;
  }
  return std::chrono::microseconds(times ? std::strtol(times, nullptr, 10) : 0);
}

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
  if (attribute == 3)
    return set(preference->reductions, value, bytes);
  if (attribute >= 5 && attribute <= 8)
    return set(preference->alignment[attribute - 5], value, bytes);
  return InvalidValue;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(int *, Desc *desc, Layout *a, Layout *b, Layout *c,
                                          Layout *d, Preference *preference, int asked,
                                          HeuristicResult *results, int *found) {
  if (int result = machine().enter("cublasLtMatmulAlgoGetHeuristic"))
    return result;
  *found = 0;
  Product product{*desc, *a, *b, *c, *d};
  if (const char *fault = product.findFault()) {
    machine().report(std::string("cublasLtMatmulAlgoGetHeuristic with ") + fault);
    return NotSupported;
  }
  if ((desc->epilogue & (2 | 32)) && std::getenv("GRIDLOOM_FAKE_CUBLASLT_PLAIN"))
    return NotSupported;
  if (d->type == F64 && desc->epilogue != 1)
    return NotSupported;
  const char *least = std::getenv("GRIDLOOM_FAKE_CUBLASLT_ALIGNMENT");
  if (least && *std::ranges::min_element(preference->alignment) < std::strtoul(least, nullptr, 10))
    return NotSupported;
  // The fast algorithms need a workspace that grows with the output; the last one needs none.
  uint64_t wanted = 256 + d->rows * d->columns * d->elementBytes();
  for (uint64_t number = 0; number < numAlgorithms && *found < asked; ++number) {
    bool fits = wanted <= preference->workspace;
    HeuristicResult result = {};
    result.algorithm.mark = algorithmMark;
    result.algorithm.number = number;
    // The first splits the sum in two, as many do for long sums of few outputs.
    result.algorithm.reduction = number == 0 ? preference->reductions & reducesInOutputType : 0;
    result.algorithm.workspace = result.workspaceBytes =
        fits && number + 1 < numAlgorithms ? wanted : 0;
    std::copy_n(preference->alignment, 4, result.algorithm.alignment);
    results[(*found)++] = result;
  }
  return Success;
}

/// GRIDLOOM_FAKE_CUBLASLT_VERSIONS lists one version per device, for machines that differ.
EXPORT size_t cublasLtGetVersion() {
  const char *versions = std::getenv("GRIDLOOM_FAKE_CUBLASLT_VERSIONS");
  for (int device = machine().getCurrentDevice(); versions && device > 0; --device) {
    versions = std::strchr(versions, ',');
    versions = versions ? versions + 1 : nullptr;
  }
  return versions ? std::strtoul(versions, nullptr, 10) : 130100;
}

EXPORT int cublasLtMatmulAlgoCheck(int *, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d,
                                   const Algorithm *algorithm, HeuristicResult *result) {
  if (int failure = machine().enter("cublasLtMatmulAlgoCheck"))
    return failure;
  Product product{*desc, *a, *b, *c, *d};
  if (algorithm->mark != algorithmMark || algorithm->number >= numAlgorithms || product.findFault())
    return NotSupported;
  *result = {};
  result->algorithm = *algorithm;
  result->workspaceBytes = algorithm->workspace;
  return Success;
}

EXPORT int cublasLtMatmul(int *handle, Desc *desc, const void *alpha, const void *a,
                          Layout *layoutA, const void *b, Layout *layoutB, const void *beta,
                          const void *c, Layout *layoutC, void *d, Layout *layoutD,
                          const Algorithm *algorithm, void *workspace, size_t workspaceBytes,
                          void *streamHandle) {
  Stream *stream = machine().checkStream(streamHandle, "cublasLtMatmul");
  if (!stream || !machine().isTracked(handle, "cublasLtMatmul"))
    return InvalidValue;
  double factor = desc->scaleType == 1 ? *static_cast<const double *>(alpha)
                                       : double(*static_cast<const float *>(alpha));
  double keep = desc->scaleType == 1 ? *static_cast<const double *>(beta)
                                     : double(*static_cast<const float *>(beta));
  Product product{*desc, *layoutA, *layoutB, *layoutC, *layoutD, a, b, c, d, factor, keep};
  product.splits = algorithm->reduction && product.d.elementBytes() == 2;
  if (int result = machine().enter(
          "cublasLtMatmul", stream->number,
          std::to_string(layoutD->rows) + "x" + std::to_string(layoutD->columns) + "x" +
              std::to_string(layoutD->batch) + " by " + std::to_string(algorithm->number)))
    return result;

  const char *fault = product.findFault();
  const void *pointers[] = {a, b, c, d};
  for (int i = 0; i < 4 && !fault; ++i)
    if (reinterpret_cast<uintptr_t>(pointers[i]) % algorithm->alignment[i])
      fault = "a pointer less aligned than its algorithm was chosen for";
  if (!fault && algorithm->mark != algorithmMark)
    fault = "an algorithm that no heuristic returned";
  if (!fault && (workspaceBytes < algorithm->workspace || (algorithm->workspace && !workspace)))
    fault = "less workspace than its algorithm needs";
  if (fault) {
    machine().report(std::string("cublasLtMatmul with ") + fault);
    return InvalidValue;
  }

  std::vector<Access> accesses = {layoutA->access(a, false), layoutB->access(b, false),
                                  layoutD->access(d, true)};
  if (keep != 0)
    accesses.push_back(layoutC->access(c, false));
  if (desc->epilogue & 4)
    accesses.push_back({desc->bias, layoutD->rows * layoutD->elementBytes(), false});
  if (algorithm->workspace)
    accesses.push_back({workspace, algorithm->workspace, true});
  machine().submit(*stream,
                   {"cublasLtMatmul", std::move(accesses),
                    [product, device = stream->device, duration = getDuration(algorithm->number)] {
                      spend(device, duration);
                      product.run();
                      return Step::Done;
                    }});
  return Success;
}

} // extern "C"
