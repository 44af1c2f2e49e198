//===- NcclLibrary.h - NCCL's entry points ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The types and entry points of NCCL 2.18 and newer that the runtime uses, declared here so that it
// builds and starts without NCCL.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_NCCL_NCCLLIBRARY_H
#define GRIDLOOM_RUNTIME_COMM_NCCL_NCCLLIBRARY_H

#include "runtime/comm/Transport.h"
#include "runtime/device/cuda/DynamicLibrary.h"

#include <climits>

namespace gridloom::rt {

namespace nccl {

using Result = int;
using Comm = struct CommTag *;
using NativeStream = void *;

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t. Newer libraries accept older callers' structs, so size and version are those of
/// 2.18 unless newer fields are used.
struct Config {
  size_t size = 48; // in 2.18: up to splitShare, with padding
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cgaClusterSize = INT_MIN;
  int minCTAs = INT_MIN;
  int maxCTAs = INT_MIN;
  const char *netName = nullptr;
  int splitShare = INT_MIN;
  // Fields of 2.28 and shortly before.
  int trafficClass = INT_MIN;
  const char *commName = nullptr;
  int collnetEnable = INT_MIN;
  int CTAPolicy = INT_MIN;
  int shrinkShare = INT_MIN;
  int nvlsCTAs = INT_MIN;
  int nChannelsPerNetPeer = INT_MIN;
  int nvlinkCentricSched = INT_MIN;
};

using Window = struct WindowTag *;

enum : int { WIN_COLL_SYMMETRIC = 1, CTA_POLICY_ZERO = 2, SPLIT_NOCOLOR = -1 };
enum : Result { SUCCESS = 0, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7 };

} // namespace nccl

/// X(member, symbol in the library, result, parameters)
#define GRIDLOOM_NCCL_ENTRY_POINTS(X)                                                              \
  X(getVersion, "ncclGetVersion", Result, (int *version))                                          \
  X(getUniqueId, "ncclGetUniqueId", Result, (UniqueId * id))                                       \
  X(getErrorString, "ncclGetErrorString", const char *, (Result result))                           \
  X(getLastError, "ncclGetLastError", const char *, (Comm comm))                                   \
  X(commInitRankConfig, "ncclCommInitRankConfig", Result,                                          \
    (Comm * comm, int size, UniqueId id, int rank, Config *config))                                \
  X(commSplit, "ncclCommSplit", Result,                                                            \
    (Comm comm, int color, int key, Comm *made, Config *config))                                   \
  X(commGetAsyncError, "ncclCommGetAsyncError", Result, (Comm comm, Result * error))               \
  X(commFinalize, "ncclCommFinalize", Result, (Comm comm))                                         \
  X(commDestroy, "ncclCommDestroy", Result, (Comm comm))                                           \
  X(commAbort, "ncclCommAbort", Result, (Comm comm))                                               \
  X(groupStart, "ncclGroupStart", Result, ())                                                      \
  X(groupEnd, "ncclGroupEnd", Result, ())                                                          \
  X(allReduce, "ncclAllReduce", Result,                                                            \
    (const void *in, void *out, size_t count, int type, int op, Comm comm, NativeStream stream))   \
  X(allGather, "ncclAllGather", Result,                                                            \
    (const void *in, void *out, size_t count, int type, Comm comm, NativeStream stream))           \
  X(reduceScatter, "ncclReduceScatter", Result,                                                    \
    (const void *in, void *out, size_t count, int type, int op, Comm comm, NativeStream stream))   \
  X(broadcast, "ncclBroadcast", Result,                                                            \
    (const void *in, void *out, size_t count, int type, int root, Comm comm, NativeStream stream)) \
  X(send, "ncclSend", Result,                                                                      \
    (const void *in, size_t count, int type, int peer, Comm comm, NativeStream stream))            \
  X(recv, "ncclRecv", Result,                                                                      \
    (void *out, size_t count, int type, int peer, Comm comm, NativeStream stream))

#define GRIDLOOM_NCCL_NEWER_ENTRY_POINTS(X)                                                        \
  X(memAlloc, "ncclMemAlloc", Result, (void **pointer, size_t bytes))                              \
  X(memFree, "ncclMemFree", Result, (void *pointer))                                               \
  X(commRegister, "ncclCommRegister", Result,                                                      \
    (Comm comm, void *data, size_t bytes, void **handle))                                          \
  X(commDeregister, "ncclCommDeregister", Result, (Comm comm, void *handle))                       \
  X(commWindowRegister, "ncclCommWindowRegister", Result,                                          \
    (Comm comm, void *data, size_t bytes, Window *window, int flags))                              \
  X(commWindowDeregister, "ncclCommWindowDeregister", Result, (Comm comm, Window window))          \
  X(allToAll, "ncclAlltoAll", Result,                                                              \
    (const void *in, void *out, size_t count, int type, Comm comm, NativeStream stream))

namespace nccl {
struct EntryPoints {
// NOLINTBEGIN(bugprone-macro-parentheses)
#define GRIDLOOM_NCCL_MEMBER(member, symbol, result, parameters)                                   \
  result(*member) parameters = nullptr;
  GRIDLOOM_NCCL_ENTRY_POINTS(GRIDLOOM_NCCL_MEMBER)
#undef GRIDLOOM_NCCL_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)

  // Functions of newer versions; null if the library lacks them.
  // NOLINTBEGIN(bugprone-macro-parentheses)
#define GRIDLOOM_NCCL_MEMBER(member, symbol, result, parameters)                                   \
  result(*member) parameters = nullptr;
  GRIDLOOM_NCCL_NEWER_ENTRY_POINTS(GRIDLOOM_NCCL_MEMBER)
#undef GRIDLOOM_NCCL_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)
};
} // namespace nccl

/// The NCCL library, loaded.
class NcclLibrary : public nccl::EntryPoints {
public:
  /// Opens `path`; empty means environment variable GRIDLOOM_NCCL, else libnccl.so.2. Throws
  /// Unavailable if there is none or it is older than 2.18.
  explicit NcclLibrary(const std::string &path = "");

  /// 10000 * major + 100 * minor + patch.
  int getVersionCode() const { return version; }
  /// Whether NCCL is known to run operations of several communicators on one GPU in call order:
  /// 2.26 and later, if NCCL_LAUNCH_ORDER_IMPLICIT was 1 before NCCL was loaded. NCCL reads the
  /// variable once, so the order is unknown if another library (PyTorch) loaded NCCL; the caller
  /// then orders operations by events.
  bool keepsOrder() const { return ordered; }
  /// "ncclInvalidUsage's text: the last error's text" of `comm`, which may be null.
  std::string describe(nccl::Result result, nccl::Comm comm) const;

private:
  DynamicLibrary library;
  int version = 0;
  bool ordered = false;
};

/// "2.28.9"
std::string formatNcclVersion(int version);

/// NCCL's type and count for a call that only moves `count` elements of `type`.
struct NcclElements {
  int type;
  size_t count;
};
NcclElements toNcclElements(DataType type, size_t count);

/// NCCL's type and operation of a reduction. Bool sums are "or", products "and". Throws
/// InvalidArgument for i16, which NCCL does not reduce.
struct NcclReduction {
  int type;
  int operation;
};
NcclReduction toNcclReduction(DataType type, Reduction reduction);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_NCCL_NCCLLIBRARY_H
