//===- HostPool.cpp - memory of arrays that come and go -------------------===//
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

using namespace gridloom::rt;

struct HostPool::State {
  std::mutex mutex;
  std::multimap<size_t, void *> kept; // by size
  size_t keptBytes = 0, usedBytes = 0, mostUsed = 0;
  bool isClosed = false;

  ~State() {
    for (auto [size, memory] : kept)
      std::free(memory);
  }

  void *take(size_t size) {
    std::lock_guard lock(mutex);
    usedBytes += size;
    mostUsed = std::max(mostUsed, usedBytes);
    auto found = kept.find(size);
    if (found == kept.end())
      return nullptr;
    void *memory = found->second;
    kept.erase(found);
    keptBytes -= size;
    return memory;
  }

  void give(size_t size, void *memory) {
    {
      std::lock_guard lock(mutex);
      usedBytes -= size;
      if (memory && !isClosed && usedBytes + keptBytes + size <= mostUsed) {
        kept.emplace(size, memory);
        keptBytes += size;
        return;
      }
    }
    std::free(memory);
  }
};

HostPool::HostPool() : state(std::make_shared<State>()) {}

HostPool::~HostPool() {
  std::lock_guard lock(state->mutex);
  state->isClosed = true;
}

HostArray HostPool::allocate(DataType type, std::vector<int64_t> shape) {
  constexpr size_t alignment = 64;
  auto bytes = size_t(checkedBytes(shape, sizeOf(type), "an array"));
  size_t size = (bytes / alignment + 1) * alignment;
  void *memory = state->take(size);
  if (!memory)
    memory = std::aligned_alloc(alignment, size);
  if (!memory) {
    state->give(size, nullptr);
    throw Error(ErrorCode::OutOfMemory, "cannot allocate " + std::to_string(bytes) +
                                            " bytes for an array of shape " + formatShape(shape));
  }
  std::shared_ptr<const void> owner(
      memory, [size, pool = state](const void *p) { pool->give(size, const_cast<void *>(p)); });
  return HostArray::share(type, std::move(shape), memory, std::move(owner));
}
