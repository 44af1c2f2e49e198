//===- DataSet.cpp - samples to train on ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/DataSet.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Npz.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

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

namespace {

/// Finds the arrays of a folder or an archive.
class Source {
public:
  Source(const fs::path &path, std::vector<std::shared_ptr<const MappedFile>> &files)
      : path(path), files(files) {
    std::error_code error;
    if (fs::is_directory(path, error))
      return;
    if (path.extension() != ".npz" || !fs::is_regular_file(path, error))
      throw Error(ErrorCode::InvalidArgument,
                  "data " + path.string() + ": is neither a folder of .npy files nor a .npz file");
    archive = open(path);
    members = findNpzMembers(archive->getBytes(), "data " + path.string());
  }

  /// Nothing where there is none for this input.
  std::optional<HostArray> find(const std::string &name) {
    std::string file = getNpyName(name);
    if (!archive) {
      std::error_code error;
      if (!fs::exists(path / file, error))
        return std::nullopt;
      std::shared_ptr<const MappedFile> mapped = open(path / file);
      return parseNpy(mapped->getBytes(), mapped, (path / file).string());
    }
    auto member = members.find(name + ".npy"); // numpy keeps slashes
    if (member == members.end())
      member = members.find(file);
    if (member == members.end())
      return std::nullopt;
    return parseNpy(member->second, archive, path.string() + "/" + member->first);
  }

private:
  std::shared_ptr<const MappedFile> open(const fs::path &file) const {
    try {
      return files.emplace_back(MappedFile::open(file));
    } catch (const Error &error) {
      throw Error(ErrorCode::InvalidArgument, error.what());
    }
  }

  const fs::path &path;
  std::vector<std::shared_ptr<const MappedFile>> &files;
  std::shared_ptr<const MappedFile> archive; // null: a folder
  std::map<std::string, std::span<const std::byte>> members;
};

} // namespace

DataSet DataSet::open(const fs::path &path, std::span<const Column> columns) {
  auto fail = [&](const std::string &what) {
    throw Error(ErrorCode::InvalidArgument, "data " + path.string() + ": " + what);
  };
  DataSet set;
  Source source(path, set.files);
  std::string misfits;
  const Column *first = nullptr;
  for (const Column &column : columns) {
    std::string misfit;
    std::optional<HostArray> found = source.find(column.name);
    if (!found) {
      misfit = "there is no " + getNpyName(column.name) + ", which the plan takes as " +
               describe(column.type, column.shape);
    } else {
      const HostArray &array = *found;
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
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->requireUnchanged();
  return batch;
}
