//===- CuBlasLt.h - matrix multiplication through cuBLASLt ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUBLASLT_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUBLASLT_H

#include "runtime/device/AutotuneCache.h"
#include "runtime/device/cuda/CudaStream.h"

namespace gridloom::rt {

namespace cublas {

using Status = int;
using Handle = struct HandleTag *;
using Desc = struct DescTag *;
using Layout = struct LayoutTag *;
using Preference = struct PreferenceTag *;

struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspaceBytes;
  Status status;
  float waves;
  int reserved[4];
};

enum : Status { STATUS_SUCCESS = 0, STATUS_NOT_SUPPORTED = 15 };
enum : int { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 };
enum : int { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77 };
enum : int32_t { OP_N = 0, OP_T = 1 };
enum : uint32_t { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4, EPILOGUE_GELU = 32 };
enum : uint32_t { REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
enum : int { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum : int { LAYOUT_BATCH_COUNT = 5, LAYOUT_STRIDED_BATCH_OFFSET = 6 };
enum : int {
  PREF_MAX_WORKSPACE_BYTES = 1,
  PREF_REDUCTION_SCHEME_MASK = 3,
  PREF_MIN_ALIGNMENT_A_BYTES = 5,
  PREF_MIN_ALIGNMENT_B_BYTES = 6,
  PREF_MIN_ALIGNMENT_C_BYTES = 7,
  PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

} // namespace cublas

/// X(member, symbol in the library, result, parameters)
#define GRIDLOOM_CUBLASLT_ENTRY_POINTS(X)                                                          \
  X(create, "cublasLtCreate", Status, (Handle * handle))                                           \
  X(destroy, "cublasLtDestroy", Status, (Handle handle))                                           \
  X(getStatusName, "cublasLtGetStatusName", const char *, (Status status))                         \
  X(descCreate, "cublasLtMatmulDescCreate", Status, (Desc * desc, int computeType, int scaleType)) \
  X(descDestroy, "cublasLtMatmulDescDestroy", Status, (Desc desc))                                 \
  X(descSet, "cublasLtMatmulDescSetAttribute", Status,                                             \
    (Desc desc, int attribute, const void *value, size_t bytes))                                   \
  X(layoutCreate, "cublasLtMatrixLayoutCreate", Status,                                            \
    (Layout * layout, int type, uint64_t rows, uint64_t columns, int64_t leading))                 \
  X(layoutDestroy, "cublasLtMatrixLayoutDestroy", Status, (Layout layout))                         \
  X(layoutSet, "cublasLtMatrixLayoutSetAttribute", Status,                                         \
    (Layout layout, int attribute, const void *value, size_t bytes))                               \
  X(preferenceCreate, "cublasLtMatmulPreferenceCreate", Status, (Preference * preference))         \
  X(preferenceDestroy, "cublasLtMatmulPreferenceDestroy", Status, (Preference preference))         \
  X(preferenceSet, "cublasLtMatmulPreferenceSetAttribute", Status,                                 \
    (Preference preference, int attribute, const void *value, size_t bytes))                       \
  X(getHeuristic, "cublasLtMatmulAlgoGetHeuristic", Status,                                        \
    (Handle handle, Desc desc, Layout a, Layout b, Layout c, Layout d, Preference preference,      \
     int asked, HeuristicResult *results, int *found))                                             \
  X(getVersion, "cublasLtGetVersion", size_t, ())                                                  \
  X(checkAlgorithm, "cublasLtMatmulAlgoCheck", Status,                                             \
    (Handle handle, Desc desc, Layout a, Layout b, Layout c, Layout d, const Algorithm *algorithm, \
     HeuristicResult *result))                                                                     \
  X(matmul, "cublasLtMatmul", Status,                                                              \
    (Handle handle, Desc desc, const void *alpha, const void *a, Layout aLayout, const void *b,    \
     Layout bLayout, const void *beta, const void *c, Layout cLayout, void *d, Layout dLayout,     \
     const Algorithm *algorithm, void *workspace, size_t workspaceBytes,                           \
     cuda::StreamHandle stream))

namespace cublas {
/// The library's entry points.
struct EntryPoints {
// NOLINTBEGIN(bugprone-macro-parentheses)
#define GRIDLOOM_CUBLASLT_MEMBER(member, symbol, result, parameters)                               \
  result(*member) parameters = nullptr;
  GRIDLOOM_CUBLASLT_ENTRY_POINTS(GRIDLOOM_CUBLASLT_MEMBER)
#undef GRIDLOOM_CUBLASLT_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)
};
} // namespace cublas

/// The libraries to try, first the one of the driver's CUDA version (1000 * major + 10 * minor): a
/// newer one loads but fails.
std::vector<std::string> listCuBlasLt(int driverVersion);

/// The cuBLASLt library, loaded, with a handle for one GPU.
class CuBlasLt : public cublas::EntryPoints {
public:
  /// Opens `path`; empty means environment variable GRIDLOOM_CUBLASLT, else libcublasLt.so.13, then
  /// .12. Throws Unavailable if there is none.
  CuBlasLt(std::shared_ptr<const CudaContext> context, const std::string &path);
  ~CuBlasLt();
  CuBlasLt(const CuBlasLt &) = delete;
  CuBlasLt &operator=(const CuBlasLt &) = delete;

  /// Throws unless `status` is success: "<call> failed with <name> <doing>".
  void check(cublas::Status status, const char *call, const std::string &doing) const;

  cublas::Handle getHandle() const { return handle; }
  const CudaContext &getContext() const { return *context; }
  const std::shared_ptr<const CudaContext> &shareContext() const { return context; }

private:
  std::shared_ptr<const CudaContext> context;
  DynamicLibrary library;
  cublas::Handle handle = nullptr;
};

/// Plans `problem` (f32, f64, f16 or bf16, accumulated in f32 or f64): creates descriptors and
/// chooses an algorithm within the workspace limit: the one that `tuning` (may be null) has
/// measured, if the library still accepts it, else the library's first guess. Bias is a vector of
/// N; the activation is none or gelu; f64 has neither. Throws InvalidPlan if no operand layout or
/// algorithm of cuBLASLt fits.
std::unique_ptr<MatmulPlan> createCuBlasLtMatmul(std::shared_ptr<const CuBlasLt> library,
                                                 const MatmulProblem &problem,
                                                 AutotuneCache *tuning = nullptr);

/// Submits such a plan. One thread at a time may use a plan.
void runCuBlasLtMatmul(CudaStream &stream, MatmulPlan &plan, const MatmulOperands &operands,
                       void *out);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUBLASLT_H
