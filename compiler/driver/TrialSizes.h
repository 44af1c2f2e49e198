//===- TrialSizes.h - sizes that a model compiles with ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A model says which dimensions are open, not which sizes they may have: pictures must divide by
// 32, a cache's mask is as long as the cache and the new tokens together, and an exporter may have
// fixed the size it traced with. `doctor` finds out by compiling as far as sizes matter.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_TRIALSIZES_H
#define GRIDLOOM_COMPILER_DRIVER_TRIALSIZES_H

#include "compiler/onnx/ModelBrief.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gridloom {

/// Sizes by the name of the dimension.
using Sizes = std::map<std::string, int64_t>;

/// Compiles with these sizes; returns the errors, one a line, or "".
using TrialCompile = std::function<std::string(const Sizes &)>;

struct TrialResult {
  /// Sizes of open dimensions that work; if none were found, those tried first.
  Sizes sizes;
  /// Errors of the sizes tried first; empty if some work.
  std::string errors;
  /// One line for each open dimension: other sizes that work, and dimensions that depend on it.
  std::vector<std::string> remarks;
  int trials = 0;
  bool isOfSizes = false; ///< whether other sizes change the errors
};

/// Finds sizes for the dimensions of `brief` that `given` has no size for, and what each may be.
/// `batch` is the size to try for batches.
TrialResult findSizes(const ModelBrief &brief, const Sizes &given, int64_t batch,
                      const TrialCompile &trial);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_TRIALSIZES_H
