//===- CuBlasLt.cpp - matrix multiplication through cuBLASLt --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CuBlasLt.h"

#include "runtime/core/Environment.h"
#include "runtime/core/Error.h"
#include "runtime/device/cuda/CudaMeasure.h"
#include "runtime/device/cuda/MatmulLayout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace gridloom::rt {

using namespace cublas;

static constexpr const char *advice =
    "the plan multiplies matrices with cuBLASLt; install the CUDA toolkit's libcublas 12 or 13, "
    "or set GRIDLOOM_CUBLASLT to its libcublasLt.so";

std::vector<std::string> listCuBlasLt(int driverVersion) {
  constexpr int cuda13 = 13000;
  if (driverVersion >= cuda13)
    return {"libcublasLt.so.13", "libcublasLt.so.12"};
  return {"libcublasLt.so.12", "libcublasLt.so.13"};
}

static std::vector<std::string> choosePaths(const std::string &path, int driverVersion) {
  std::string given = path.empty() ? getEnvironment("GRIDLOOM_CUBLASLT", "") : path;
  return given.empty() ? listCuBlasLt(driverVersion) : std::vector{given};
}

CuBlasLt::CuBlasLt(std::shared_ptr<const CudaContext> owner, const std::string &path)
    : context(std::move(owner)), library(choosePaths(path, context->use().getVersion()), advice) {
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

/// cuBLASLt's types of operands, result, sums and scale factors for one element type.
struct NumberTypes {
  int data, out, compute, scale;
};

/// An algorithm and the pointer alignment that it needs, in bytes.
struct Choice {
  Algorithm algorithm = {};
  size_t workspaceBytes = 0;
  uint32_t alignment = 0;
};

class CuBlasLtMatmul final : public MatmulPlan {
public:
  CuBlasLtMatmul(std::shared_ptr<const CuBlasLt> library, const MatmulProblem &problem,
                 AutotuneCache *tuning);
  ~CuBlasLtMatmul() override;
  CuBlasLtMatmul(const CuBlasLtMatmul &) = delete;
  CuBlasLtMatmul &operator=(const CuBlasLtMatmul &) = delete;

  void run(CudaStream &stream, const MatmulOperands &operands, void *out);

private:
  void release();
  void makeDescriptors();
  Layout makeLayout(const ColumnMajor &matrix, int type);
  Choice choose(uint32_t alignment, AutotuneCache *tuning);
  std::optional<Choice> chooseUnaligned(const MatmulProblem &problem);
  std::vector<Choice> guess(uint32_t alignment);
  std::string getKey(uint32_t alignment) const;
  std::optional<Choice> recall(AutotuneCache &tuning, const std::string &key, uint32_t alignment);
  void measure(AutotuneCache &tuning, const std::string &key, const std::vector<Choice> &choices);
  void submit(CudaStream &stream, const Choice &choice, const MatmulOperands &operands, void *out);
  void setBias(const void *bias);

  std::shared_ptr<const CuBlasLt> library;
  std::string description;
  MatmulLayout layout;
  NumberTypes types;
  size_t elementBytes, outBytes;
  uint64_t workspaceLimit;
  bool hasBias, hasResidual;
  uint32_t epilogue;
  alignas(8) std::array<std::byte, 8> alpha = {}, beta = {};
  Desc desc = nullptr;
  Layout a = nullptr, b = nullptr, d = nullptr;
  Choice aligned;
  std::optional<Choice> unaligned; // for less alignment; null: the library has none
};

} // namespace

static NumberTypes chooseTypes(const MatmulProblem &problem) {
  DataType out = problem.getOutType();
  switch (problem.type) {
  case DataType::F32:
    return {R_32F, R_32F, problem.tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F, R_32F};
  case DataType::F64:
    return {R_64F, R_64F, COMPUTE_64F, R_64F};
  case DataType::F16:
    return {R_16F, out == DataType::F32 ? R_32F : R_16F, COMPUTE_32F, R_32F};
  case DataType::BF16:
    return {R_16BF, out == DataType::F32 ? R_32F : R_16BF, COMPUTE_32F, R_32F};
  default:
    throw Error(ErrorCode::InvalidPlan, describeMatmul(problem) + " of " +
                                            std::string(nameOf(problem.type)) +
                                            ": cuBLASLt multiplies f32, f64, f16 and bf16");
  }
}

