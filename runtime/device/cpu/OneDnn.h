//===- OneDnn.h - what calls of oneDNN share --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_ONEDNN_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_ONEDNN_H

#include "runtime/core/Error.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace gridloom::rt::onednn {

/// Of what primitives read and write, in bytes.
constexpr size_t kAlignment = 64;

dnnl::engine &getEngine();
/// The calling thread's.
dnnl::stream &getStream();
/// At least `bytes` of the calling thread's scratch, until its next call.
void *getScratch(size_t bytes);
dnnl::memory view(const dnnl::memory::desc &description, const void *data);
inline dnnl::memory::dims getDims(const dnnl::memory::desc &description) {
#if DNNL_VERSION_MAJOR >= 3
  return description.get_dims();
#else
  return description.dims();
#endif
}

/// Converts oneDNN's exceptions to Error: "convolution: oneDNN refuses it: ...".
template <typename Action> void guard(const char *what, ErrorCode code, const Action &action) {
  try {
    action();
  } catch (const dnnl::error &error) {
    throw Error(code, std::string(what) + ": oneDNN refuses it: " + error.message + " (status " +
                          std::to_string(int(error.status)) + ")");
  }
}

} // namespace gridloom::rt::onednn

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_ONEDNN_H
