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

/// The times of steps in a run, by their names in its trace.
class MeasuredCosts {
public:
  /// Reads what `gridloom run --trace` writes. nullopt if the file is no such trace or times no
  /// steps; `error` is then one line that names the file.
  static std::optional<MeasuredCosts> read(const std::string &path, std::string &error);
  /// The same for the file's text.
  static std::optional<MeasuredCosts> parse(llvm::StringRef text, const std::string &path,
                                            std::string &error);

  /// Seconds of a step, by its name and ONNX node or, failing that, by its name alone: the mean
  /// over iterations. nullopt if unknown. Communication waits for the last rank, so in each
  /// iteration the shortest time of any rank counts.
  std::optional<double> find(llvm::StringRef name, llvm::StringRef node) const;

  const std::string &getPath() const { return path; }

private:
  std::string path;
  /// By "name" and by "name\nnode".
  llvm::StringMap<double> seconds;
};

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_MEASUREDCOSTS_H