/// Epilogues are bits, except the default. Relu is not used: cuBLASLt's makes NaN zero.
static uint32_t chooseEpilogue(const MatmulProblem &problem) {
  uint32_t bits = problem.epilogue.bias ? EPILOGUE_BIAS : 0;
  if (problem.epilogue.activation == Activation::Gelu)
    bits |= EPILOGUE_GELU;
  return bits ? bits : uint32_t(EPILOGUE_DEFAULT);
}

/// The alignment of all calls' matrices, in bytes, up to 16, given that the first ones have it.
static uint32_t findAlignment(const MatmulLayout &layout, size_t elementBytes, size_t outBytes) {
  int64_t common = 16;
  auto add = [&](int64_t elements, size_t bytes) {
    common = std::gcd(common, elements * static_cast<int64_t>(bytes));
  };
  for (const MatmulLayout::Offset &call : layout.calls) {
    add(call.lhs, elementBytes);
    add(call.rhs, elementBytes);
    add(call.out, outBytes);
  }
  return static_cast<uint32_t>(common);
}

CuBlasLtMatmul::CuBlasLtMatmul(std::shared_ptr<const CuBlasLt> owner, const MatmulProblem &problem,
                               AutotuneCache *tuning)
    : library(std::move(owner)), description(describeMatmul(problem)),
      layout(layOutMatmul(problem)), types(chooseTypes(problem)),
      elementBytes(sizeOf(problem.type)), outBytes(sizeOf(problem.getOutType())),
      workspaceLimit(problem.workspaceLimit), hasBias(problem.epilogue.bias),
      hasResidual(problem.epilogue.residual), epilogue(chooseEpilogue(problem)) {
  // D = alpha A B + beta C: a residual is C.
  if (types.scale == R_64F) {
    new (alpha.data()) double(problem.alpha);
    new (beta.data()) double(hasResidual);
  } else {
    new (alpha.data()) float(static_cast<float>(problem.alpha));
    new (beta.data()) float(hasResidual);
  }
  try {
    makeDescriptors();
    uint32_t alignment = findAlignment(layout, elementBytes, outBytes);
    auto elementAlignment = static_cast<uint32_t>(elementBytes);
    aligned = choose(std::max(alignment, elementAlignment), tuning);
    unaligned = alignment > elementAlignment ? chooseUnaligned(problem) : aligned;
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
  set(DESC_EPILOGUE, epilogue);
  a = makeLayout(layout.a, types.data);
  b = makeLayout(layout.b, types.data);
  d = makeLayout(layout.d, types.out);
}

Layout CuBlasLtMatmul::makeLayout(const ColumnMajor &matrix, int type) {
  const std::string doing = "describing " + description;
  Layout made = nullptr;
  library->check(library->layoutCreate(&made, type, static_cast<uint64_t>(matrix.rows),
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

/// The library's algorithms within the limits, its best guess first.
std::vector<Choice> CuBlasLtMatmul::guess(uint32_t alignment) {
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
  // The other schemes add partial sums in the output's type.
  if (outBytes == 2)
    set(PREF_REDUCTION_SCHEME_MASK, uint32_t(REDUCTION_SCHEME_COMPUTE_TYPE));
  for (int attribute : {PREF_MIN_ALIGNMENT_A_BYTES, PREF_MIN_ALIGNMENT_B_BYTES,
                        PREF_MIN_ALIGNMENT_C_BYTES, PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, alignment);

  std::array<HeuristicResult, 8> results = {};
  int found = 0;
  Status status = library->getHeuristic(library->getHandle(), desc, a, b, d, d, made,
                                        static_cast<int>(results.size()), results.data(), &found);
  if (status != STATUS_NOT_SUPPORTED)
    library->check(status, "cublasLtMatmulAlgoGetHeuristic", doing);
  std::vector<Choice> choices;
  for (int i = 0; status == STATUS_SUCCESS && i < found; ++i)
    if (results[i].status == STATUS_SUCCESS && results[i].workspaceBytes <= workspaceLimit)
      choices.push_back({results[i].algorithm, results[i].workspaceBytes, alignment});
  return choices;
}

Choice CuBlasLtMatmul::choose(uint32_t alignment, AutotuneCache *tuning) {
  std::string key = tuning ? getKey(alignment) : "";
  if (std::optional<Choice> known = tuning ? recall(*tuning, key, alignment) : std::nullopt)
    return *known;
  std::vector<Choice> choices = guess(alignment);
  if (choices.empty())
    throw Error(ErrorCode::InvalidPlan, "cuBLASLt has no algorithm for " + description +
                                            " within " + std::to_string(workspaceLimit) +
                                            " bytes of workspace on " +
                                            library->getContext().getName());
  if (tuning && tuning->shouldMeasure(key)) {
    try {
      measure(*tuning, key, choices);
    } catch (const Error &error) {
      if (error.getCode() != ErrorCode::OutOfMemory) // the plan fills the GPU: do without
        throw;
    }
  }
  return choices.front();
}

/// Null if the library has no algorithm, which matters only if a call has such pointers. Throws
/// instead with an activation: the caller then takes the fallback, without the library's epilogue.
std::optional<Choice> CuBlasLtMatmul::chooseUnaligned(const MatmulProblem &problem) {
  try {
    return choose(static_cast<uint32_t>(elementBytes), nullptr);
  } catch (const Error &) {
    if (problem.epilogue.activation != Activation::None)
      throw;
    return std::nullopt;
  }
}

//===----------------------------------------------------------------------===//
// Measured choices
//===----------------------------------------------------------------------===//

/// Everything that an algorithm's speed depends on.
std::string CuBlasLtMatmul::getKey(uint32_t alignment) const {
  std::string key = "cublasLt " + std::to_string(library->getVersion()) + " " + description;
  auto add = [&](const char *name, const auto &...values) {
    key += std::string(" ") + name;
    ((key += ' ' + std::to_string(values)), ...);
  };
  for (const ColumnMajor *matrix : {&layout.a, &layout.b, &layout.d})
    add("matrix", matrix->rows, matrix->columns, matrix->leading, int(matrix->transposed),
        matrix->batchStride);
  add("calls", layout.batch, layout.calls.size());
  add("types", types.data, types.out, types.compute);
  add("epilogue", epilogue);
  if (hasResidual)
    add("residual");
  add("alignment", alignment);
  add("workspace", workspaceLimit);
  if (outBytes == 2)
    add("reductions", int(REDUCTION_SCHEME_COMPUTE_TYPE));
  return key;
}

/// The measured choice, if this library can still run it.
std::optional<Choice> CuBlasLtMatmul::recall(AutotuneCache &tuning, const std::string &key,
                                             uint32_t alignment) {
  std::optional<AutotuneCache::Choice> known = tuning.find(key);
  if (!known)
    return std::nullopt;
  Choice choice;
  HeuristicResult result = {};
  if (known->algorithm.size() == sizeof(Algorithm)) {
    std::memcpy(&choice.algorithm, known->algorithm.data(), sizeof(Algorithm));
    if (hasBias)
      setBias(reinterpret_cast<const void *>(static_cast<uintptr_t>(alignment)));
    if (library->checkAlgorithm(library->getHandle(), desc, a, b, d, d, &choice.algorithm,
                                &result) == STATUS_SUCCESS &&
        result.status == STATUS_SUCCESS && result.workspaceBytes <= workspaceLimit) {
      choice.workspaceBytes = result.workspaceBytes;
      choice.alignment = alignment;
      return choice;
    }
  }
  tuning.reject(key);
  return std::nullopt;
}

/// Bytes from the first element to the end of the last one over all calls' matrices.
static size_t getExtent(const MatmulLayout &layout, const ColumnMajor &matrix,
                        int64_t MatmulLayout::Offset::*offset, size_t elementBytes) {
  int64_t last = matrix.rows - 1 + (matrix.columns - 1) * matrix.leading +
                 (layout.batch - 1) * matrix.batchStride;
  int64_t furthest = 0;
  for (const MatmulLayout::Offset &call : layout.calls)
    furthest = std::max(furthest, call.*offset);
  return static_cast<size_t>(last + furthest + 1) * elementBytes;
}

/// Times each algorithm several times and records the one with the smallest best time.
void CuBlasLtMatmul::measure(AutotuneCache &tuning, const std::string &key,
                             const std::vector<Choice> &choices) {
  const std::shared_ptr<const CudaContext> &context = library->shareContext();
  using Offset = MatmulLayout::Offset;
  CudaStream stream(context, StreamKind::Compute, "autotune");
  auto make = [&](const ColumnMajor &matrix, int64_t MatmulLayout::Offset::*offset, size_t bytes) {
    return ScratchMemory(stream, context, getExtent(layout, matrix, offset, bytes));
  };
  ScratchMemory lhs = make(layout.lhsFirst ? layout.a : layout.b, &Offset::lhs, elementBytes),
                rhs = make(layout.lhsFirst ? layout.b : layout.a, &Offset::rhs, elementBytes),
                out = make(layout.d, &Offset::out, outBytes),
                bias(stream, context, static_cast<size_t>(layout.d.rows) * outBytes),
                residual = make(layout.d, &Offset::out, hasResidual ? outBytes : 0);
  const MatmulOperands operands{lhs.get(), rhs.get(), bias.get(), residual.get()};
  AutotuneCache::Choice best;
  for (const Choice &choice : choices) {
    auto run = [&] { submit(stream, choice, operands, out.get()); };
    try {
      run();
    } catch (const Error &) { // the library refuses the algorithm: nothing has run
      continue;
    }
    double least = measureMicroseconds(stream, context, description, run);
    if (best.algorithm.empty())
      best.guessMicroseconds = least;
    else if (least >= best.microseconds)
      continue;
    best.microseconds = least;
    best.algorithm.assign(reinterpret_cast<const char *>(&choice.algorithm), sizeof(Algorithm));
  }
  if (!best.algorithm.empty())
    tuning.add(key, std::move(best));
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

void CuBlasLtMatmul::run(CudaStream &stream, const MatmulOperands &operands, void *out) {
  auto bits = reinterpret_cast<uintptr_t>(out);
  for (const void *pointer : {operands.lhs, operands.rhs, operands.bias, operands.residual})
    bits |= reinterpret_cast<uintptr_t>(pointer);
  bool isAligned = bits % aligned.alignment == 0;
  if (!isAligned && !unaligned)
    throw Error(ErrorCode::InvalidPlan, "cuBLASLt has no algorithm for " + description +
                                            " of pointers that are aligned to " +
                                            std::to_string(bits & -bits) + " bytes, but for " +
                                            std::to_string(aligned.alignment));
  submit(stream, isAligned ? aligned : *unaligned, operands, out);
}

void CuBlasLtMatmul::submit(CudaStream &stream, const Choice &choice,
                            const MatmulOperands &operands, void *out) {
  library->getContext().use();
  if (hasBias)
    setBias(operands.bias);
  void *workspace = choice.workspaceBytes ? stream.getWorkspace(choice.workspaceBytes) : nullptr;
  auto at = [](const void *base, int64_t elements, size_t bytes) {
    return static_cast<const std::byte *>(base) + elements * static_cast<int64_t>(bytes);
  };
  for (const MatmulLayout::Offset &call : layout.calls) {
    const std::byte *left = at(operands.lhs, call.lhs, elementBytes);
    const std::byte *right = at(operands.rhs, call.rhs, elementBytes);
    auto *result = const_cast<std::byte *>(at(out, call.out, outBytes));
    const std::byte *residual = hasResidual ? at(operands.residual, call.out, outBytes) : result;
    Status status = library->matmul(
        library->getHandle(), desc, alpha.data(), layout.lhsFirst ? left : right, a,
        layout.lhsFirst ? right : left, b, beta.data(), residual, d, result, d, &choice.algorithm,
        workspace, choice.workspaceBytes, static_cast<cuda::StreamHandle>(stream.getNative()));
    if (status != STATUS_SUCCESS)
      library->check(status, "cublasLtMatmul",
                     "running " + description + " on stream " + stream.getName());
  }
}

std::unique_ptr<MatmulPlan> createCuBlasLtMatmul(std::shared_ptr<const CuBlasLt> library,
                                                 const MatmulProblem &problem,
                                                 AutotuneCache *tuning) {
  return std::make_unique<CuBlasLtMatmul>(std::move(library), problem, tuning);
}

void runCuBlasLtMatmul(CudaStream &stream, MatmulPlan &plan, const MatmulOperands &operands,
                       void *out) {
  static_cast<CuBlasLtMatmul &>(plan).run(stream, operands, out);
}

} // namespace gridloom::rt
