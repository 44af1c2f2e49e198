//===- OneDnn.cpp - what calls of oneDNN share ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/OneDnn.h"

#include <cstddef>
#include <memory>
#include <vector>

using namespace gridloom::rt;

dnnl::engine &onednn::getEngine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream &onednn::getStream() {
  thread_local dnnl::stream stream(getEngine());
  return stream;
}

void *onednn::getScratch(size_t bytes) {
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < bytes + kAlignment) {
    scratch.clear(); // nothing to copy
    scratch.resize(bytes + kAlignment);
  }
  void *data = scratch.data();
  size_t room = scratch.size();
  return std::align(kAlignment, bytes, data, room);
}

dnnl::memory onednn::view(const dnnl::memory::desc &description, const void *data) {
  return {description, getEngine(), const_cast<void *>(data)};
}
