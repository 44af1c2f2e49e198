//===- DataSet.h - samples to train on --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_DATASET_H
#define GRIDLOOM_RUNTIME_TRAIN_DATASET_H

#include "runtime/core/Files.h"
#include "runtime/core/HostArray.h"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

/// An array for each input, whose first dimension counts the samples: a folder with one .npy file
/// each, called as getNpyName says, or a .npz file with members "NAME.npy", not compressed. Files
/// are mapped: only samples that are read take memory.
class DataSet {
public:
  /// What an input takes of one sample: the input's shape without its first dimension.
  struct Column {
    std::string name;
    DataType type;
    std::vector<int64_t> shape;
  };

  /// Opens what `columns`, at least one, need; other files are left alone. Throws InvalidArgument
  /// with one line that says of each unfit file what it holds and what the plan takes.
  static DataSet open(const std::filesystem::path &path, std::span<const Column> columns);

  int64_t getNumSamples() const { return numSamples; }
  /// The batch of these samples, each of 0 to getNumSamples() - 1, for the input `name`. Throws
  /// Unavailable where a file was changed since it was opened.
  HostArray makeBatch(const std::string &name, std::span<const int64_t> samples) const;

private:
  std::map<std::string, HostArray> arrays;              // at any address
  std::vector<std::shared_ptr<const MappedFile>> files; // that these are in
  int64_t numSamples = 0;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_DATASET_H
