//===- Limits.h - limits of shardings ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_LIMITS_H
#define GRIDLOOM_DIALECTS_DIST_LIMITS_H

#include <cstdint>

namespace gridloom::dist {

/// The largest granule of a cut; times a mesh's devices it is far from overflow.
inline constexpr int64_t kMaxGranule = int64_t(1) << 31;

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_LIMITS_H
