//===- CuBlasLt.cpp - matrix multiplication through cuBLASLt --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CuBlasLt.h"

#include "runtime/core/Error.h"
#include "runtime/device/cuda/MatmulLayout.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace gridloom::rt {

using namespace cublas;

static constexpr const char *advice =
    "the plan multiplies matrices with cuBLASLt; install the CUDA toolkit's libcublas 12 or 13, "
    "or set GRIDLOOM_CUBLASLT to its libcublasLt.so";

static std::string choosePath(const std::string &path, const char *otherwise) {
  return path.empty() ? getEnvironment("GRIDLOOM_CUBLASLT", otherwise) : path;
}

CuBlasLt::CuBlasLt(std::shared_ptr<const CudaContext> owner, const std::string &path)
    : context(std::move(owner)),
      library({choosePath(path, "libcublasLt.so.13"), choosePath(path, "libcublasLt.so.12")},
              advice) {
#define GRIDLOOM_CUBLASLT_LOAD(member, symbol, result, parameters)                                 \
  library.require(member, symbol, advice);
  GRIDLOOM_CUBLASLT_ENTRY_POINTS(GRIDLOOM_CUBLASLT_LOAD)
#undef GRIDLOOM_CUBLASLT_LOAD
  context->use();
  check(create(&handle), "cublasLtCreate", "on " + context->getName());
}

CuBlasLt::~CuBlasLt() {
  context->useQuietly();
  destroy(handle);
}

void CuBlasLt::check(Status status, const char *call, const std::string &doing) const {
  if (status == STATUS_SUCCESS)
    return;
  const char *name = getStatusName(status);
  throw Error(ErrorCode::Internal, std::string(call) + " failed with " +
                                       (name ? name : "status " + std::to_string(status)) + " " +
                                       doing);
}

namespace {

/// The number types of one element type.
struct NumberTypes {
  int data, compute, scale;
};

/// An algorithm and what its pointers must be multiples of.
struct Choice {
  Algorithm algorithm = {};
  size_t workspaceBytes = 0;
  uint32_t alignment = 0;
};

class CuBlasLtMatmul final : public MatmulPlan {
public:
  CuBlasLtMatmul(std::shared_ptr<const CuBlasLt> library, const MatmulProblem &problem);
  ~CuBlasLtMatmul() override;
  CuBlasLtMatmul(const CuBlasLtMatmul &) = delete;
  CuBlasLtMatmul &operator=(const CuBlasLtMatmul &) = delete;

  void run(CudaStream &stream, const void *lhs, const void *rhs, const void *bias, void *out);

private:
  void release();
  void makeDescriptors();
  Layout makeLayout(const ColumnMajor &matrix);
  Choice choose(uint64_t workspaceLimit, uint32_t alignment);
  void setBias(const void *bias);

  std::shared_ptr<const CuBlasLt> library;
  std::string description;
  MatmulLayout layout;
  NumberTypes types;
  size_t elementBytes;
  bool hasBias;
  alignas(8) std::array<std::byte, 8> alpha = {}, beta = {};
  Desc desc = nullptr;
  Layout a = nullptr, b = nullptr, d = nullptr;
  Choice aligned, unaligned;
};

} // namespace

static NumberTypes chooseTypes(const MatmulProblem &problem) {
  switch (problem.type) {
  case DataType::F32:
    return {R_32F, COMPUTE_32F, R_32F};
  case DataType::F64:
    return {R_64F, COMPUTE_64F, R_64F};
  case DataType::F16:
    return {R_16F, COMPUTE_32F, R_32F};
  case DataType::BF16:
    return {R_16BF, COMPUTE_32F, R_32F};
  default:
    throw Error(ErrorCode::InvalidPlan, describeMatmul(problem) + " of " +
                                            std::string(nameOf(problem.type)) +
                                            ": cuBLASLt multiplies f32, f64, f16 and bf16");
  }
}

