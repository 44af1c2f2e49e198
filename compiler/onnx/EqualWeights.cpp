//===- EqualWeights.cpp - weights that hold the same numbers --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/EqualWeights.h"

#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "support/MixBits.h"

#include <algorithm>
#include <cstring>
#include <exception>

using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// The bits of a tensor's elements in a mapped file.
class Bits {
public:
  Bits(const Model &model, const rt::OnnxTensor &tensor)
      : tensor(tensor), file(model.file->open(tensor)),
        data(file->getBytes().data() + tensor.offset), size(rt::sizeOf(tensor.type)) {}

  int64_t count() const { return int64_t(tensor.bytes / size); }
  uint64_t operator[](int64_t index) const {
    uint64_t bits = 0;
    std::memcpy(&bits, data + size_t(index) * size, size);
    return bits;
  }
  double getValue(int64_t index) const {
    return getElement(rt::HostArray::share(tensor.type, {1}, data + size_t(index) * size, file), 0);
  }
  /// The first element that differs.
  std::optional<int64_t> findDifference(const Bits &other) const {
    if (std::memcmp(data, other.data, tensor.bytes) == 0)
      return std::nullopt;
    int64_t i = 0;
    while ((*this)[i] == other[i])
      ++i;
    return i;
  }
  /// A sum over the elements that does not depend on their order. False if all are equal.
  bool sum(uint64_t &total) const {
    bool varies = false;
    total = 0;
    for (int64_t i = 0, n = count(); i < n; ++i) {
      uint64_t bits = (*this)[i];
      varies |= bits != (*this)[0];
      total += mixBits(bits);
    }
    return varies;
  }
  /// An element that differs from the other's transpose. Compares square by square, so that both
  /// are read in runs: the first square with a difference counts.
  std::optional<int64_t> findDifferenceFromTransposed(const Bits &other) const {
    constexpr int64_t square = 64;
    int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    for (int64_t i = 0; i < rows; i += square)
      for (int64_t j = 0; j < columns; j += square)
        for (int64_t row = i; row < std::min(i + square, rows); ++row)
          for (int64_t column = j; column < std::min(j + square, columns); ++column)
            if ((*this)[row * columns + column] != other[column * rows + row])
              return row * columns + column;
    return std::nullopt;
  }

private:
  const rt::OnnxTensor &tensor;
  std::shared_ptr<const rt::MappedFile> file;
  const std::byte *data;
  size_t size;
};

bool fits(const rt::OnnxTensor &a, const rt::OnnxTensor &b, bool isTransposed) {
  if (a.type != b.type || a.bytes != b.bytes)
    return false;
  if (!isTransposed)
    return a.shape == b.shape;
  return a.shape.size() == 2 && b.shape.size() == 2 && a.shape[0] == b.shape[1] &&
         a.shape[1] == b.shape[0];
}

/// Sums select the candidates, so that each tensor is read once for all comparisons.
void find(const Model &model, std::vector<EqualWeights> &pairs) {
  std::vector<const rt::OnnxTensor *> candidates;
  for (const rt::OnnxTensor &tensor : model.tensors)
    if (tensor.isInitializer && tensor.inPlace && !tensor.packed && isFloat(tensor.type) &&
        tensor.bytes > rt::sizeOf(tensor.type))
      candidates.push_back(&tensor);
  std::map<uint64_t, std::vector<const rt::OnnxTensor *>> bySum;
  for (const rt::OnnxTensor *tensor : candidates) {
    bool hasFellow = std::any_of(candidates.begin(), candidates.end(), [&](auto *other) {
      return other != tensor && (fits(*tensor, *other, false) || fits(*tensor, *other, true));
    });
    uint64_t sum = 0;
    if (!hasFellow || !Bits(model, *tensor).sum(sum))
      continue;
    auto &group = bySum[sum];
    auto equal = [&](const rt::OnnxTensor *first, bool isTransposed) {
      if (!fits(*first, *tensor, isTransposed))
        return false;
      Bits a(model, *first), b(model, *tensor);
      return isTransposed ? !a.findDifferenceFromTransposed(b) : !a.findDifference(b);
    };
    bool isKnown = false;
    for (size_t i = 0; i < group.size() && !isKnown; ++i)
      for (bool isTransposed : {false, true})
        if (!isKnown && equal(group[i], isTransposed)) {
          pairs.push_back({group[i]->name, tensor->name, isTransposed});
          isKnown = true;
        }
    if (!isKnown)
      group.push_back(tensor);
  }
}

} // namespace

static void compare(const Model &model, const EqualWeights &pair,
                    std::optional<WeightDifference> &difference) {
  const rt::OnnxTensor *tensors[2] = {};
  for (const rt::OnnxTensor &tensor : model.tensors) {
    if (tensor.name == pair.first)
      tensors[0] = &tensor;
    if (tensor.name == pair.second)
      tensors[1] = &tensor;
  }
  if (!tensors[0] || !tensors[1] || !fits(*tensors[0], *tensors[1], pair.isTransposed))
    throw rt::Error(rt::ErrorCode::InvalidArgument,
                    "'" + pair.first + "' and '" + pair.second + "' are no initializers that fit");
  Bits first(model, *tensors[0]), second(model, *tensors[1]);
  std::optional<int64_t> at =
      pair.isTransposed ? first.findDifferenceFromTransposed(second) : first.findDifference(second);
  if (!at)
    return;
  const std::vector<int64_t> &shape = tensors[0]->shape;
  difference.emplace();
  difference->first = first.getValue(*at);
  difference->second =
      second.getValue(pair.isTransposed ? *at % shape[1] * shape[0] + *at / shape[1] : *at);
  difference->index.resize(shape.size());
  for (size_t i = shape.size(); i-- > 0; *at /= shape[i])
    difference->index[i] = *at % shape[i];
}

std::string onnx_import::compareWeights(const Model &model, const EqualWeights &pair,
                                        std::optional<WeightDifference> &difference) {
  try {
    compare(model, pair, difference);
    return "";
  } catch (const std::exception &error) {
    return error.what();
  }
}

std::string onnx_import::findEqualWeights(const Model &model, std::vector<EqualWeights> &pairs) {
  try {
    find(model, pairs);
    return "";
  } catch (const std::exception &error) {
    return error.what();
  }
}
