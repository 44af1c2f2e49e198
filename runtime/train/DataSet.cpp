//===- DataSet.cpp - samples to train on ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/DataSet.h"

#include "runtime/arrays/Npy.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <cassert>
#include <cstring>

using namespace gridloom::rt;
namespace fs = std::filesystem;

/// "f32 [samples, 3, 8]"
static std::string describe(DataType type, std::span<const int64_t> sample) {
  std::string sizes = formatShape(sample);
  return std::string(nameOf(type)) + " [samples" + (sample.empty() ? "" : ", ") + sizes.substr(1);
}

/// What is wrong with `array` as the file of `column`; empty if nothing is.
static std::string findMisfit(const HostArray &array, const DataSet::Column &column) {
  std::span<const int64_t> shape = array.getShape();
  bool isCodes = array.getType() == DataType::U8 && isFloat8(column.type);
  bool fits = !shape.empty() && std::ranges::equal(shape.subspan(1), column.shape);
  if (fits && (array.getType() == column.type || isCodes))
    return "";
  return getNpyName(column.name) + " holds " + std::string(nameOf(array.getType())) + " " +
         formatShape(shape) + ", but the plan takes " + describe(column.type, column.shape);
}

DataSet DataSet::open(const fs::path &folder, std::span<const Column> columns) {
  auto fail = [&](const std::string &what) {
    throw Error(ErrorCode::InvalidArgument, "data " + folder.string() + ": " + what);
  };
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    bool isArchive = folder.extension() == ".npz";
    fail(isArchive ? "unpack it (unzip) and name the folder of .npy files" : "is no folder");
  }
  DataSet set;
  std::string misfits;
  const Column *first = nullptr;
  for (const Column &column : columns) {
    fs::path path = folder / getNpyName(column.name);
    std::string misfit;
    if (!fs::exists(path, error)) {
      misfit = "there is no " + getNpyName(column.name) + ", which the plan takes as " +
               describe(column.type, column.shape);
    } else {
      HostArray array = readNpy(path);
      misfit = findMisfit(array, column);
      int64_t numSamples = misfit.empty() ? array.getShape().front() : 0;
      if (misfit.empty() && first && numSamples != set.numSamples)
        misfit = getNpyName(column.name) + " has " + std::to_string(numSamples) + " samples, " +
                 getNpyName(first->name) + " " + std::to_string(set.numSamples);
      if (misfit.empty() && !first) {
        first = &column;
        set.numSamples = numSamples;
      }
      // The file does not tell 8-bit floats from bytes.
      set.arrays.emplace(column.name, HostArray::share(column.type, array.getShape(),
                                                       array.getData(), array.getOwner()));
    }
    if (!misfit.empty())
      misfits += (misfits.empty() ? "" : "; ") + misfit;
  }
  if (!misfits.empty())
    fail(misfits);
  if (set.numSamples == 0)
    fail("has no samples");
  return set;
}

HostArray DataSet::makeBatch(const std::string &name, std::span<const int64_t> samples) const {
  const HostArray &array = arrays.at(name);
  std::vector<int64_t> shape = array.getShape();
  shape.front() = int64_t(samples.size());
  HostArray batch = HostArray::allocate(array.getType(), shape);
  size_t bytes = array.getNumBytes() / size_t(numSamples);
  for (size_t i = 0; i < samples.size(); ++i) {
    assert(samples[i] >= 0 && samples[i] < numSamples);
    if (bytes)
      std::memcpy(batch.getMutableData() + i * bytes, array.getData() + size_t(samples[i]) * bytes,
                  bytes);
  }
  return batch;
}