/// The largest power of two up to 16 bytes that all calls' matrices start at a multiple of, when
/// the first ones do.
static uint32_t findAlignment(const MatmulLayout &layout, size_t elementBytes) {
  int64_t common = 16;
  auto add = [&](int64_t elements) {
    common = std::gcd(common, elements * static_cast<int64_t>(elementBytes));
  };
  for (const MatmulLayout::Offset &call : layout.calls) {
    add(call.lhs);
    add(call.rhs);
    add(call.out);
  }
  return static_cast<uint32_t>(common);
}

CuBlasLtMatmul::CuBlasLtMatmul(std::shared_ptr<const CuBlasLt> owner, const MatmulProblem &problem)
    : library(std::move(owner)), description(describeMatmul(problem)),
      layout(layOutMatmul(problem)), types(chooseTypes(problem)),
      elementBytes(sizeOf(problem.type)), hasBias(problem.bias) {
  if (types.scale == R_64F)
    new (alpha.data()) double(problem.alpha);
  else
    new (alpha.data()) float(static_cast<float>(problem.alpha));
  try {
    makeDescriptors();
    uint32_t alignment = findAlignment(layout, elementBytes);
    auto elementAlignment = static_cast<uint32_t>(elementBytes);
    aligned = choose(problem.workspaceLimit, std::max(alignment, elementAlignment));
    unaligned =
        alignment > elementAlignment ? choose(problem.workspaceLimit, elementAlignment) : aligned;
  } catch (...) {
    release();
    throw;
  }
}

CuBlasLtMatmul::~CuBlasLtMatmul() { release(); }

void CuBlasLtMatmul::release() {
  for (Layout matrix : {a, b, d})
    if (matrix)
      library->layoutDestroy(matrix);
  if (desc)
    library->descDestroy(desc);
}

void CuBlasLtMatmul::makeDescriptors() {
  const std::string doing = "describing " + description;
  library->check(library->descCreate(&desc, types.compute, types.scale), "cublasLtMatmulDescCreate",
                 doing);
  auto set = [&](int attribute, const auto &value) {
    library->check(library->descSet(desc, attribute, &value, sizeof(value)),
                   "cublasLtMatmulDescSetAttribute", doing);
  };
  set(DESC_TRANSA, layout.a.transposed ? OP_T : OP_N);
  set(DESC_TRANSB, layout.b.transposed ? OP_T : OP_N);
  set(DESC_EPILOGUE, hasBias ? EPILOGUE_BIAS : EPILOGUE_DEFAULT);
  a = makeLayout(layout.a);
  b = makeLayout(layout.b);
  d = makeLayout(layout.d);
}

Layout CuBlasLtMatmul::makeLayout(const ColumnMajor &matrix) {
  const std::string doing = "describing " + description;
  Layout made = nullptr;
  library->check(library->layoutCreate(&made, types.data, static_cast<uint64_t>(matrix.rows),
                                       static_cast<uint64_t>(matrix.columns), matrix.leading),
                 "cublasLtMatrixLayoutCreate", doing);
  auto count = static_cast<int32_t>(layout.batch);
  Status status = library->layoutSet(made, LAYOUT_BATCH_COUNT, &count, sizeof(count));
  if (status == STATUS_SUCCESS)
    status = library->layoutSet(made, LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batchStride,
                                sizeof(matrix.batchStride));
  if (status != STATUS_SUCCESS)
    library->layoutDestroy(made);
  library->check(status, "cublasLtMatrixLayoutSetAttribute", doing);
  return made;
}

void CuBlasLtMatmul::setBias(const void *bias) {
  library->check(
      library->descSet(desc, DESC_BIAS_POINTER, static_cast<const void *>(&bias), sizeof(bias)),
      "cublasLtMatmulDescSetAttribute", "setting the bias of " + description);
}

