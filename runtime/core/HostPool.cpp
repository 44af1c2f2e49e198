//===- HostPool.cpp - reuse of host memory --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/HostPool.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <unistd.h>

using namespace gridloom::rt;

static constexpr size_t alignment = 64;

struct HostPool::State {
  const int process = getpid();
  std::mutex mutex;
  std::multimap<size_t, void *> kept; // by size
  size_t keptBytes = 0, usedBytes = 0, mostUsed = 0;
  bool isClosed = false;

  ~State() { drop(0); }

  /// Frees kept blocks, the smallest first, until at most `bytes` are kept.
  void drop(size_t bytes) {
    while (keptBytes > bytes) {
      keptBytes -= kept.begin()->first;
      std::free(kept.begin()->second);
      kept.erase(kept.begin());
    }
  }

  /// Null when out of memory.
  void *take(size_t size) {
    std::lock_guard lock(mutex);
    void *memory = nullptr;
    if (auto found = kept.find(size); found != kept.end()) {
      memory = found->second;
      kept.erase(found);
      keptBytes -= size;
    } else {
      drop(mostUsed > usedBytes + size ? mostUsed - usedBytes - size : 0);
      memory = std::aligned_alloc(alignment, size);
    }
    if (!memory)
      return nullptr;
    usedBytes += size;
    mostUsed = std::max(mostUsed, usedBytes);
    return memory;
  }

  void give(size_t size, void *memory) noexcept {
    // In a forked child another thread of the parent may hold the mutex for ever.
    if (getpid() != process)
      return;
    std::lock_guard lock(mutex);
    usedBytes -= size;
    bool isWanted = !isClosed && usedBytes + keptBytes + size <= mostUsed;
    if (!isWanted || !keep(size, memory))
      std::free(memory);
  }

  bool keep(size_t size, void *memory) {
    try {
      kept.emplace(size, memory);
      keptBytes += size;
      return true;
    } catch (const std::bad_alloc &) {
      return false;
    }
  }
};

HostPool::HostPool() : state(std::make_shared<State>()) {}

HostPool::~HostPool() {
  if (getpid() != state->process)
    return;
  std::lock_guard lock(state->mutex);
  state->isClosed = true;
  state->drop(0);
}

HostArray HostPool::allocate(DataType type, std::vector<int64_t> shape) {
  auto bytes = size_t(checkedBytes(shape, sizeOf(type), "an array"));
  size_t size = (bytes / alignment + 1) * alignment;
  void *memory = state->take(size);
  if (!memory)
    throw Error(ErrorCode::OutOfMemory, "cannot allocate " + std::to_string(bytes) +
                                            " bytes for an array of shape " + formatShape(shape));
  std::shared_ptr<const void> owner(
      memory, [size, pool = state](const void *p) { pool->give(size, const_cast<void *>(p)); });
  return HostArray::share(type, std::move(shape), memory, std::move(owner));
}
