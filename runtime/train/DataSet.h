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
/// each, named by getNpyName, or an uncompressed .npz file with members "NAME.npy". Files are
/// mapped: only samples that are read take memory.
class DataSet {
public:
  /// One sample of an input: the input's shape without its first dimension.
  struct Column {
    std::string name;
    DataType type;
    std::vector<int64_t> shape;
    /// Dimensions of `shape` that vary with the sample's length. The array is as long as the
    /// longest sample or longer; batches have `padding` behind a sample's end.
    std::vector<size_t> padded = {};
    double padding = 0;
    bool isPadded(size_t dimension) const;
  };

  /// Opens the files for `columns`, at least one; ignores other files. `lengths`, unless empty,
  /// names an array of integers [samples]: each sample's length in all padded dimensions, from 1 to
  /// `longest`. Throws InvalidArgument with one line that says for each unfit file what it holds
  /// and what the plan takes.
  static DataSet open(const std::filesystem::path &path, std::span<const Column> columns,
                      const std::string &lengths = "", int64_t longest = 0);

  /// Whether the data has an array for the input `name`, of any type and shape.
  static bool contains(const std::filesystem::path &path, const std::string &name);

  int64_t getNumSamples() const { return numSamples; }
  /// Tells data of other contents apart: the `fingerprint`s of the files.
  std::string getFingerprint() const;
  /// The length of the longest of these samples; 0 if the data has no lengths.
  int64_t getLongest(std::span<const int64_t> samples) const;
  /// The batch of these samples, each from 0 to getNumSamples() - 1, for the input `name`; padded
  /// dimensions get size `length`, at least getLongest(samples). Throws Unavailable if a file was
  /// changed since it was opened.
  HostArray makeBatch(const std::string &name, std::span<const int64_t> samples,
                      int64_t length = 0) const;

private:
  /// Returns what is wrong with the array `name`, or "".
  std::string readLengths(const HostArray &array, const std::string &name, int64_t longest);

  std::map<std::string, Column> columns;
  std::map<std::string, HostArray> arrays;              // at any address
  std::vector<int64_t> lengths;                         // of the samples; empty: fixed size
  std::vector<std::shared_ptr<const MappedFile>> files; // that hold these
  int64_t numSamples = 0;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_DATASET_H
