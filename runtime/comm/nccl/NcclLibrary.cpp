//===- NcclLibrary.cpp - NCCL's entry points ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclLibrary.h"

#include "runtime/core/Environment.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace gridloom::rt {

using namespace nccl;

// The first version with communicators that are non-blocking from creation, and so can be aborted
// at any time.
static constexpr int oldestVersion = 21800;
static constexpr int firstOrdered = 22600;

std::string formatNcclVersion(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

namespace {
struct Openings {
  std::mutex mutex;
  /// By handle: whether NCCL was told to keep the order before it was loaded.
  std::map<const void *, bool> keepsOrder;
};
} // namespace

static Openings &getOpenings() {
  static Openings openings;
  return openings;
}

/// Loads the library and records whether this process loaded it, both under one lock: if ranks are
/// threads, the second must not take the library for somebody else's. NCCL reads its variables only
/// at first use.
static DynamicLibrary open(const std::string &name) {
  Openings &openings = getOpenings();
  std::lock_guard lock(openings.mutex);
  DynamicLibrary library({name},
                         "NCCL, which connects GPUs, is not installed; install libnccl2, or set "
                         "GRIDLOOM_NCCL to its libnccl.so.2");
  openings.keepsOrder.try_emplace(library.getHandle(),
                                  library.isFirst() &&
                                      getEnvironment("NCCL_LAUNCH_ORDER_IMPLICIT", "0") == "1");
  return library;
}

static bool isOrderProven(const DynamicLibrary &library) {
  Openings &openings = getOpenings();
  std::lock_guard lock(openings.mutex);
  return openings.keepsOrder.at(library.getHandle());
}

NcclLibrary::NcclLibrary(const std::string &path)
    : library(open(path.empty() ? getEnvironment("GRIDLOOM_NCCL", "libnccl.so.2") : path)) {
  const std::string remedy = "it is older than NCCL 2.18; install a newer libnccl2";
  // Check the version first: its error is clearer than that of a missing entry point.
  library.require(getVersion, "ncclGetVersion", remedy.c_str());
  if (getVersion(&version) != SUCCESS || version < oldestVersion)
    throw Error(ErrorCode::Unavailable,
                library.getName() + " is NCCL " + formatNcclVersion(version) +
                    ", 2.18.0 or newer is needed; install a newer libnccl2, or set GRIDLOOM_NCCL");
#define GRIDLOOM_NCCL_LOAD(member, symbol, result, parameters)                                     \
  library.require(member, symbol, remedy.c_str());
  GRIDLOOM_NCCL_ENTRY_POINTS(GRIDLOOM_NCCL_LOAD)
#undef GRIDLOOM_NCCL_LOAD
#define GRIDLOOM_NCCL_FIND(member, symbol, result, parameters) library.find(member, symbol);
  GRIDLOOM_NCCL_NEWER_ENTRY_POINTS(GRIDLOOM_NCCL_FIND)
#undef GRIDLOOM_NCCL_FIND
  ordered = version >= firstOrdered && isOrderProven(library);
}

std::string NcclLibrary::describe(Result result, Comm comm) const {
  const char *name = getErrorString(result);
  const char *last = getLastError(comm);
  std::string text = name ? name : "result " + std::to_string(result);
  if (last && *last)
    text += std::string(": ") + last;
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

NcclElements toNcclElements(DataType type, size_t count) {
  switch (type) {
  case DataType::I8:
    return {0, count};
  case DataType::U8:
  case DataType::Bool:
    return {1, count};
  case DataType::I32:
    return {2, count};
  case DataType::I64:
    return {4, count};
  case DataType::F16:
    return {6, count};
  case DataType::F32:
    return {7, count};
  case DataType::F64:
    return {8, count};
  case DataType::BF16:
    return {9, count};
  case DataType::U32:
    return {3, count};
  case DataType::U64:
    return {5, count};
  case DataType::I16:
  case DataType::U16:
    break;
  case DataType::F8E4M3FN:
  case DataType::F8E5M2:
  case DataType::F8E4M3FNUZ:
  case DataType::F8E5M2FNUZ:
    return {1, count}; // only moved
  }
  return {0, count * sizeOf(type)};
}

NcclReduction toNcclReduction(DataType type, Reduction reduction) {
  if (type == DataType::I16 || type == DataType::U16)
    throw Error(ErrorCode::InvalidArgument, "NCCL does not reduce " + std::string(nameOf(type)) +
                                                "; convert the value to i32 before it is reduced");
  if (isFloat8(type))
    throw Error(ErrorCode::InvalidArgument, "8-bit floats are not reduced (" +
                                                std::string(nameOf(type)) +
                                                "); convert them to f32 before");
  enum { Sum, Prod, Max, Min };
  int operation = Sum;
  switch (reduction) {
  case Reduction::Sum:
    operation = type == DataType::Bool ? Max : Sum;
    break;
  case Reduction::Prod:
    operation = type == DataType::Bool ? Min : Prod;
    break;
  case Reduction::Max:
    operation = Max;
    break;
  case Reduction::Min:
    operation = Min;
    break;
  }
  return {toNcclElements(type, 1).type, operation};
}

} // namespace gridloom::rt
