//===- CudaHeadersTest.cpp - our declarations against NVIDIA's ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The runtime has its own declarations of CUDA, cuBLASLt, cuDNN and NCCL. Where their headers are
// installed, each constant, each structure and each entry point's parameters are compared with
// them.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclLibrary.h"
#include "runtime/core/Error.h"
#include "runtime/device/cuda/CuBlasLt.h"
#include "runtime/device/cuda/CuDnn.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>) && __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <cuda.h>
#define GRIDLOOM_HAS_CUDA_HEADERS
#endif
#if __has_include(<nccl.h>) && defined(GRIDLOOM_HAS_CUDA_HEADERS)
#include <nccl.h>
#define GRIDLOOM_HAS_NCCL_HEADER
#endif

#if __has_include(<cudnn.h>) && defined(GRIDLOOM_HAS_CUDA_HEADERS)
#include <cudnn.h>
#define GRIDLOOM_HAS_CUDNN_HEADER
#endif

using namespace gridloom::rt;

namespace {

/// Two types that are passed the same way: both pointers, or arithmetic types or enumerations of
/// one size, or structures of one size.
template <typename Ours, typename Theirs> constexpr bool passAlike() {
  constexpr bool ourNumber = std::is_arithmetic_v<Ours> || std::is_enum_v<Ours>;
  constexpr bool theirNumber = std::is_arithmetic_v<Theirs> || std::is_enum_v<Theirs>;
  if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>)
    return std::is_same_v<Ours, Theirs>;
  else
    return std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> && ourNumber == theirNumber &&
           std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs> &&
           sizeof(Ours) == sizeof(Theirs);
}

template <typename Ours, typename Theirs> struct CallAlike : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct CallAlike<R (*)(A...), S (*)(B...)> {
  static constexpr bool compute() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return passAlike<R, S>() && (passAlike<A, B>() && ...);
    return false;
  }
  static constexpr bool value = compute();
};

#ifdef GRIDLOOM_HAS_CUDA_HEADERS

