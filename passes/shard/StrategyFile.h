//===- StrategyFile.h - the shard phase's decisions as text -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// docs/strategy-files.md describes the format, which is YAML.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_STRATEGYFILE_H
#define GRIDLOOM_PASSES_SHARD_STRATEGYFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gridloom {

/// How one dimension is split: over axes, major first, on multiples of `granule` elements.
struct DimSplit {
  std::vector<std::string> axes;
  int64_t granule = 1;
};

/// How one factor of a node's work is split, by the factor's name (FactorNames.h).
struct FactorSplit {
  std::string name;
  DimSplit split;
};

/// A line of a section: what it says of the names that `key` equals or matches (NamePatterns.h).
struct StrategyLine {
  std::string key;
  unsigned line = 0;                  ///< in the file, from 1; 0 if there is no file
  std::vector<DimSplit> dims;         ///< of a value
  std::vector<std::string> unreduced; ///< axes over which a value stays a partial sum
  std::vector<FactorSplit> factors;   ///< of a node's work
  int64_t stage = 0;                  ///< of a node
  std::string text;                   ///< any of them as text: "[{data}, {model: 64}]", "1"
};

/// The sections that address a program by name. `Stages` holds stages, `Splits` splits of factors,
/// the others shardings. `Storage` is how weights, and states by their inputs, lie in memory where
/// that differs from their shardings; `Splits` how the work of nodes is split where that does not
/// follow from the shardings.
enum class StrategySection { Stages, Inputs, Weights, Nodes, Splits, Outputs, Storage };
inline constexpr size_t kNumStrategySections = 7;
inline constexpr std::array<llvm::StringLiteral, kNumStrategySections> kStrategySections = {
    "stages", "inputs", "weights", "nodes", "splits", "outputs", "storage"};

/// The decisions for a function.
struct StrategyTable {
  std::array<std::vector<StrategyLine>, kNumStrategySections> sections;

  std::vector<StrategyLine> &operator[](StrategySection section) {
    return sections[static_cast<size_t>(section)];
  }
  const std::vector<StrategyLine> &operator[](StrategySection section) const {
    return sections[static_cast<size_t>(section)];
  }
};

/// How one specialisation differs.
struct StrategyException {
  std::string name; ///< "main batch=1,sequence=16"
  unsigned line = 0;
  StrategyTable table;
};

struct StrategyAxis {
  std::string name;
  int64_t size;
  bool operator==(const StrategyAxis &) const = default;
};

struct StrategyFile {
  std::string path;         ///< for messages
  std::string model, graph; ///< the graph's name and digest (ModelIdentity.h); empty: any
  std::vector<StrategyAxis> mesh;
  std::string stageAxis; ///< empty: no pipeline
  int64_t microbatches = 1;
  int64_t chunkMatmul = 0;          ///< 0: not chunked
  std::vector<StrategyLine> unpack; ///< nodes whose packed weights are unpacked
  StrategyTable common;
  std::vector<StrategyException> specialisations;

  /// Names that the model has, even if nothing in the program is called so; filled by callers that
  /// know the model.
  llvm::StringSet<> modelNames;

  /// As --mesh takes it: "data=2,model=2".
  std::string getMesh() const;
  int64_t getNumStages() const;
  /// "'plan.strategy' line 12"
  std::string locate(unsigned line) const;
};

/// Parses `text` into `file`, all but `file.path`. Returns the problems: lines without a path that
/// begin with the place, such as "line 3: "; none on success.
std::vector<std::string> parseStrategy(llvm::StringRef text, StrategyFile &file);

/// Reads the file at `path`. Returns the problems: lines with the path; none on success.
std::vector<std::string> readStrategy(const std::string &path, StrategyFile &file);

/// The text from which parseStrategy makes the same file.
std::string printStrategy(const StrategyFile &file);

/// "[{data}, {model: 64}]", and "[{data}, {}, {unreduced: {model}}]" of partial sums.
std::string printSplit(const std::vector<DimSplit> &dims,
                       const std::vector<std::string> &unreduced = {});

/// "{d0: {data}, in0.d1: {model: 64}}"
std::string printFactors(const std::vector<FactorSplit> &factors);

/// "; did you mean 'x'?" for a name that is close to one of `known`, else empty.
std::string suggestName(llvm::StringRef name, const std::vector<std::string> &known);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STRATEGYFILE_H
