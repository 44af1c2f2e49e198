//===- DataSet.cpp - samples to train on ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/DataSet.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Npz.h"
#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

using namespace gridloom::rt;
namespace fs = std::filesystem;

bool DataSet::Column::isPadded(size_t dimension) const {
  return std::ranges::count(padded, dimension) != 0;
}

/// "f32 [samples, 3, 8]", "i64 [samples, any]"
static std::string describe(const DataSet::Column &column) {
  std::string text = std::string(nameOf(column.type)) + " [samples";
  for (size_t i = 0; i < column.shape.size(); ++i)
    text += ", " + (column.isPadded(i) ? "any" : std::to_string(column.shape[i]));
  return text + "]";
}

/// Why `array` does not fit `column`; empty if it fits.
static std::string findMisfit(const HostArray &array, const DataSet::Column &column) {
  std::span<const int64_t> shape = array.getShape();
  bool isCodes = array.getType() == DataType::U8 && isFloat8(column.type);
  bool fits = shape.size() == column.shape.size() + 1;
  for (size_t i = 0; fits && i < column.shape.size(); ++i)
    fits = shape[i + 1] == column.shape[i] || column.isPadded(i);
  if (fits && (array.getType() == column.type || isCodes))
    return "";
  return getNpyName(column.name) + " holds " + std::string(nameOf(array.getType())) + " " +
         formatShape(shape) + ", but the plan takes " + describe(column);
}

namespace {

/// Finds arrays in a folder or an archive.
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

  /// Nothing if there is no array for this input.
  std::optional<HostArray> find(const std::string &name) {
    std::string file = getNpyName(name);
    if (!archive) {
      std::error_code error;
      if (!fs::exists(path / file, error))
        return std::nullopt;
      take(file, name);
      std::shared_ptr<const MappedFile> mapped = open(path / file);
      return parseNpy(mapped->getBytes(), mapped, (path / file).string());
    }
    auto member = members.find(name + ".npy"); // numpy keeps slashes
    if (member == members.end())
      member = members.find(file);
    if (member == members.end())
      return std::nullopt;
    take(member->first, name);
    return parseNpy(member->second, archive, path.string() + "/" + member->first);
  }

private:
  /// Throws if it is another input's file, too: getNpyName is the same for "a/b" and "a_b".
  void take(const std::string &file, const std::string &name) {
    const std::string &first = readers.try_emplace(file, name).first->second;
    if (first != name)
      throw Error(ErrorCode::InvalidArgument,
                  "data " + path.string() + ": '" + first + "' and '" + name +
                      "' would both be read from " + file +
                      "; give a .npz file with a member for each, whose names keep slashes");
  }

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
  std::map<std::string, std::string> readers; // inputs by file or member
};

} // namespace

static int64_t readInteger(const HostArray &array, int64_t index) {
  int64_t value = 0;
  int32_t narrow = 0;
  if (array.getType() == DataType::I64) // may be unaligned
    std::memcpy(&value, array.getData() + size_t(index) * sizeof value, sizeof value);
  else
    std::memcpy(&narrow, array.getData() + size_t(index) * sizeof narrow, sizeof narrow);
  return array.getType() == DataType::I64 ? value : narrow;
}

/// Reads each sample's length and checks it against the arrays' sizes and `longest`.
std::string DataSet::readLengths(const HostArray &array, const std::string &name, int64_t longest) {
  std::string file = getNpyName(name);
  bool isInteger = array.getType() == DataType::I64 || array.getType() == DataType::I32;
  if (!isInteger || array.getShape() != std::vector<int64_t>{numSamples})
    return file + " holds " + std::string(nameOf(array.getType())) + " " +
           formatShape(array.getShape()) + "; how long each sample is are integers [" +
           std::to_string(numSamples) + "]";
  std::string what = "the plan's largest size is ";
  for (const auto &[input, column] : columns)
    for (size_t dimension : column.padded)
      if (int64_t size = arrays.at(input).getShape()[dimension + 1]; size < longest) {
        longest = size;
        what = getNpyName(input) + " has only ";
      }
  for (int64_t i = 0; i < numSamples; ++i) {
    int64_t length = lengths.emplace_back(readInteger(array, i));
    if (length < 1 || length > longest)
      return file + " says that sample " + std::to_string(i) + " is " + std::to_string(length) +
             " long; " + (length < 1 ? "the least is 1" : what + std::to_string(longest));
  }
  return "";
}