// cuda.h's macros map a name to the versioned symbol; the type is the same.
#define GRIDLOOM_CHECK(member, theirs)                                                             \
  static_assert(CallAlike<decltype(cuda::Driver::member), decltype(&theirs)>::value, #theirs)
GRIDLOOM_CHECK(init, cuInit);
GRIDLOOM_CHECK(driverGetVersion, cuDriverGetVersion);
GRIDLOOM_CHECK(getErrorName, cuGetErrorName);
GRIDLOOM_CHECK(getErrorString, cuGetErrorString);
GRIDLOOM_CHECK(deviceGetCount, cuDeviceGetCount);
GRIDLOOM_CHECK(deviceGet, cuDeviceGet);
GRIDLOOM_CHECK(deviceGetName, cuDeviceGetName);
GRIDLOOM_CHECK(deviceGetAttribute, cuDeviceGetAttribute);
GRIDLOOM_CHECK(devicePrimaryCtxRetain, cuDevicePrimaryCtxRetain);
GRIDLOOM_CHECK(devicePrimaryCtxRelease, cuDevicePrimaryCtxRelease);
GRIDLOOM_CHECK(ctxSetCurrent, cuCtxSetCurrent);
GRIDLOOM_CHECK(ctxGetStreamPriorityRange, cuCtxGetStreamPriorityRange);
GRIDLOOM_CHECK(memGetInfo, cuMemGetInfo);
GRIDLOOM_CHECK(memAlloc, cuMemAlloc);
GRIDLOOM_CHECK(memFree, cuMemFree);
GRIDLOOM_CHECK(memAllocAsync, cuMemAllocAsync);
GRIDLOOM_CHECK(memFreeAsync, cuMemFreeAsync);
GRIDLOOM_CHECK(memHostAlloc, cuMemHostAlloc);
GRIDLOOM_CHECK(memFreeHost, cuMemFreeHost);
GRIDLOOM_CHECK(memcpyHtoDAsync, cuMemcpyHtoDAsync);
GRIDLOOM_CHECK(memcpyDtoHAsync, cuMemcpyDtoHAsync);
GRIDLOOM_CHECK(memcpyDtoDAsync, cuMemcpyDtoDAsync);
GRIDLOOM_CHECK(memsetD8Async, cuMemsetD8Async);
GRIDLOOM_CHECK(streamCreateWithPriority, cuStreamCreateWithPriority);
GRIDLOOM_CHECK(streamDestroy, cuStreamDestroy);
GRIDLOOM_CHECK(streamWaitEvent, cuStreamWaitEvent);
GRIDLOOM_CHECK(streamSynchronize, cuStreamSynchronize);
GRIDLOOM_CHECK(streamQuery, cuStreamQuery);
GRIDLOOM_CHECK(launchHostFunc, cuLaunchHostFunc);
GRIDLOOM_CHECK(eventCreate, cuEventCreate);
GRIDLOOM_CHECK(eventDestroy, cuEventDestroy);
GRIDLOOM_CHECK(eventRecord, cuEventRecord);
GRIDLOOM_CHECK(eventQuery, cuEventQuery);
GRIDLOOM_CHECK(eventSynchronize, cuEventSynchronize);
GRIDLOOM_CHECK(eventElapsedTime, cuEventElapsedTime);
GRIDLOOM_CHECK(moduleLoadDataEx, cuModuleLoadDataEx);
GRIDLOOM_CHECK(moduleUnload, cuModuleUnload);
GRIDLOOM_CHECK(moduleGetFunction, cuModuleGetFunction);
GRIDLOOM_CHECK(funcSetAttribute, cuFuncSetAttribute);
GRIDLOOM_CHECK(launchKernel, cuLaunchKernel);
GRIDLOOM_CHECK(streamBeginCapture, cuStreamBeginCapture);
GRIDLOOM_CHECK(streamEndCapture, cuStreamEndCapture);
GRIDLOOM_CHECK(threadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode);
GRIDLOOM_CHECK(graphInstantiate, cuGraphInstantiateWithFlags);
GRIDLOOM_CHECK(graphLaunch, cuGraphLaunch);
GRIDLOOM_CHECK(graphExecDestroy, cuGraphExecDestroy);
GRIDLOOM_CHECK(graphDestroy, cuGraphDestroy);
GRIDLOOM_CHECK(deviceGetUuid, cuDeviceGetUuid);
GRIDLOOM_CHECK(streamWriteValue32, cuStreamWriteValue32);
#undef GRIDLOOM_CHECK

TEST(CudaHeadersTest, DriverConstants) {
  EXPECT_EQ(cuda::ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda::ERROR_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(cuda::ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(cuda::ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(cuda::ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(cuda::ERROR_CONTAINED, CUDA_ERROR_CONTAINED);
  EXPECT_EQ(cuda::ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(cuda::ERROR_ASSERT, CUDA_ERROR_ASSERT);
  EXPECT_EQ(cuda::ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(unsigned(cuda::GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
            unsigned(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  EXPECT_EQ(int(cuda::STREAM_CAPTURE_MODE_THREAD_LOCAL), int(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(int(cuda::STREAM_CAPTURE_MODE_RELAXED), int(CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(unsigned(cuda::STREAM_WRITE_VALUE_DEFAULT), unsigned(CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_EQ(cuda::ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuda::ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuda::ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuda::ERROR_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cuda::ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(cuda::ERROR_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuda::ERROR_NOT_READY, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda::ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda::ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda::ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(unsigned(cuda::STREAM_NON_BLOCKING), unsigned(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(unsigned(cuda::EVENT_DEFAULT), unsigned(CU_EVENT_DEFAULT));
  EXPECT_EQ(unsigned(cuda::EVENT_DISABLE_TIMING), unsigned(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(unsigned(cuda::MEMHOSTALLOC_PORTABLE), unsigned(CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_EQ(int(cuda::DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(int(cuda::DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_EQ(int(cuda::FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
            int(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  EXPECT_EQ(int(cuda::JIT_ERROR_LOG_BUFFER), int(CU_JIT_ERROR_LOG_BUFFER));
  EXPECT_EQ(int(cuda::JIT_ERROR_LOG_BUFFER_SIZE_BYTES), int(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));
}

#define GRIDLOOM_CHECK(member, theirs)                                                             \
  static_assert(CallAlike<decltype(cublas::EntryPoints::member), decltype(&theirs)>::value, #theirs)
GRIDLOOM_CHECK(create, cublasLtCreate);
GRIDLOOM_CHECK(destroy, cublasLtDestroy);
GRIDLOOM_CHECK(getStatusName, cublasLtGetStatusName);
GRIDLOOM_CHECK(descCreate, cublasLtMatmulDescCreate);
GRIDLOOM_CHECK(descDestroy, cublasLtMatmulDescDestroy);
GRIDLOOM_CHECK(descSet, cublasLtMatmulDescSetAttribute);
GRIDLOOM_CHECK(layoutCreate, cublasLtMatrixLayoutCreate);
GRIDLOOM_CHECK(layoutDestroy, cublasLtMatrixLayoutDestroy);
GRIDLOOM_CHECK(layoutSet, cublasLtMatrixLayoutSetAttribute);
GRIDLOOM_CHECK(preferenceCreate, cublasLtMatmulPreferenceCreate);
GRIDLOOM_CHECK(preferenceDestroy, cublasLtMatmulPreferenceDestroy);
GRIDLOOM_CHECK(preferenceSet, cublasLtMatmulPreferenceSetAttribute);
GRIDLOOM_CHECK(getHeuristic, cublasLtMatmulAlgoGetHeuristic);
GRIDLOOM_CHECK(getVersion, cublasLtGetVersion);
GRIDLOOM_CHECK(checkAlgorithm, cublasLtMatmulAlgoCheck);
GRIDLOOM_CHECK(matmul, cublasLtMatmul);
#undef GRIDLOOM_CHECK
static_assert(sizeof(cublas::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(cublas::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cublas::HeuristicResult, workspaceBytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cublas::HeuristicResult, status) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));

TEST(CudaHeadersTest, CuBlasLtConstants) {
  EXPECT_EQ(int(cublas::STATUS_NOT_SUPPORTED), int(CUBLAS_STATUS_NOT_SUPPORTED));
  EXPECT_EQ(int(cublas::R_32F), int(CUDA_R_32F));
  EXPECT_EQ(int(cublas::R_64F), int(CUDA_R_64F));
  EXPECT_EQ(int(cublas::R_16F), int(CUDA_R_16F));
  EXPECT_EQ(int(cublas::R_16BF), int(CUDA_R_16BF));
  EXPECT_EQ(int(cublas::COMPUTE_32F), int(CUBLAS_COMPUTE_32F));
  EXPECT_EQ(int(cublas::COMPUTE_64F), int(CUBLAS_COMPUTE_64F));
  EXPECT_EQ(int(cublas::COMPUTE_32F_FAST_TF32), int(CUBLAS_COMPUTE_32F_FAST_TF32));
  EXPECT_EQ(int(cublas::OP_N), int(CUBLAS_OP_N));
  EXPECT_EQ(int(cublas::OP_T), int(CUBLAS_OP_T));
  EXPECT_EQ(unsigned(cublas::EPILOGUE_DEFAULT), unsigned(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_EQ(unsigned(cublas::EPILOGUE_BIAS), unsigned(CUBLASLT_EPILOGUE_BIAS));
  EXPECT_EQ(unsigned(cublas::REDUCTION_SCHEME_COMPUTE_TYPE),
            unsigned(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_EQ(int(cublas::PREF_REDUCTION_SCHEME_MASK),
            int(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK));
  EXPECT_EQ(unsigned(cublas::EPILOGUE_GELU), unsigned(CUBLASLT_EPILOGUE_GELU));
  EXPECT_EQ(unsigned(cublas::EPILOGUE_GELU | cublas::EPILOGUE_BIAS),
            unsigned(CUBLASLT_EPILOGUE_GELU_BIAS));
  EXPECT_EQ(int(cublas::DESC_TRANSA), int(CUBLASLT_MATMUL_DESC_TRANSA));
  EXPECT_EQ(int(cublas::DESC_TRANSB), int(CUBLASLT_MATMUL_DESC_TRANSB));
  EXPECT_EQ(int(cublas::DESC_EPILOGUE), int(CUBLASLT_MATMUL_DESC_EPILOGUE));
  EXPECT_EQ(int(cublas::DESC_BIAS_POINTER), int(CUBLASLT_MATMUL_DESC_BIAS_POINTER));
  EXPECT_EQ(int(cublas::LAYOUT_BATCH_COUNT), int(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT));
  EXPECT_EQ(int(cublas::LAYOUT_STRIDED_BATCH_OFFSET),
            int(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
  EXPECT_EQ(int(cublas::PREF_MAX_WORKSPACE_BYTES), int(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
  EXPECT_EQ(int(cublas::PREF_MIN_ALIGNMENT_A_BYTES),
            int(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES));
  EXPECT_EQ(int(cublas::PREF_MIN_ALIGNMENT_D_BYTES),
            int(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
}

#else

TEST(CudaHeadersTest, DriverConstants) {
  GTEST_SKIP() << "cuda.h or cublasLt.h is not installed: nothing to compare with";
}

#endif

#ifdef GRIDLOOM_HAS_CUDNN_HEADER

#define GRIDLOOM_CHECK(member, theirs)                                                             \
  static_assert(CallAlike<decltype(cudnn::EntryPoints::member), decltype(&theirs)>::value, #theirs)
GRIDLOOM_CHECK(getVersion, cudnnGetVersion);
GRIDLOOM_CHECK(getErrorString, cudnnGetErrorString);
GRIDLOOM_CHECK(create, cudnnCreate);
GRIDLOOM_CHECK(destroy, cudnnDestroy);
GRIDLOOM_CHECK(setStream, cudnnSetStream);
GRIDLOOM_CHECK(createDescriptor, cudnnBackendCreateDescriptor);
GRIDLOOM_CHECK(destroyDescriptor, cudnnBackendDestroyDescriptor);
GRIDLOOM_CHECK(finalize, cudnnBackendFinalize);
GRIDLOOM_CHECK(setAttribute, cudnnBackendSetAttribute);
GRIDLOOM_CHECK(getAttribute, cudnnBackendGetAttribute);
GRIDLOOM_CHECK(execute, cudnnBackendExecute);
#undef GRIDLOOM_CHECK
static_assert(std::is_same_v<decltype(cudnn::EntryPoints::getLastErrorString),
                             decltype(&cudnnGetLastErrorString)>);
// Booleans are passed by address.
static_assert(sizeof(bool) == 1);

TEST(CudaHeadersTest, CuDnnConstants) {
  static_assert(CUDNN_MAJOR >= 9);
#define GRIDLOOM_COMPARE(name, value) EXPECT_EQ(int(cudnn::name), int(CUDNN_##name)) << #name;
  GRIDLOOM_CUDNN_CONSTANTS(GRIDLOOM_COMPARE)
#undef GRIDLOOM_COMPARE
}

#else

TEST(CudaHeadersTest, CuDnnConstants) {
  GTEST_SKIP() << "cudnn.h is not installed: nothing to compare with";
}

#endif

#ifdef GRIDLOOM_HAS_NCCL_HEADER

#define GRIDLOOM_CHECK(member, theirs)                                                             \
  static_assert(CallAlike<decltype(nccl::EntryPoints::member), decltype(&theirs)>::value, #theirs)
GRIDLOOM_CHECK(getVersion, ncclGetVersion);
GRIDLOOM_CHECK(getUniqueId, ncclGetUniqueId);
GRIDLOOM_CHECK(getErrorString, ncclGetErrorString);
GRIDLOOM_CHECK(getLastError, ncclGetLastError);
GRIDLOOM_CHECK(commInitRankConfig, ncclCommInitRankConfig);
GRIDLOOM_CHECK(commSplit, ncclCommSplit);
GRIDLOOM_CHECK(commGetAsyncError, ncclCommGetAsyncError);
GRIDLOOM_CHECK(commFinalize, ncclCommFinalize);
GRIDLOOM_CHECK(commDestroy, ncclCommDestroy);
GRIDLOOM_CHECK(commAbort, ncclCommAbort);
GRIDLOOM_CHECK(groupStart, ncclGroupStart);
GRIDLOOM_CHECK(groupEnd, ncclGroupEnd);
GRIDLOOM_CHECK(allReduce, ncclAllReduce);
GRIDLOOM_CHECK(allGather, ncclAllGather);
GRIDLOOM_CHECK(reduceScatter, ncclReduceScatter);
GRIDLOOM_CHECK(broadcast, ncclBroadcast);
GRIDLOOM_CHECK(send, ncclSend);
GRIDLOOM_CHECK(recv, ncclRecv);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
GRIDLOOM_CHECK(allToAll, ncclAlltoAll);
GRIDLOOM_CHECK(memAlloc, ncclMemAlloc);
GRIDLOOM_CHECK(memFree, ncclMemFree);
GRIDLOOM_CHECK(commRegister, ncclCommRegister);
GRIDLOOM_CHECK(commDeregister, ncclCommDeregister);
GRIDLOOM_CHECK(commWindowRegister, ncclCommWindowRegister);
GRIDLOOM_CHECK(commWindowDeregister, ncclCommWindowDeregister);
static_assert(offsetof(nccl::Config, CTAPolicy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(sizeof(nccl::Config) == sizeof(ncclConfig_t));
static_assert(nccl::WIN_COLL_SYMMETRIC == NCCL_WIN_COLL_SYMMETRIC);
static_assert(nccl::CTA_POLICY_ZERO == NCCL_CTA_POLICY_ZERO);
static_assert(nccl::SPLIT_NOCOLOR == NCCL_SPLIT_NOCOLOR);
#endif
#undef GRIDLOOM_CHECK
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl::Config, netName) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(nccl::Config, splitShare) == offsetof(ncclConfig_t, splitShare));

TEST(CudaHeadersTest, NcclConstants) {
  ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  nccl::Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.splitShare, theirs.splitShare);
  EXPECT_EQ(ours.version, unsigned(NCCL_VERSION(2, 18, 0)));
  EXPECT_EQ(nccl::INVALID_ARGUMENT, ncclInvalidArgument);
  EXPECT_EQ(nccl::REMOTE_ERROR, ncclRemoteError);
  EXPECT_EQ(nccl::IN_PROGRESS, ncclInProgress);
  EXPECT_EQ(toNcclElements(DataType::F32, 1).type, ncclFloat32);
  EXPECT_EQ(toNcclElements(DataType::F64, 1).type, ncclFloat64);
  EXPECT_EQ(toNcclElements(DataType::F16, 1).type, ncclFloat16);
  EXPECT_EQ(toNcclElements(DataType::BF16, 1).type, ncclBfloat16);
  EXPECT_EQ(toNcclElements(DataType::I8, 1).type, ncclInt8);
  EXPECT_EQ(toNcclElements(DataType::I32, 1).type, ncclInt32);
  EXPECT_EQ(toNcclElements(DataType::I64, 1).type, ncclInt64);
  EXPECT_EQ(toNcclElements(DataType::U8, 1).type, ncclUint8);
  EXPECT_EQ(toNcclReduction(DataType::F32, Reduction::Sum).operation, ncclSum);
  EXPECT_EQ(toNcclReduction(DataType::F32, Reduction::Prod).operation, ncclProd);
  EXPECT_EQ(toNcclReduction(DataType::F32, Reduction::Max).operation, ncclMax);
  EXPECT_EQ(toNcclReduction(DataType::F32, Reduction::Min).operation, ncclMin);
}

#else

TEST(CudaHeadersTest, NcclConstants) {
  GTEST_SKIP() << "nccl.h is not installed: nothing to compare with";
}

#endif

//===----------------------------------------------------------------------===//
// The libraries themselves, as far as they work without a GPU
//===----------------------------------------------------------------------===//

TEST(CudaHeadersTest, DriverHasTheEntryPoints) {
#ifdef GRIDLOOM_CUDA_STUB
  // The toolkit's stub has every symbol, but none of them works.
  try {
    cuda::Driver driver(GRIDLOOM_CUDA_STUB);
    FAIL() << "the stub library has initialised";
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), ErrorCode::Unavailable);
    EXPECT_NE(std::string(error.what()).find("cuInit failed with"), std::string::npos)
        << error.what();
  }
#else
  GTEST_SKIP() << "the toolkit's stub libcuda.so is not installed";
#endif
}

TEST(CudaHeadersTest, CuBlasLtHasTheEntryPoints) {
#ifdef GRIDLOOM_REAL_CUBLASLT
  DynamicLibrary library({GRIDLOOM_REAL_CUBLASLT}, "it was there when this was built");
  cublas::EntryPoints entries;
#define GRIDLOOM_FIND(member, symbol, result, parameters)                                          \
  EXPECT_TRUE(library.find(entries.member, symbol)) << symbol;
  GRIDLOOM_CUBLASLT_ENTRY_POINTS(GRIDLOOM_FIND)
#undef GRIDLOOM_FIND
#else
  GTEST_SKIP() << "libcublasLt is not installed";
#endif
}

TEST(CudaHeadersTest, NcclHasTheEntryPoints) {
#ifdef GRIDLOOM_REAL_NCCL
  NcclLibrary library(GRIDLOOM_REAL_NCCL);
  EXPECT_GE(library.getVersionCode(), 21800);
  EXPECT_EQ(library.allToAll != nullptr, library.getVersionCode() >= 22800);
#else
  GTEST_SKIP() << "libnccl is not installed";
#endif
}

} // namespace