Choice CuBlasLtMatmul::choose(uint64_t workspaceLimit, uint32_t alignment) {
  const std::string doing = "choosing an algorithm for " + description;
  // The heuristic reads the bias pointer's alignment, not the bias.
  if (hasBias)
    setBias(reinterpret_cast<const void *>(static_cast<uintptr_t>(alignment)));

  Preference made = nullptr;
  library->check(library->preferenceCreate(&made), "cublasLtMatmulPreferenceCreate", doing);
  std::unique_ptr<PreferenceTag, Status (*)(Preference)> preference(made,
                                                                    library->preferenceDestroy);
  auto set = [&](int attribute, const auto &value) {
    library->check(library->preferenceSet(made, attribute, &value, sizeof(value)),
                   "cublasLtMatmulPreferenceSetAttribute", doing);
  };
  set(PREF_MAX_WORKSPACE_BYTES, workspaceLimit);
  for (int attribute : {PREF_MIN_ALIGNMENT_A_BYTES, PREF_MIN_ALIGNMENT_B_BYTES,
                        PREF_MIN_ALIGNMENT_C_BYTES, PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, alignment);

  std::array<HeuristicResult, 8> results = {};
  int found = 0;
  Status status = library->getHeuristic(library->getHandle(), desc, a, b, d, d, made,
                                        static_cast<int>(results.size()), results.data(), &found);
  if (status != STATUS_NOT_SUPPORTED)
    library->check(status, "cublasLtMatmulAlgoGetHeuristic", doing);
  for (int i = 0; status == STATUS_SUCCESS && i < found; ++i)
    if (results[i].status == STATUS_SUCCESS && results[i].workspaceBytes <= workspaceLimit)
      return {results[i].algorithm, results[i].workspaceBytes, alignment};
  throw Error(ErrorCode::InvalidPlan, "cuBLASLt has no algorithm for " + description + " within " +
                                          std::to_string(workspaceLimit) +
                                          " bytes of workspace on " +
                                          library->getContext().getName());
}

void CuBlasLtMatmul::run(CudaStream &stream, const void *lhs, const void *rhs, const void *bias,
                         void *out) {
  library->getContext().use();
  if (hasBias)
    setBias(bias);
  uintptr_t bits = reinterpret_cast<uintptr_t>(lhs) | reinterpret_cast<uintptr_t>(rhs) |
                   reinterpret_cast<uintptr_t>(bias) | reinterpret_cast<uintptr_t>(out);
  const Choice &choice = bits % aligned.alignment == 0 ? aligned : unaligned;
  void *workspace = choice.workspaceBytes ? stream.getWorkspace(choice.workspaceBytes) : nullptr;
  auto at = [&](const void *base, int64_t elements) {
    return static_cast<const std::byte *>(base) + elements * static_cast<int64_t>(elementBytes);
  };
  for (const MatmulLayout::Offset &call : layout.calls) {
    const std::byte *left = at(lhs, call.lhs);
    const std::byte *right = at(rhs, call.rhs);
    auto *result = const_cast<std::byte *>(at(out, call.out));
    Status status = library->matmul(
        library->getHandle(), desc, alpha.data(), layout.lhsFirst ? left : right, a,
        layout.lhsFirst ? right : left, b, beta.data(), result, d, result, d, &choice.algorithm,
        workspace, choice.workspaceBytes, static_cast<cuda::StreamHandle>(stream.getNative()));
    if (status != STATUS_SUCCESS)
      library->check(status, "cublasLtMatmul",
                     "running " + description + " on stream " + stream.getName());
  }
}

std::unique_ptr<MatmulPlan> createCuBlasLtMatmul(std::shared_ptr<const CuBlasLt> library,
                                                 const MatmulProblem &problem) {
  return std::make_unique<CuBlasLtMatmul>(std::move(library), problem);
}

void runCuBlasLtMatmul(CudaStream &stream, MatmulPlan &plan, const void *lhs, const void *rhs,
                       const void *bias, void *out) {
  static_cast<CuBlasLtMatmul &>(plan).run(stream, lhs, rhs, bias, out);
}

} // namespace gridloom::rt