DataSet DataSet::open(const fs::path &path, std::span<const Column> columns,
                      const std::string &lengths, int64_t longest) {
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
               describe(column);
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
      set.columns.emplace(column.name, column);
      // .npy files hold 8-bit floats as bytes.
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
  if (lengths.empty())
    return set;
  std::optional<HostArray> found = source.find(lengths);
  if (!found)
    fail("there is no " + getNpyName(lengths) + ", which says how long each sample is");
  if (std::string misfit = set.readLengths(*found, lengths, longest); !misfit.empty())
    fail(misfit);
  return set;
}

bool DataSet::contains(const fs::path &path, const std::string &name) {
  std::vector<std::shared_ptr<const MappedFile>> files;
  return Source(path, files).find(name).has_value();
}

std::string DataSet::getFingerprint() const {
  std::string all;
  for (const std::shared_ptr<const MappedFile> &file : files)
    all += fingerprint(file->getBytes());
  return all;
}

int64_t DataSet::getLongest(std::span<const int64_t> samples) const {
  int64_t longest = 0;
  for (int64_t sample : samples)
    longest = std::max(longest, lengths.empty() ? 0 : lengths[size_t(sample)]);
  return longest;
}

namespace {

/// Copies the corner `size` between arrays of shapes `from` and `to`, with elements of `bytes`.
struct Corner {
  std::span<const int64_t> from, to, size;
  size_t bytes;

  void copy(const std::byte *source, std::byte *target, size_t axis = 0) const {
    auto getRest = [&](std::span<const int64_t> shape) {
      return shape.subspan(std::min(axis + 1, shape.size()));
    };
    if (axis == size.size() || (std::ranges::equal(getRest(from), getRest(size)) &&
                                std::ranges::equal(getRest(to), getRest(size)))) {
      if (size_t count = getBytes(size.subspan(axis)))
        std::memcpy(target, source, count);
      return;
    }
    for (int64_t i = 0; i < size[axis]; ++i)
      copy(source + size_t(i) * getBytes(getRest(from)), target + size_t(i) * getBytes(getRest(to)),
           axis + 1);
  }

private:
  size_t getBytes(std::span<const int64_t> shape) const {
    size_t count = bytes;
    for (int64_t each : shape)
      count *= size_t(each);
    return count;
  }
};

} // namespace

HostArray DataSet::makeBatch(const std::string &name, std::span<const int64_t> samples,
                             int64_t length) const {
  const HostArray &array = arrays.at(name);
  const Column &column = columns.at(name);
  std::vector<int64_t> shape = array.getShape();
  shape.front() = int64_t(samples.size());
  for (size_t dimension : column.padded)
    shape[dimension + 1] = length;
  HostArray batch = HostArray::allocate(array.getType(), shape);
  bool isFilled = !column.padded.empty() && column.padding != 0;
  for (int64_t i = 0; isFilled && i < batch.getNumElements(); ++i)
    setElement(batch, i, column.padding);
  size_t from = array.getNumBytes() / size_t(numSamples), to = batch.getNumBytes() / samples.size();
  std::vector<int64_t> valid(shape.begin() + 1, shape.end());
  Corner corner = {std::span(array.getShape()).subspan(1), std::span(shape).subspan(1), valid,
                   sizeOf(array.getType())};
  for (size_t i = 0; i < samples.size(); ++i) {
    assert(samples[i] >= 0 && samples[i] < numSamples);
    for (size_t dimension : column.padded)
      valid[dimension] = lengths[size_t(samples[i])];
    corner.copy(array.getData() + size_t(samples[i]) * from, batch.getMutableData() + i * to);
  }
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->requireUnchanged();
  return batch;
}
