//===- MeasuredCosts.h - times of steps, from a trace -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_MEASUREDCOSTS_H
#define GRIDLOOM_COMPILER_SIMULATOR_MEASUREDCOSTS_H

#include "llvm/ADT/StringMap.h"

#include <optional>
#include <string>

namespace gridloom::sim {

/// What steps took in a run, by their names in its trace.
class MeasuredCosts {
public:
  /// Reads what `gridloom run --trace` writes. None, with one line in `error` that names the file,
  /// where that is not such a trace or times no steps.
  static std::optional<MeasuredCosts> read(const std::string &path, std::string &error);
  /// As read, of the file's text.
  static std::optional<MeasuredCosts> parse(llvm::StringRef text, const std::string &path,
                                            std::string &error);

  /// Seconds of a step, by its name and ONNX node, or else by its name alone: the mean over
  /// iterations. Of communication, which waits for the last rank, the shortest time of any rank
  /// counts in each iteration.
  std::optional<double> find(llvm::StringRef name, llvm::StringRef node) const;

  const std::string &getPath() const { return path; }

private:
  std::string path;
  /// By "name" and by "name\nnode".
  llvm::StringMap<double> seconds;
};

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_MEASUREDCOSTS_H
