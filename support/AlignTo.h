//===- AlignTo.h - sizes rounded up to an alignment -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_ALIGNTO_H
#define GRIDLOOM_SUPPORT_ALIGNTO_H

#include <cstddef>

namespace gridloom {

/// The least multiple of `alignment` that is not below `bytes`.
constexpr size_t alignTo(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_ALIGNTO_H
